"""What a search is: every choice resolved, as run.yaml holds it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY, check_eval_mode
from rltune.agents.loop.controls import Controls
from rltune.agents.registry import canonical
from rltune.common.reading import check_types, from_dict
from rltune.objectives.goals import FurtherObjectives, Goal, parse_goal
from rltune.objectives.metrics import DEFAULT, METRIC, parse_objective
from rltune.objectives.seeds import SeedPlan, judged, make_plan, parse_seeds
from rltune.runs.tracking_options import Tracking

# Tuning and test seeds never overlap (Eimer et al., ICML 2023).
FIRST_SEED = 0
FIRST_TEST_SEED = 100
EXTRA_SEEDS = 2  # times the planned test seeds, at most
DEFAULT_TRIALS = 60  # so many it takes to tell what matters from noise (docs/importances.md)
# An iteration is short enough to stop at, to watch and to save, and long enough to be worth a call.
MAX_STEPS_PER_ITERATION = 10_000


WRITTEN = {
    "sampler": "a name such as 'tpe' (what it is made with goes into sampler_options)",
    "scheduler": "a name such as 'asha' (what it is made with goes into scheduler_options)",
    "metric": "the name of a column of the history",
}


@dataclass(frozen=True, kw_only=True)
class SearchSpec(Tracking):
    """A resolved search. Times are in seconds, budgets in environment steps."""

    agent: str
    env: str
    space: dict[str, Any]
    budget: int
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    trials: int | None = DEFAULT_TRIALS
    time_limit: float | None = None
    seed: int = 0
    seeds: str | int = 1
    over_seeds: str = "iqm"
    first_seed: int = FIRST_SEED
    sampler: str = "tpe"
    sampler_options: dict[str, Any] = field(default_factory=dict)
    warm_start: list[str] = field(default_factory=list)
    scheduler: str = "asha"
    scheduler_options: dict[str, Any] = field(default_factory=dict)
    stop_rules: bool = True
    evaluations: int = 9
    eval_episodes: int = 10
    eval_mode: str = GREEDY
    objective: str = DEFAULT
    metric: str = METRIC
    against: list[str] = field(default_factory=list)
    concurrency: int | None = None
    cpus_per_trial: float = 1
    gpus_per_trial: float = 0
    retries: int = 2
    tournament: bool = True
    finalists: int = 3
    test_seeds: int = 5
    first_test_seed: int = FIRST_TEST_SEED
    device: str = "auto"
    address: str | None = None
    controls: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None  # where they came from; the run keeps a copy
    save_replay_buffer: bool = True
    report: bool = True
    defaults: dict[str, Any] = field(default_factory=dict)  # the agent's own configuration
    import_path: str = "."

    def __post_init__(self) -> None:
        check_types(self, WRITTEN)
        super().__post_init__()
        _at_least("--budget", self.budget, 1)
        if self.budget >= 1e15:
            raise UserError(f"--budget must be below 1e15, not {self.budget:g}.")
        _at_least("--evaluations", self.evaluations, 1)
        _at_least("--eval-episodes", self.eval_episodes, 1)
        _at_least("--finalists", self.finalists, 1)
        _at_least("--test-seeds", self.test_seeds, 1)
        _at_least("--seed", self.seed, 0)
        _at_least("--first-seed", self.first_seed, 0)
        _at_least("--first-test-seed", self.first_test_seed, 0)
        check_device(self.device)
        check_eval_mode(self.eval_mode)
        judged([0.0], self.over_seeds)
        _, most = parse_seeds(self.seeds)
        tune, test = range(self.first_seed, self.first_seed + most), self.tournament_seeds
        if tune[-1] >= test[0] and test[-1] >= tune[0]:
            raise UserError(
                f"seeds {tune[0]} to {tune[-1]} of the search and seeds {test[0]} to {test[-1]} of "
                "the tournament overlap: what a search was tuned on cannot test it. Give another "
                "--first-test-seed."
            )
        _at_least("--retries", self.retries, 0)
        parse_objective(self.objective)
        if self.trials is not None:
            _at_least("--trials", self.trials, 1)
        if self.concurrency is not None:
            _at_least("--concurrency", self.concurrency, 1)
        if self.trials is None and self.time_limit is None:
            raise UserError("a search needs an end: give --trials N, --time-limit 30m or both.")
        for name in ("time_limit", "cpus_per_trial"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"--{name.replace('_', '-')} must be above 0, not {value:g}.")
        if self.gpus_per_trial < 0:
            raise UserError(f"--gpus-per-trial must be 0 or more, not {self.gpus_per_trial:g}.")
        for flag, value in (("cpus", self.cpus_per_trial), ("gpus", self.gpus_per_trial)):
            if value > 1 and value != int(value):
                raise UserError(f"--{flag}-per-trial {value:g}: above 1 it must be whole.")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SearchSpec:
        """Read the specification back from run.yaml."""
        spec = from_dict(cls, data, "the spec in run.yaml")
        from_dict(Controls, spec.controls, "controls in run.yaml")
        return dataclasses.replace(spec, agent=canonical(spec.agent))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return dataclasses.asdict(self)

    @property
    def goals(self) -> list[Goal]:
        """All objectives, the first one first."""
        first = Goal(self.metric, minimize=False)  # with a minus, the negative is maximised
        return [first, *map(parse_goal, self.against)]

    def further_objectives(self) -> FurtherObjectives:
        """Return the objectives beside the first one, without values yet."""
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
        """Return who gets how many seeds when, with the scheduler's rungs; UserError: can't be."""
        return make_plan(self.seeds, self.evaluate_at, rungs, self.first_seed)

    @property
    def evaluate_at(self) -> list[int]:
        """Environment steps at which a trial is evaluated; the last one is the budget."""
        n = min(self.evaluations, self.budget)
        return [round(self.budget * k / n) for k in range(1, n + 1)]

    @property
    def evaluation(self) -> dict[str, Any]:
        """The flags of a training that is evaluated as a trial is, as often and as near as can be.

        Rounded up: rounded down, there would be one evaluation more, close to the end.
        """
        return {
            "eval_freq": math.ceil(self.budget / min(self.evaluations, self.budget)),
            "eval_episodes": self.eval_episodes,
            "eval_mode": self.eval_mode,
        }

    @property
    def points(self) -> list[int]:
        """Environment steps at which an iteration ends: every evaluation, and points between."""
        points: list[int] = []
        start = 0
        for end in self.evaluate_at:
            pieces = math.ceil((end - start) / MAX_STEPS_PER_ITERATION)
            points += [start + round((end - start) * k / pieces) for k in range(1, pieces + 1)]
            start = end
        return points


def check_device(device: str) -> None:
    """Raise UserError for what can't be the name of a device, without PyTorch."""
    if not re.fullmatch(r"auto|[a-z]+(:\d+)?", device):
        raise UserError(f"--device {device!r}: write cpu, cuda, cuda:1 or auto.")


def _at_least(flag: str, value: float, least: float) -> None:
    if value < least:
        raise UserError(f"{flag} must be at least {least}, not {value:g}.")


def parse_duration(text: str) -> float:
    """Turn "90", "90s", "30m", "2h", "1h30m" or "1d" into seconds.

    Raises:
        UserError: the text is none of these.
    """
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    rest, total = text.strip().lower(), 0.0
    try:
        while rest:
            split = next((i for i, c in enumerate(rest) if c in units), len(rest))
            total += float(rest[:split]) * units[rest[split] if split < len(rest) else "s"]
            rest = rest[split + 1 :]
    except ValueError:
        total = math.nan
    if not (total > 0 and math.isfinite(total)):
        raise UserError(f"--time-limit {text!r} is no duration; write 90s, 30m, 2h or 1h30m.")
    return total
