"""The specification of a search: every choice resolved, as run.yaml holds it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.agents.registry import canonical
from rltune.objectives.metrics import parse_objective
from rltune.runs.run_options import MAX_STEPS_PER_ITERATION
from rltune.runs.search_options import SearchOptions

if TYPE_CHECKING:
    from rltune.objectives.goals import FurtherObjectives, Goal
    from rltune.objectives.seeds import SeedPlan

EXTRA_SEEDS = 2  # times the planned test seeds, at most


@dataclass(frozen=True, kw_only=True)
class SearchSpec(SearchOptions):
    """A resolved search. Times are in seconds, budgets in env steps."""

    agent: str
    space: dict[str, Any]
    defaults: dict[str, Any] = field(default_factory=dict)  # the agent's own configuration
    import_path: str = "."
    actors_per_trial: int = 0  # of the largest trial; they are among its CPUs

    def __post_init__(self) -> None:
        super().__post_init__()
        from rltune.objectives.seeds import judged

        parse_objective(self.objective)
        judged([0.0], self.over_seeds)
        self._check_seeds()
        if self.trials is None and self.time_limit is None:
            raise UserError("a search needs an end: give --trials N, --time-limit 30m or both.")
        for flag, value in (
            ("cpus-per-trial", self.cpus_per_trial),
            ("gpus-per-trial", self.gpus_per_trial),
            ("cpus-per-actor", self.cpus_per_actor),
        ):
            if value > 1 and value != int(value):
                raise UserError(f"--{flag} {value:g}: above 1 it must be whole.")

    def _check_seeds(self) -> None:
        """Raise UserError where the search and the tournament would share a seed."""
        from rltune.objectives.seeds import parse_seeds

        _, most = parse_seeds(self.seeds)
        tune, test = range(self.first_seed, self.first_seed + most), self.tournament_seeds
        if tune[-1] >= test[0] and test[-1] >= tune[0]:
            raise UserError(
                f"seeds {tune[0]} to {tune[-1]} of the search and seeds {test[0]} to {test[-1]} of "
                "the tournament overlap: what a search was tuned on cannot test it. Give another "
                "--first-test-seed."
            )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SearchSpec:
        """Read the specification back from run.yaml."""
        from rltune.agents.loop.controls import Controls
        from rltune.common.reading import from_dict

        spec = from_dict(cls, data, "the spec in run.yaml")
        from_dict(Controls, spec.controls, "controls in run.yaml")
        return dataclasses.replace(spec, agent=canonical(spec.agent))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return dataclasses.asdict(self)

    @property
    def goals(self) -> list[Goal]:
        """All objectives, the first one first."""
        from rltune.objectives.goals import Goal, parse_goal

        first = Goal(self.metric, minimize=False)  # with a minus, the negative is maximised
        return [first, *map(parse_goal, self.against)]

    def further_objectives(self) -> FurtherObjectives:
        """Return the objectives beside the first one, without values yet."""
        from rltune.objectives.goals import FurtherObjectives

        return FurtherObjectives(self.goals[1:], self.objective, self.over_seeds)

    @property
    def tune_seed(self) -> int:
        """The first of the seeds that every trial is trained on."""
        return self.first_seed

    @property
    def tournament_seeds(self) -> range:
        """The seeds of the tournament: the planned ones, and those in place of spared ones."""
        return range(self.first_test_seed, self.first_test_seed + EXTRA_SEEDS * self.test_seeds)

    def seed_plan(self, rungs: Sequence[int]) -> SeedPlan:
        """Return the plan of how many seeds a trial gets when, with the scheduler's rungs.

        Raises:
            UserError: there can be no such plan.
        """
        from rltune.objectives.seeds import make_plan

        return make_plan(self.seeds, self.evaluate_at, rungs, self.first_seed)

    @property
    def evaluate_at(self) -> list[int]:
        """Env steps at which a trial is evaluated; the last is the budget."""
        n = min(self.evaluations, self.budget)
        return [round(self.budget * k / n) for k in range(1, n + 1)]

    @property
    def evaluation(self) -> dict[str, Any]:
        """The flags of a training like a trial: its engine, and evaluations as close as can be.

        Their distance is rounded up: rounded down, there would be one more close to the end.
        """
        return {
            "eval_freq": math.ceil(self.budget / min(self.evaluations, self.budget)),
            "eval_episodes": self.eval_episodes,
            "eval_mode": self.eval_mode,
            "engine": self.engine,
        }

    @property
    def points(self) -> list[int]:
        """Env steps at which an iteration ends: every evaluation, and points between."""
        points: list[int] = []
        start = 0
        for end in self.evaluate_at:
            pieces = math.ceil((end - start) / MAX_STEPS_PER_ITERATION)
            points += [start + round((end - start) * k / pieces) for k in range(1, pieces + 1)]
            start = end
        return points
