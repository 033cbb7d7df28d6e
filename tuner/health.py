"""Stop rules: whether a trial of an RL agent is still worth its time. Pure Python, no Ray.

The driver feeds every row of a running trial. A rule needs the same sign in each of a trial's last
rows, over several evaluations and a part of the budget, and a policy that is no better than at the
trial's beginning. Both are there against false alarms: the entropy of a solved task is near 0, the
values explain nothing where all returns are equal, and returns stay at their floor for long where
rewards are sparse. Whoever learns is left to the scheduler.

What a rule says is the trial's reason:

    diverged: exploding ...    FAIL: the values left all that returns can be
    out of memory: ...         FAIL: the machine is almost full, and this trial takes the most
    entropy collapse: ...      PRUNED: the policy has ceased to try anything
    KL blow-up: ...            PRUNED: every update throws the policy away
    dead value function: ...   PRUNED: the values explain nothing of returns that differ
    return frozen: ...         PRUNED: every evaluation is the same one, below the beginning
    throughput collapse: ...   PRUNED: little of its speed is left, while other trials keep theirs

(A loss that is NaN or infinite ends a trial in the agent: "diverged: non-finite ...".)

Everything is decided from rows that the history keeps, so a search that was killed decides like one
that was not (`Health.restore`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rltune.history import HISTORY_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from gymnasium import spaces
    from rltune.spec import SearchSpec

FIRST_EPISODES = 10  # the trial's beginning, with which its policy is compared
# What a metric is called by our agents, and by RLlib's.
ENTROPY = ("entropy",)
KL = ("approx_kl", "kl", "mean_kl_loss")
EXPLAINED_VARIANCE = ("explained_variance", "vf_explained_var")
SQUARED_ERRORS = ("value_loss", "q_loss", "critic_loss", "vf_loss", "qf_loss")
VALUES = ("q_value", "qf_mean")

# How far off the values may be: in units of the largest return of an episode so far.
EXPLODING = 1000.0
# Of the entropy of a uniform policy; for a continuous action, of half of its range as a deviation.
COLLAPSED = 0.01
LARGEST_KL = 1.0  # nats; a usual update takes some hundredths
LEAST_EXPLAINED = 0.01
# A part of the trial's own median speed; for so many rows, and so many seconds.
SLOW, SLOW_ROWS, SLOW_SECONDS = 0.05, 3, 60.0
# Of the machine; Ray kills a worker at 0.95, and not always the right one.
FULL = 0.92
GROWN = 1.25  # how much larger than after its first row a trial is that fills it


# The kind of a reason, and the state in which it leaves the trial.
STATES = {
    "out of memory": "FAIL",
    "diverged": "FAIL",
    "entropy collapse": "PRUNED",
    "KL blow-up": "PRUNED",
    "dead value function": "PRUNED",
    "return frozen": "PRUNED",
    "throughput collapse": "PRUNED",
}


class Stop(NamedTuple):
    """How a trial ends: the study's state, and the reason."""

    state: str
    reason: str


@dataclass(frozen=True)
class Seen:
    """A row of a trial, and in short what the training episodes that ended in it returned."""

    row: dict[str, Any]
    first: tuple[float, ...]  # no more than `FIRST_EPISODES`
    lowest: float
    highest: float
    mean: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any], returns: Collection[float]) -> Seen:
        """Return it without what the row lacks: a history that is read has NaN there."""
        known = {name: v for name, v in row.items() if v is not None and v == v}
        mean = math.fsum(returns) / len(returns) if returns else None
        low, high = min(returns, default=0.0), max(returns, default=0.0)
        return cls(known, tuple(returns)[:FIRST_EPISODES], low, high, mean)

    @property
    def env_steps(self) -> int:
        """Of the trial, at the end of the row."""
        return int(self.row["env_steps"])

    @property
    def learned(self) -> bool:
        """Whether the agent was updated in this row: it has metrics of its own then."""
        return any(name not in HISTORY_COLUMNS for name in self.row)


@dataclass
class Trial:
    """What is known about a running trial."""

    rows: list[Seen] = field(default_factory=list)

    def add(self, row: Mapping[str, Any], returns: Collection[float]) -> None:
        """Take a row; one that comes again, after a retry, undoes those that followed it."""
        while self.rows and self.rows[-1].row["iteration"] >= row["iteration"]:
            self.rows.pop()
        self.rows.append(Seen.of(row, returns))

    def beginning(self) -> tuple[float, float] | None:
        """Return the mean of the first training episodes, and its error; None: too few yet."""
        first: list[float] = []
        for seen in self.rows:
            first += seen.first
            if len(first) >= FIRST_EPISODES:
                first = first[:FIRST_EPISODES]
                return statistics.fmean(first), statistics.stdev(first) / math.sqrt(len(first))
        return None

    def last(self, env_steps: float, n: int, names: Collection[str]) -> list[Seen]:
        """Return the last rows; empty when there are too few yet.

        Args:
            env_steps: that they cover at least
            n: how many of them are evaluated at least, and how many have a metric at least
            names: of the metric: rollouts may be longer than rows, and rows are without it then
        """
        begun = next((i for i, seen in enumerate(self.rows) if seen.learned), len(self.rows))
        evaluated = measured = 0
        for i in range(len(self.rows) - 1, begun - 1, -1):
            before = self.rows[i - 1].env_steps if i else 0
            evaluated += "eval_return" in self.rows[i].row
            measured += any(name in self.rows[i].row for name in names)
            covered = self.rows[-1].env_steps - before
            if min(evaluated, measured) >= n and covered >= env_steps:
                return self.rows[i:]
        return []

    def is_no_better(self, rows: Iterable[Seen]) -> bool:
        """Whether no evaluation and no training of the rows was above the trial's beginning."""
        beginning = self.beginning()
        if beginning is None:
            return False
        returns = [v for seen in rows for v in (seen.row.get("eval_return"), seen.mean)]
        return all(value is None or value <= beginning[0] for value in returns)


class Health:
    """Judges the running trials of a search.

    Args:
        budget: env_steps of a full trial
        least_entropy: below it a policy has collapsed (`least_entropy`); None: nobody can tell
    """

    def __init__(self, budget: int, least_entropy: float | None = None) -> None:
        self.budget = budget
        self.least_entropy = least_entropy
        self.trials: dict[int, Trial] = {}
        self.rules = {
            "out of memory": self._out_of_memory,
            "diverged": self._exploding,
            "entropy collapse": self._entropy_collapse,
            "KL blow-up": self._kl_blow_up,
            "dead value function": self._dead_value_function,
            "return frozen": self._return_frozen,
            "throughput collapse": self._throughput_collapse,
        }

    def judge(self, number: int, row: Mapping[str, Any], returns: Collection[float]) -> Stop | None:
        """Take a trial's row, and return how the trial ends; None: it goes on.

        Args:
            number: of the trial
            row: of the history
            returns: of the training episodes that ended in it, in their order
        """
        trial = self.trials.setdefault(number, Trial())
        trial.add(row, returns)
        for kind, rule in self.rules.items():
            if found := rule(trial):
                return Stop(STATES[kind], f"{kind}: {found} at {row['env_steps']:,} env_steps")
        return None

    def forget(self, number: int) -> None:
        """Drop a trial that has ended."""
        self.trials.pop(number, None)

    def restore(
        self, history: pd.DataFrame, episodes: pd.DataFrame, trials: Collection[int]
    ) -> None:
        """Take the recorded rows of the trials that a resumed search goes on with."""
        history = history[(history["role"] == "tune") & history["trial"].isin(trials)]
        episodes = episodes[(episodes["role"] == "tune") & episodes["trial"].isin(trials)]
        groups = episodes.groupby(["trial", "iteration"])["episode_return"]
        returns = {key: values.tolist() for key, values in groups}
        for _, series in history.iterrows():
            row = {str(name): value for name, value in series.items()}
            key = (row["trial"], row["iteration"])
            self.trials.setdefault(row["trial"], Trial()).add(row, returns.get(key, []))

    def _hopeless(self, trial: Trial, names: Collection[str], share: float, n: int) -> list[Seen]:
        """Return the last rows over this share of the budget, if the policy is no good in them."""
        rows = trial.last(share * self.budget, n, names)
        return rows if trial.is_no_better(rows) else []

    # The rules: each returns what it found, or None

    def _exploding(self, trial: Trial) -> str | None:
        largest = max(max(abs(seen.lowest), abs(seen.highest)) for seen in trial.rows)
        for name in (*SQUARED_ERRORS, *VALUES):
            values = _metric(self._hopeless(trial, (name,), 0.2, 2), (name,))
            off = [v**0.5 if name in SQUARED_ERRORS else abs(v) for v in values]
            if off and min(off) > EXPLODING * max(1.0, largest) and off[-1] >= off[0]:
                return f"exploding {name}, {values[-1]:.2g}"
        return None

    def _entropy_collapse(self, trial: Trial) -> str | None:
        values = _metric(self._hopeless(trial, ENTROPY, 0.2, 3), ENTROPY)
        if not values or self.least_entropy is None or max(values) >= self.least_entropy:
            return None
        return f"{values[-1]:.2g} < {self.least_entropy:.2g} nats"

    def _kl_blow_up(self, trial: Trial) -> str | None:
        values = _metric(self._hopeless(trial, KL, 0.2, 3), KL)
        if not values or min(values) <= LARGEST_KL:
            return None
        return f"{values[-1]:.2g} > {LARGEST_KL:g} nats an update"

    def _dead_value_function(self, trial: Trial) -> str | None:
        rows = self._hopeless(trial, EXPLAINED_VARIANCE, 0.5, 4)
        values = _metric(rows, EXPLAINED_VARIANCE)
        to_explain = all(seen.mean is None or seen.lowest < seen.highest for seen in rows)
        if not values or max(values) >= LEAST_EXPLAINED or not to_explain:
            return None
        return f"explained variance {values[-1]:.2g}"

    def _return_frozen(self, trial: Trial) -> str | None:
        """Every evaluation has the same starts, so only a policy that stands still repeats one.

        At a floor where the trial began, it may as well be waiting for its first reward.
        """
        rows = self._hopeless(trial, ("eval_return",), 0.5, 5)
        found = {(s.row["eval_return"], s.row["eval_std"]) for s in rows if "eval_return" in s.row}
        beginning = trial.beginning()
        if len(found) != 1 or beginning is None:
            return None
        (value, _), (mean, error) = found.pop(), beginning
        if value >= mean - 2 * error:
            return None
        return f"{value:.6g} again and again, {mean:.6g} in the beginning,"

    def _throughput_collapse(self, trial: Trial) -> str | None:
        """Contention slows all trials; with none to compare to, nobody can tell."""
        pace = _pace(trial)
        if pace is None or pace[0] >= SLOW:
            return None
        slow = trial.rows[-SLOW_ROWS:]
        since = trial.rows[-SLOW_ROWS - 1].row
        others = [
            theirs[1]
            for other in self.trials.values()
            if other is not trial
            and other.rows[-1].row["timestamp"] > since["timestamp"]
            and (theirs := _pace(other)) is not None
        ]
        if slow[-1].row["time"] - since["time"] < SLOW_SECONDS or max(others, default=0.0) < 0.5:
            return None
        speed = slow[-1].row["env_steps_per_second"]
        return f"{speed:.3g} env_steps a second, {pace[0]:.1%} of its own median,"

    def _out_of_memory(self, trial: Trial) -> str | None:
        """Stop the largest trial before the machine is full, if trials are what fills it.

        A trial that has not grown may have got a worker that is large since an earlier one.
        """
        in_use = trial.rows[-1].row.get("memory_in_use", 0.0)
        sizes = [other.rows[-1].row.get("memory", 0.0) for other in self.trials.values()]
        own = trial.rows[-1].row.get("memory", 0.0)
        grown = own > GROWN * trial.rows[0].row.get("memory", 0.0)
        if in_use < FULL or own < max(sizes) or sum(sizes) < in_use / 2 or not grown:
            return None
        return f"the worker took {own:.0%} of a machine that was {in_use:.0%} full,"


def _metric(rows: Iterable[Seen], names: Iterable[str]) -> list[float]:
    """Return the metric, by the first name that a row has; rows without an update have none."""
    found = (next((s.row[name] for name in names if name in s.row), None) for s in rows)
    return [float(value) for value in found if value is not None]


def _pace(trial: Trial) -> tuple[float, float] | None:
    """Return the highest and the last speed of the last rows, as parts of the median before.

    Only rows with updates count: before them, an agent that explores is many times as fast.
    None: there are too few.
    """
    if not all(seen.learned for seen in trial.rows[-SLOW_ROWS - 1 :]):
        return None
    speeds = [s.row["env_steps_per_second"] for s in trial.rows if s.learned]
    if len(speeds) < 2 * SLOW_ROWS + 1:
        return None
    median = statistics.median(speeds[1:-SLOW_ROWS])
    return max(speeds[-SLOW_ROWS:]) / median, speeds[-1] / median


def least_entropy(space: spaces.Space[Any]) -> float | None:
    """Return the entropy, in nats, below which a policy in this action space tries nothing.

    Choices: `COLLAPSED` of the entropy of a uniform policy. Box: that of normal distributions with
    the deviation `COLLAPSED` of half of the ranges, ranges above 2 taken as 2: some agents act in
    [-1, 1] and scale it. None for other spaces, and without bounds.
    """
    import numpy as np
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        choices = [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        choices = [int(n) for n in space.nvec.reshape(-1)]
    elif isinstance(space, spaces.MultiBinary):
        choices = [2] * math.prod(space.shape)
    elif isinstance(space, spaces.Box) and space.is_bounded():
        deviation = COLLAPSED * np.minimum((space.high - space.low) / 2, 1.0)
        return float(np.sum(0.5 * np.log(2 * np.pi * np.e) + np.log(deviation)))
    else:
        return None
    return COLLAPSED * sum(map(math.log, choices))


def make_health(spec: SearchSpec) -> Health:
    """Return the judge of a search."""
    from rltune.agents.envs import make_env

    env = make_env(spec.env, env_kwargs=spec.env_kwargs)
    try:
        return Health(spec.budget, least_entropy(env.action_space))
    finally:
        env.close()  # type: ignore[no-untyped-call]
