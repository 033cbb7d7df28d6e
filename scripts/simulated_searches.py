"""Simulated searches over computed learning curves: no training, no Ray, no database.

Proposals come from rltune's samplers (`rltune.samplers.proposer`), decisions from its scheduler
(`rltune.schedulers.asha`). Four trials run at once, and each takes as long as its env steps. The
first trial is the default configuration, as in a search.

There are two sets of settings. The importances were developed on `FIRST`. `SECOND` was defined
before that, with other shapes, scales and noise and with failing trials, and used at the end only.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.agents.config import config_hash
from rltune.samplers.proposer import Proposer
from rltune.schedulers.registry import make_scheduler
from rltune.space.space import Space
from rltune.stats.estimates import far_below
from rltune.study.optuna_log import silent_log

Config = dict[str, Any]
BUDGET = 9000
RUNGS = (1000, 3000, 9000)
PARTS = (0.45, 0.75, 1.0)  # of what a configuration gives in the end, at the rungs
AT_ONCE = 4


@dataclass(frozen=True, eq=False)
class Setting:
    """A function to search on.

    Attributes:
        space: its dimensions
        value: of a configuration at the whole budget, without luck; NaN: it diverges
        real: the parameters that matter; all others are dummies
        luck: standard deviation of a training's luck, which stays with it
        noise: standard deviation of each evaluation
        default: the first trial
        failing: fraction of the trials that fail whatever their configuration
        bounds: of an environment's returns
        parts: fractions of the value that a training has at the rungs
    """

    space: Mapping[str, Any]
    value: Callable[[Config], float]
    real: tuple[str, ...]
    luck: float
    noise: float
    default: Config
    failing: float = 0.0
    bounds: tuple[float, float] = (-math.inf, math.inf)
    parts: tuple[float, ...] = PARTS

    @property
    def dummies(self) -> list[str]:
        """The parameters without any influence."""
        return [name for name in self.space if name not in self.real]


@dataclass(frozen=True)
class Found:
    """A finished search: the rows of its table of trials, and all values at the rungs."""

    rows: list[dict[str, Any]]
    reports: dict[int, dict[int, float]]


def simulate(setting: Setting, sampler: str, scheduler: str, trials: int, seed: int) -> Found:
    """Run a search to its end."""
    space = Space.from_dict(dict(setting.space))
    proposer = Proposer(space, sampler, {}, seed, "maximize")
    judge = make_scheduler(scheduler, BUDGET, {})
    rng = np.random.default_rng([7, seed])
    known: list[FrozenTrial] = []
    luck: dict[int, float] = {}
    flying: list[tuple[float, int, int]] = []  # when it reaches its next rung, number, rung
    spans = np.diff([0, *RUNGS])
    clock = 0.0
    with silent_log():
        while len(known) < trials or flying:
            while len(known) < trials and len(flying) < AT_ONCE:
                trial = _ask(proposer, known, setting.default)
                luck[trial.number] = setting.luck * rng.normal()
                speed = rng.uniform(0.7, 1.3)
                heapq.heappush(flying, (clock + spans[0] * speed, trial.number, 0))
            clock, number, rung = heapq.heappop(flying)
            trial = known[number]
            config = trial.user_attrs["configuration"]
            true = setting.value(config)
            if not math.isfinite(true) or rng.random() < setting.failing / len(RUNGS):
                _end(trial, TrialState.FAIL, "diverged: the objective was nan")
                continue
            value = setting.parts[rung] * (true + luck[number]) + setting.noise * rng.normal()
            value = min(max(value, setting.bounds[0]), setting.bounds[1])
            trial.intermediate_values[RUNGS[rung]] = trial.value = value
            trial.user_attrs["attrs"] = {"seconds": RUNGS[rung] / 100, "env_steps": RUNGS[rung]}
            if rung == len(RUNGS) - 1:
                _end(trial, TrialState.COMPLETE)
            elif judge.decide(number, RUNGS[rung], value) == "stop":
                _end(trial, TrialState.PRUNED, "stopped")
            else:
                ready = clock + spans[rung + 1] * rng.uniform(0.7, 1.3)
                heapq.heappush(flying, (ready, number, rung + 1))
    reports = {trial.number: dict(trial.intermediate_values) for trial in known}
    return Found([_row(trial, space) for trial in known], reports)


def shares(setting: Setting, found: Found) -> dict[str, float]:
    """Return the true share of each parameter alone, for the values at the whole budget.

    Diverged trials, and values far below all others, count as in a search.
    """
    known = [value for values in found.reports.values() for value in values.values()]
    fence = far_below(known)
    worst = min(known) if fence is None else fence
    rng = np.random.default_rng(0)
    true = {}
    for name in setting.real:
        value = _grid(setting, name)
        luck, noise = (
            spread * rng.normal(size=value.shape) for spread in (setting.luck, setting.noise)
        )
        seen = np.clip(setting.parts[-1] * (value + luck) + noise, *setting.bounds)
        seen = np.where(np.isfinite(seen), np.maximum(seen, worst), worst)
        true[name] = float(seen.mean(1).var() / seen.var())
    return true | dict.fromkeys(setting.dummies, 0.0)


@functools.cache
def _grid(setting: Setting, name: str) -> NDArray[np.float64]:
    """Return the true values on a grid of a parameter and all others, shape (places, others)."""
    space, rng = Space.from_dict(dict(setting.space)), np.random.default_rng(1)
    others = [space.sample(rng) for _ in range(200)]
    places = [space.sample(rng)[name] for _ in range(100)]
    return np.array([[setting.value({**o, name: place}) for o in others] for place in places])


def _ask(proposer: Proposer, known: list[FrozenTrial], default: Config) -> FrozenTrial:
    space, values = proposer.space, default
    attrs: dict[str, Any] = {"origin": "default"}
    notes: dict[str, Any] = {}
    if known:
        draw = proposer.propose(known)
        assert draw is not None
        values, notes = draw.values, draw.system_attrs
        attrs = {"origin": "sampler", "proposal": draw.source}
    config = space.resolve(values)
    parameters, distributions = proposer.as_parameters(values)
    trial = create_trial(
        state=TrialState.RUNNING, params=parameters, distributions=distributions,
        system_attrs=notes,
        user_attrs={**attrs, "configuration": config, "hash": config_hash(config)},
    )  # fmt: skip
    trial.number = trial._trial_id = len(known)
    known.append(trial)
    return trial


def _end(trial: FrozenTrial, state: TrialState, reason: str = "") -> None:
    trial.state = state
    trial.user_attrs["reason"] = reason
    if state == TrialState.FAIL:
        trial.values = None


def _row(trial: FrozenTrial, space: Space) -> dict[str, Any]:
    config = trial.user_attrs["configuration"]
    return {
        "trial": trial.number,
        "state": trial.state.name,
        "reason": trial.user_attrs["reason"],
        "objective": trial.value,
        "rung": max(trial.intermediate_values, default=None),
        **{f"config.{name}": config.get(name) for name in space.dimensions},
    }


# ------------------------------------------------------------------------------------ the settings


def _numbers(*names: str) -> Config:
    return {name: {"uniform": [0.0, 1.0]} for name in names}


def _hill(config: Config) -> float:
    return 4 - 9 * (float(config["x"]) - 0.65) ** 2


def _pair(config: Config) -> float:
    a, b = config["a"], config["b"]
    return float(4 * math.exp(-5 * ((a - 0.3) ** 2 + (b - 0.7) ** 2)) + 2 * a * b)


_MIDDLE = dict.fromkeys(("x", "d1", "d2", "d3"), 0.5)
_HILL = _numbers("x", "d1", "d2", "d3")
FIRST = {
    "hill": Setting(_HILL, _hill, ("x",), 0.1, 0.1, _MIDDLE),
    "noisy hill": Setting(_HILL, _hill, ("x",), 0.4, 0.4, _MIDDLE),
    "pair": Setting(
        _numbers("a", "b", "d1", "d2", "d3"), _pair, ("a", "b"), 0.15, 0.15,
        dict.fromkeys(("a", "b", "d1", "d2", "d3"), 0.5),
    ),
    "nothing": Setting(_HILL, lambda config: 3.0, (), 0.5, 0.5, _MIDDLE),
}  # fmt: skip

_AGENT = {
    "learning_rate": {"log": [1e-5, 1e-1]},
    "gamma": {"one_minus_log": [0.9, 0.9999]},
    "n_steps": {"pow2": [32, 1024]},
    "activation": {"choice": ["tanh", "relu", "elu"]},
    "clip_range": {"uniform": [0.1, 0.4]},
}
_DEFAULT = {
    "learning_rate": 3e-4, "gamma": 0.99, "n_steps": 128, "activation": "tanh", "clip_range": 0.2,
}  # fmt: skip


def _log_quadratic(config: Config) -> float:
    """Returns of 20 to 500, skewed: most of the range learns nothing; above 0.03 trials diverge."""
    rate = math.log10(config["learning_rate"])
    return math.nan if rate > -1.5 else 20 + 480 * max(0.0, 1 - ((rate + 2.7) / 1.6) ** 2)


def _threshold(config: Config) -> float:
    """Returns of -100 with gamma above 0.985, of -400 otherwise."""
    return -100.0 if config["gamma"] > 0.985 else -400.0


def _monotone(config: Config) -> float:
    """More steps are better, with a decreasing gain; and one activation is better."""
    bits = math.log2(config["n_steps"]) - 5
    return 10 * (1 - math.exp(-0.6 * bits)) + 4 * (config["activation"] == "relu")


_CONDITIONAL = {
    **_AGENT,
    "optimizer": {"choice": ["adam", "sgd"]},
    "momentum": {"uniform": [0.0, 1.0], "when": {"optimizer": "sgd"}},
}
SECOND = {
    "log-quadratic": Setting(
        _AGENT, _log_quadratic, ("learning_rate",), 60.0, 30.0, _DEFAULT, bounds=(0.0, 500.0),
        parts=(0.2, 0.6, 1.0),
    ),
    "threshold": Setting(
        _AGENT, _threshold, ("gamma",), 60.0, 40.0, _DEFAULT, failing=0.1,
        bounds=(-500.0, -50.0), parts=(1.1, 1.0, 1.0),
    ),
    "monotone": Setting(
        _CONDITIONAL, _monotone, ("n_steps", "activation"), 0.7, 0.5,
        {**_DEFAULT, "optimizer": "adam"}, parts=(0.6, 0.8, 1.0),
    ),
    "nothing, failing": Setting(
        _CONDITIONAL, lambda config: 100.0, (), 30.0, 10.0, {**_DEFAULT, "optimizer": "adam"},
        failing=0.15, bounds=(0.0, 120.0),
    ),
}  # fmt: skip
SETTINGS = FIRST | SECOND
