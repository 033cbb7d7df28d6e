"""Tasks: everything that a worker needs to train a trial, in plain types."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rltune.agents.eval_modes import GREEDY
from rltune.backends.checkpoints import WEIGHTS
from rltune.objectives.metrics import METRIC
from rltune.planning.evaluations import evaluation_plan, until
from rltune.space.surroundings import split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltune.answer.model import Finalist
    from rltune.execution.messages import Change, Task
    from rltune.objectives.seeds import SeedPlan
    from rltune.runs.directory import RunDir
    from rltune.runs.search_spec import SearchSpec
    from rltune.schedulers.base import Scheduler, Segment
    from rltune.search.jobs import RunningTrial

CUTOFFS = "cutoffs"  # attribute of a trial in the study


class Tasks:
    """Makes the tasks of a search.

    Args:
        spec: the search
        run: its run directory, which holds the checkpoints
        plan: which seeds a trial is trained on
    """

    def __init__(self, spec: SearchSpec, run: RunDir, plan: SeedPlan) -> None:
        self.spec = spec
        self.run = run
        self.plan = plan

    def of_trial(
        self, name: str, trial: RunningTrial, seed: int, segment: Segment | None, deadline: float
    ) -> Task:
        """Return the task of training a trial of the search on a seed, up to where it pauses."""
        file = "checkpoint.pt" if seed == self.plan.first else f"tune-{seed}.pt"
        task = self._task(name, trial.number, trial.config, "tune", seed, (), file, deadline)
        stops = until(self.plan.stops, task["points"][-1])
        task["evaluation_plan"] = self._evaluation_plan(task["points"][-1], stops, trial.cutoffs)
        by_time = self.spec.scheduler_options.get("seconds") is not None
        task["judged_at"] = list(task["points"] if by_time else stops)
        task["since"] = max(trial.seeds.run(seed).values, default=0)
        if segment:
            task["config"], task["save_at"] = segment.config, [segment.until]
        elif self.plan.count > 1:
            task["save_at"] = list(self.plan.stops)
        return task

    def cutoffs(self, number: int, scheduler: Scheduler) -> dict[int, float]:
        """Return the values to go on from each rung that a new trial may be evaluated by.

        There are none where a trial is not judged by the mean return on one seed.
        """
        spec = self.spec
        plain = (spec.metric, spec.eval_mode, spec.against) == (METRIC, GREEDY, [])
        if not plain or self.plan.count > 1 or spec.eval_share is None:
            return {}
        known = {stop: scheduler.cutoff(number, stop) for stop in self.plan.stops}
        return {stop: value for stop, value in known.items() if value is not None}

    def of_test(self, name: str, finalist: Finalist, seed: int, deadline: float) -> Task:
        """Return the task of training a finalist again on a test seed."""
        changes, file = finalist.changes, f"test-{seed}.pt"
        return self._task(
            name, finalist.trial, finalist.config, "test", seed, changes, file, deadline
        )

    def _task(
        self,
        name: str,
        number: int,
        config: dict[str, Any],
        role: str,
        seed: int,
        changes: Sequence[Change],
        file: str,
        deadline: float,
    ) -> Task:
        spec = self.spec
        parts = split(config, spec.env_kwargs, spec.budget)
        return {
            "job": name,
            "number": number,
            "seed": seed,
            "role": role,
            "agent": spec.agent,
            "env": spec.env,
            "env_kwargs": parts.env_kwargs,
            "config": parts.config,
            "changes": list(changes),
            "total_timesteps": parts.env_steps,
            "points": until(spec.points, parts.env_steps),
            "since": 0,
            "evaluate_at": until(spec.evaluate_at, parts.env_steps),
            "judged_at": [],
            "save_at": [],
            "eval_episodes": spec.eval_episodes,
            "evaluation_plan": self._evaluation_plan(parts.env_steps, [parts.env_steps], {}),
            "objective": spec.objective,
            "metric": spec.metric,
            "checkpoint": str(self.run.trial_dir(number) / file),
            "deadline": None if math.isinf(deadline) else deadline,
            "import_path": spec.import_path,
            "device": spec.device,
            "engine": spec.engine,
            "controls": spec.controls,
            "eval_mode": spec.eval_mode,
            "weights": str(self.run.path / WEIGHTS) if spec.weights else None,
            "save_replay_buffer": spec.save_replay_buffer,
        }

    def _evaluation_plan(
        self, env_steps: int, stops: list[int], cutoffs: dict[int, float]
    ) -> dict[str, Any] | None:
        plan = evaluation_plan(self.spec, env_steps, stops, cutoffs)
        return None if plan is None else dict(vars(plan))


def kept_cutoffs(attrs: Mapping[str, Any]) -> dict[int, float]:
    """Return the cutoffs that the study keeps of a trial."""
    return {int(stop): value for stop, value in attrs.get(CUTOFFS, {}).items()}
