"""Policies on their way to actors, and what actors learn on their way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rltune.agents.algorithm import Algorithm
from rltune.agents.loop.normalization import Normalizers, RunningMeanStd

OPTIMIZERS = ("learner", "optimizer")  # how the parts of a state are called that only updates need


@dataclass(frozen=True)
class Policy:
    """What an actor acts by.

    Attributes:
        version: the updates that it has had
        state: of the algorithm, or what acts and numbers alone; None: as of the last one
        whole: whether the state is all of it, generators too, and the actor hands back its own
        acted: env steps of exploration of the whole training
        statistics: of the running normalisations, see `statistics_of`; of a whole one, their state
    """

    version: int
    state: dict[str, Any] | None
    whole: bool
    acted: int
    statistics: dict[str, Any]


def policy_of(
    algorithm: Algorithm[Any],
    normalizers: Normalizers,
    version: int,
    acted: int,
    *,
    whole: bool,
    changed: bool = True,
) -> Policy:
    """Return a policy that is independent of further updates; unless ``changed``, without state."""
    state = algorithm.state_dict() if changed else None
    if state is not None and not whole:
        state = {
            name: value
            for name, value in state.items()
            if name == algorithm.NETWORKS[0] or value is None or isinstance(value, int | float)
        }
    running = normalizers.state_dict() if whole else statistics_of(normalizers)
    return Policy(version, as_arrays(state), whole, acted, as_arrays(running))


def act_by(algorithm: Algorithm[Any], normalizers: Normalizers, policy: Policy) -> None:
    """Let an actor take over a policy; unless it is whole, its noise stays its own."""
    if policy.state is not None:
        state = as_tensors(policy.state)
        algorithm.load_state_dict(state if policy.whole else {**algorithm.state_dict(), **state})
    if policy.whole:
        normalizers.load_state_dict(as_tensors(policy.statistics))
        return
    if hasattr(algorithm, "acted"):
        algorithm.acted = policy.acted
    _begin_with(normalizers, policy.statistics)


def acting_state(algorithm: Algorithm[Any]) -> dict[str, Any]:
    """Return the parts of the state that acting may change: not networks, nor optimizers."""
    state = algorithm.state_dict()
    kept = {
        name: value
        for name, value in state.items()
        if name not in algorithm.NETWORKS and not name.endswith(OPTIMIZERS)
    }
    return dict(as_arrays(kept))


def take_acting(algorithm: Algorithm[Any], state: Mapping[str, Any]) -> None:
    """Let the learner's algorithm take over what `acting_state` gave."""
    algorithm.load_state_dict({**algorithm.state_dict(), **as_tensors(state)})


def as_arrays(value: Any) -> Any:
    """Return nested dictionaries and lists with copies of their tensors, as arrays."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, Mapping):
        return {name: as_arrays(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_arrays(part) for part in value]
    return value


def as_tensors(value: Any) -> Any:
    """Return nested dictionaries and lists with their arrays as tensors."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy() if not value.flags.writeable else value)
    if isinstance(value, Mapping):
        return {name: as_tensors(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_tensors(part) for part in value]
    return value


def statistics_of(normalizers: Normalizers) -> dict[str, Any]:
    """Return the statistics of the running normalisations: (mean, variance, count) by name."""
    return {
        name: (np.array(statistics.mean), np.array(statistics.var), statistics.count)
        for name, statistics in _running(normalizers).items()
    }


def _begin_with(normalizers: Normalizers, statistics: Mapping[str, Any]) -> None:
    """Let an actor's normalisations go on from those of the learner."""
    for name, own in _running(normalizers).items():
        if name not in statistics:
            continue
        mean, var, count = statistics[name]
        own.mean, own.var, own.count = mean.copy(), var.copy(), count
    if normalizers.observations is not None:
        normalizers.observations.refresh()


def learned_since(normalizers: Normalizers, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of the rows alone that came since `statistics_of` gave ``before``."""
    found = {}
    for name, now in _running(normalizers).items():
        mean, var, count = before[name]
        n = now.count - count
        if n <= 0:
            continue
        new = (now.mean * now.count - mean * count) / n
        spread = now.var * now.count - var * count - (new - mean) ** 2 * (count * n / now.count)
        found[name] = (new, np.maximum(spread, 0) / n, n)
    return found


def learn_from(normalizers: Normalizers, statistics: Mapping[str, Any]) -> None:
    """Let the learner's normalisations take in what `learned_since` found in an actor."""
    for name, own in _running(normalizers).items():
        if name not in statistics:
            continue
        mean, var, n = statistics[name]
        total = own.count + n
        delta = mean - own.mean
        spread = own.var * own.count + var * n + delta**2 * (own.count * n / total)
        own.mean, own.var = own.mean + delta * (n / total), spread / total
        own.count = total
    if normalizers.observations is not None:
        normalizers.observations.refresh()


def _running(normalizers: Normalizers) -> dict[str, RunningMeanStd]:
    parts = {"observations": normalizers.observations, "rewards": normalizers.rewards}
    return {name: part.statistics for name, part in parts.items() if part is not None}
