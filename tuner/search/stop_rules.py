"""Stop rules: end a running trial of an RL agent that has diverged or has stopped learning.

The driver feeds every row of a running trial. A rule needs the same sign in each of a trial's last
rows, over several evaluations and a part of the budget, and a policy that is no better than at the
trial's beginning. Both are there against false alarms: the entropy of a solved task is near 0, the
values explain nothing where all returns are equal, and returns stay at their floor for long where
rewards are sparse. A trial that learns is left to the scheduler.

The finding of a rule is the trial's reason:

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
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rltune.agents.envs.suite import environments
from rltune.search.training_rows import TrainingRows, TrialRow
from rltune.study.reasons import STATES

if TYPE_CHECKING:
    import pandas as pd
    from gymnasium import spaces
    from rltune.runs.search_spec import SearchSpec

SeedKey = tuple[int, int]  # number of the trial, and seed

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
MEDIAN_ROWS = 50
# Of the machine; Ray kills a worker at 0.95, and not always the right one.
FULL = 0.92
GROWN = 1.25  # how much larger than after its first row a trial is that fills it


class Stop(NamedTuple):
    """The end of a trial: the study's state, and the reason."""

    state: str
    reason: str


class Health:
    """Applies the stop rules to the running trials of a search.

    Args:
        budget: env steps of a whole budget
        least_entropy: below it a policy has collapsed (`least_entropy`); None: unknown
    """

    def __init__(self, budget: int, least_entropy: float | None = None) -> None:
        self.budget = budget
        self.least_entropy = least_entropy
        self.trials: dict[SeedKey, TrainingRows] = {}
        self.rules = {
            "out of memory": self._out_of_memory,
            "diverged": self._exploding,
            "entropy collapse": self._entropy_collapse,
            "KL blow-up": self._kl_blow_up,
            "dead value function": self._dead_value_function,
            "return frozen": self._return_frozen,
            "throughput collapse": self._throughput_collapse,
        }

    def judge(
        self, key: SeedKey, row: Mapping[str, Any], returns: Collection[float]
    ) -> Stop | None:
        """Take a training's row; return the verdict that ends its trial, or None if it goes on.

        Args:
            key: number of the trial, and seed
            row: of the history
            returns: of the training episodes that ended in it, in their order
        """
        trial = self.trials.setdefault(key, TrainingRows())
        trial.add(row, returns)
        for kind, rule in self.rules.items():
            if found := rule(trial):
                return Stop(STATES[kind], f"{kind}: {found} at {row['env_steps']:,} env_steps")
        return None

    def forget(self, number: int) -> None:
        """Drop a trial that has ended."""
        for key in [key for key in self.trials if key[0] == number]:
            del self.trials[key]

    def restore(
        self, history: pd.DataFrame, episodes: pd.DataFrame, trials: Collection[int]
    ) -> None:
        """Take the recorded rows of the trials that a resumed search goes on with."""
        history = history[(history["role"] == "tune") & history["trial"].isin(trials)]
        episodes = episodes[(episodes["role"] == "tune") & episodes["trial"].isin(trials)]
        groups = episodes.groupby(["trial", "seed", "iteration"])["episode_return"]
        returns = {key: values.tolist() for key, values in groups}
        for _, series in history.iterrows():
            row = {str(name): value for name, value in series.items()}
            key = (row["trial"], row["seed"])
            ended = returns.get((*key, row["iteration"]), [])
            self.trials.setdefault(key, TrainingRows()).add(row, ended)

    # The rules: each returns what it found, or None

    def _exploding(self, trial: TrainingRows) -> str | None:
        limit = EXPLODING * max(1.0, trial.rows[-1].largest)

        def is_bad(seen: TrialRow, value: float) -> bool:
            return abs(value) > limit

        def is_bad_square(seen: TrialRow, value: float) -> bool:
            return value > limit * limit

        for name in (*SQUARED_ERRORS, *VALUES):
            judge = is_bad_square if name in SQUARED_ERRORS else is_bad
            values = trial.hopeless((name,), judge, 0.2 * self.budget, 2)
            if values and abs(values[-1]) >= abs(values[0]):
                return f"exploding {name}, {values[-1]:.2g}"
        return None

    def _entropy_collapse(self, trial: TrainingRows) -> str | None:
        least = self.least_entropy
        if least is None:
            return None
        values = trial.hopeless(ENTROPY, lambda _, v: v < least, 0.2 * self.budget, 3)
        return f"{values[-1]:.2g} < {least:.2g} nats" if values else None

    def _kl_blow_up(self, trial: TrainingRows) -> str | None:
        values = trial.hopeless(KL, lambda _, v: v > LARGEST_KL, 0.2 * self.budget, 3)
        return f"{values[-1]:.2g} > {LARGEST_KL:g} nats an update" if values else None

    def _dead_value_function(self, trial: TrainingRows) -> str | None:
        def is_bad(seen: TrialRow, value: float) -> bool:
            return value < LEAST_EXPLAINED and (seen.varied or seen.mean is None)

        values = trial.hopeless(EXPLAINED_VARIANCE, is_bad, 0.5 * self.budget, 4)
        return f"explained variance {values[-1]:.2g}" if values else None

    def _return_frozen(self, trial: TrainingRows) -> str | None:
        """Every evaluation has the same starts, so only a policy that stands still repeats one.

        One with as many episodes, that is. At a floor where the trial began, it may as well be
        waiting for its first reward.
        """
        last, beginning = trial.rows[-1].row, trial.beginning()
        if beginning is None or "eval_return" not in last:
            return None
        mean, error = beginning
        latest: dict[int, tuple[float, float]] = {}  # evaluation of so many episodes

        def is_bad(seen: TrialRow, value: float) -> bool:
            found = value, seen.row["eval_std"]
            same = latest.setdefault(seen.row.get("eval_episodes", 0), found) == found
            return same and value < mean - 2 * error

        values = trial.hopeless(("eval_return",), is_bad, 0.5 * self.budget, 5)
        return f"{values[-1]:.6g} again and again, {mean:.6g} at first," if values else None

    def _throughput_collapse(self, trial: TrainingRows) -> str | None:
        """Contention slows all trials; with none to compare with, nothing can be said."""
        pace = _pace(trial)
        if pace is None or pace[0] >= SLOW:
            return None
        slow = trial.rows[-SLOW_ROWS:]
        since = trial.rows[-SLOW_ROWS - 1].row
        others = [
            theirs[1]
            for other in self._on_node_of(trial)
            if other is not trial
            and other.rows[-1].row["timestamp"] > since["timestamp"]
            and (theirs := _pace(other)) is not None
        ]
        if slow[-1].row["time"] - since["time"] < SLOW_SECONDS or max(others, default=0.0) < 0.5:
            return None
        speed = slow[-1].row["env_steps_per_second"]
        return f"{speed:.3g} env_steps a second, {pace[0]:.1%} of its own median,"

    def _out_of_memory(self, trial: TrainingRows) -> str | None:
        """Stop the largest trial before the machine is full, if trials are what fills it.

        A trial that has not grown may have got a worker that is large since an earlier one.
        """
        in_use = trial.rows[-1].row.get("memory_in_use", 0.0)
        if in_use < FULL:
            return None
        beside = self._on_node_of(trial)
        sizes = [other.rows[-1].row.get("memory", 0.0) for other in beside]
        own = trial.rows[-1].row.get("memory", 0.0)
        grown = own > GROWN * trial.rows[0].row.get("memory", 0.0)
        if own < max(sizes) or sum(sizes) < in_use / 2 or not grown:
            return None
        return f"the worker took {own:.0%} of a machine that was {in_use:.0%} full,"

    def _on_node_of(self, trial: TrainingRows) -> list[TrainingRows]:
        """Return the trials, this one among them, that share a machine with it."""
        node = trial.rows[-1].row.get("node")
        return [other for other in self.trials.values() if other.rows[-1].row.get("node") == node]


def _pace(trial: TrainingRows) -> tuple[float, float] | None:
    """Return the highest and the last speed of the last rows, as parts of the median before.

    Only rows with updates count: before them, an agent that explores is many times as fast.
    None: there are too few.
    """
    rows = trial.rows[-MEDIAN_ROWS:]
    if not all(seen.learned for seen in rows[-SLOW_ROWS - 1 :]):
        return None
    speeds = [seen.row["env_steps_per_second"] for seen in rows if seen.learned]
    if len(speeds) < 2 * SLOW_ROWS + 1:
        return None
    median = statistics.median(speeds[:-SLOW_ROWS])
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
    """Return the stop rules of a search."""
    from rltune.agents.envs.vector import make_env

    least = []
    for name in environments(spec.env):
        env = make_env(name, env_kwargs=spec.env_kwargs)
        least.append(least_entropy(env.action_space))
        env.close()  # type: ignore[no-untyped-call]
    # What several environments report is the mean over them.
    known = [entropy for entropy in least if entropy is not None]
    return Health(spec.budget, sum(known) / len(known) if len(known) == len(least) else None)
