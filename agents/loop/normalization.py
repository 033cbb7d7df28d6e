"""Running normalisation of observations and rewards, as SB3's VecNormalize does it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rltune.agents.config import AgentConfig
from rltune.agents.spaces import InputParts, Spaces

Array = npt.NDArray[Any]

# For the few rows of a vector step, NumPy's way to an operation takes longer than the operation. It
# is shortest where all operands are arrays of one shape, or of none, and the result has a place.
_ONE = np.array(1.0)


class _Clip:
    """Keeps values within a limit on both sides; NaN stays."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._low, self._high = np.array(-limit), np.array(limit)

    def __call__(self, values: Array) -> Array:
        clipped: Array = np.minimum(np.maximum(values, self._low), self._high)
        return clipped


class _Buffers:
    """Room to compute the statistics of rows of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.n = np.array(float(shape[0]))
        self.rows = np.empty(shape)
        self.mean = np.empty(shape[1:])
        self.var = np.empty(shape[1:])


class RunningMeanStd:
    """Mean and variance of all rows so far (Chan et al.'s parallel algorithm), in float64.

    It starts as if ``epsilon`` rows of mean 0 and variance 1 had been seen.
    """

    def __init__(self, shape: tuple[int, ...] = (), epsilon: float = 1e-4) -> None:
        self.mean = np.zeros(shape)
        self.var = np.ones(shape)
        self.count = epsilon
        self._buffers = _Buffers((1, *shape))

    def update(self, rows: Array) -> None:
        """Take in ``rows`` of shape (n, *shape)."""
        n = len(rows)
        if n == 0:
            return
        rows = rows.astype(np.float64, copy=False)
        if not self.mean.shape:
            self._update_number(rows)
            return
        if self._buffers.rows.shape != rows.shape:
            self._buffers = _Buffers(rows.shape)
        buffers = self._buffers
        deviation, mean, var = buffers.rows, buffers.mean, buffers.var
        add, multiply, divide = np.add, np.multiply, np.divide
        add.reduce(rows, axis=0, out=mean)
        divide(mean, buffers.n, mean)
        deviation[...] = mean
        np.subtract(rows, deviation, deviation)
        multiply(deviation, deviation, deviation)
        add.reduce(deviation, axis=0, out=var)
        divide(var, buffers.n, var)
        # The same as in `_update_number`, in the same order.
        total = self.count + n
        share, weight = np.array(n / total), np.array(self.count * n / total)
        delta = np.subtract(mean, self.mean, mean)
        multiply(var, buffers.n, var)
        multiply(self.var, np.array(self.count), self.var)
        add(self.var, var, self.var)
        multiply(delta, delta, var)
        multiply(var, weight, var)
        add(self.var, var, self.var)
        divide(self.var, np.array(total), self.var)
        multiply(delta, share, delta)
        add(self.mean, delta, self.mean)
        self.count = total

    def _update_number(self, rows: Array) -> None:
        n = len(rows)
        mean = np.add.reduce(rows) / n
        deviation = rows - np.array(mean)
        var = np.add.reduce(deviation * deviation) / n
        delta = mean - self.mean
        total = self.count + n
        spread = self.var * self.count + var * n + delta * delta * (self.count * n / total)
        self.mean = self.mean + delta * (n / total)
        self.var = spread / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics as tensors and a number."""
        return {
            "mean": torch.as_tensor(self.mean).clone(),
            "var": torch.as_tensor(self.var).clone(),
            "count": float(self.count),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        mean, var = state["mean"].numpy().copy(), state["var"].numpy().copy()
        if not mean.shape == var.shape == self.mean.shape:
            raise ValueError(f"statistics of shape {mean.shape}, not {self.mean.shape}")
        self.mean, self.var, self.count = mean, var, float(state["count"])


class ObservationNormalizer:
    """Brings observations to mean 0 and variance 1, clipped to ``clip``; the result is float32.

    Call `update` once per vector step with the observations to act on, and `normalize` on anything:
    it never changes the statistics, which makes it right for final observations and evaluation.
    Of vectors, the last ``n_rest`` numbers stay as they are.
    """

    def __init__(
        self, shape: tuple[int, ...], clip: float = 10.0, epsilon: float = 1e-8, n_rest: int = 0
    ) -> None:
        self._n_rest = n_rest
        self._n = shape[0] - n_rest if n_rest else 0  # how many of a vector are normalised
        self.statistics = RunningMeanStd((self._n,) if n_rest else shape)
        self._clip = _Clip(clip)
        self._epsilon = np.array(epsilon)
        self.refresh()

    def refresh(self) -> None:
        """Follow statistics that were changed from outside."""
        scale = self.statistics.var + self._epsilon
        np.sqrt(scale, scale)
        self._scale: Array = np.divide(_ONE, scale, scale)

    def update(self, obs: Array) -> None:
        """Take in the observations (n_envs, ...) of one vector step."""
        self.statistics.update(obs[:, : self._n] if self._n_rest else obs)
        self.refresh()

    def normalize(self, obs: Array) -> npt.NDArray[np.float32]:
        """Return the normalised observations; any leading axes."""
        if self._n_rest:
            first, rest = obs[..., : self._n], obs[..., self._n :]
            return np.concatenate([self._scaled(first), rest], -1, dtype=np.float32)
        return self._scaled(obs)

    def _scaled(self, obs: Array) -> npt.NDArray[np.float32]:
        scaled = obs.astype(np.float64)
        rows = np.empty_like(scaled)
        rows[...] = self.statistics.mean
        np.subtract(scaled, rows, scaled)
        rows[...] = self._scale
        np.multiply(scaled, rows, scaled)
        return self._clip(scaled).astype(np.float32)

    def constants(self) -> tuple[Array, Array, float]:
        """Return mean, factor and limit: ``clip((x - mean) * factor, limit)`` is normalised.

        Where mean and factor are shorter than an observation, its last numbers stay as they are.
        """
        return self.statistics.mean.copy(), self._scale.copy(), self._clip.limit

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics."""
        return self.statistics.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave; older ones also speak of what stays as it is."""
        if self._n_rest:
            state = {**state, "mean": state["mean"][: self._n], "var": state["var"][: self._n]}
        self.statistics.load_state_dict(state)
        self.refresh()


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return, then clips.

    The mean stays: shifting rewards would change the task. The return is a sum over the past
    (``return = gamma * return + reward``), begun anew where an episode ended.
    """

    def __init__(
        self, n_envs: int, gamma: float, clip: float = 10.0, epsilon: float = 1e-8
    ) -> None:
        self.statistics = RunningMeanStd()
        self._returns: Array = np.zeros(n_envs)
        self._gamma = np.array(gamma)
        self._clip = _Clip(clip)
        self._epsilon = epsilon

    def normalize(
        self, reward: Array, ended: npt.NDArray[np.bool_], valid: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float64]:
        """Take in the rewards (n_envs,) of one vector step and return them normalised.

        ``ended`` marks the episodes that this step ended; rows that are not ``valid`` don't count.
        """
        returns = self._returns * self._gamma
        returns += reward
        if np.count_nonzero(valid) == len(valid):
            self.statistics.update(returns)
        else:
            returns = np.where(valid, returns, self._returns)
            self.statistics.update(returns[valid])
        self._returns = returns
        if np.count_nonzero(ended):
            returns[ended] = 0.0
        scale = math.sqrt(self.statistics.var + self._epsilon)
        return self._clip(reward / np.array(scale))

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics and the running returns."""
        return {**self.statistics.state_dict(), "returns": torch.from_numpy(self._returns.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.statistics.load_state_dict(state)
        self._returns = state["returns"].numpy().copy()


class Normalizers:
    """The normalisers that a configuration asks for, over the whole training.

    Attributes:
        observations: None: observations are not normalised
        rewards: None: rewards are not normalised
    """

    def __init__(self, config: AgentConfig, spaces: Spaces) -> None:
        self.observations: ObservationNormalizer | None = None
        self.rewards: RewardNormalizer | None = None
        parts = InputParts(spaces.observation)
        if config.normalize_observations and parts.n_vector:
            shape = spaces.observation.shape
            assert shape is not None
            self.observations = ObservationNormalizer(shape, n_rest=shape[0] - parts.n_vector)
        if config.normalize_rewards:
            self.rewards = RewardNormalizer(spaces.n_envs, config.gamma)

    def learn(self, obs: Array) -> Array:
        """Return observations to act on, normalised; the running statistics take them in."""
        if self.observations is None:
            return obs
        self.observations.update(obs)
        return self.observations.normalize(obs)

    def normalize(self, obs: Array) -> Array:
        """Return normalised observations (n, ...); the statistics stay as they are."""
        return obs if self.observations is None else self.observations.normalize(obs)

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics of both, None where there is none."""
        return {
            "observations": self.observations and self.observations.state_dict(),
            "rewards": self.rewards and self.rewards.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        if self.observations is not None:
            self.observations.load_state_dict(state["observations"])
        if self.rewards is not None:
            self.rewards.load_state_dict(state["rewards"])
