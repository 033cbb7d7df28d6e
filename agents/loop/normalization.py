"""Running normalisation of observations and rewards, as SB3's VecNormalize does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rltune.agents.config import AgentConfig
from rltune.agents.spaces import InputParts, Spaces

Array = npt.NDArray[Any]


class RunningMeanStd:
    """Mean and variance of all rows so far (Chan et al.'s parallel algorithm), in float64.

    It starts as if ``epsilon`` rows of mean 0 and variance 1 had been seen.
    """

    def __init__(self, shape: tuple[int, ...] = (), epsilon: float = 1e-4) -> None:
        self.mean = np.zeros(shape)
        self.var = np.ones(shape)
        self.count = epsilon

    def update(self, rows: Array) -> None:
        """Take in ``rows`` of shape (n, *shape)."""
        n = len(rows)
        if n == 0:
            return
        rows = rows.astype(np.float64, copy=False)
        mean = rows.sum(axis=0) / n
        var = ((rows - mean) ** 2).sum(axis=0) / n
        delta = mean - self.mean
        total = self.count + n
        spread = self.var * self.count + var * n + delta**2 * (self.count * n / total)
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
        self._clip = clip
        self._epsilon = epsilon
        self._refresh()

    def _refresh(self) -> None:
        self._mean = self.statistics.mean
        self._scale = 1.0 / np.sqrt(self.statistics.var + self._epsilon)

    def update(self, obs: Array) -> None:
        """Take in the observations (n_envs, ...) of one vector step."""
        self.statistics.update(obs[:, : self._n] if self._n_rest else obs)
        self._refresh()

    def normalize(self, obs: Array) -> npt.NDArray[np.float32]:
        """Return the normalised observations; any leading axes."""
        if self._n_rest:
            first, rest = obs[..., : self._n], obs[..., self._n :]
            return np.concatenate([self._scaled(first), rest], -1, dtype=np.float32)
        return self._scaled(obs)

    def _scaled(self, obs: Array) -> npt.NDArray[np.float32]:
        scaled = (obs - self._mean) * self._scale
        clipped: Array = np.minimum(np.maximum(scaled, -self._clip), self._clip)
        return clipped.astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics."""
        return self.statistics.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave; older ones also speak of what stays as it is."""
        if self._n_rest:
            state = {**state, "mean": state["mean"][: self._n], "var": state["var"][: self._n]}
        self.statistics.load_state_dict(state)
        self._refresh()


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
        self._gamma = gamma
        self._clip = clip
        self._epsilon = epsilon

    def normalize(
        self, reward: Array, ended: npt.NDArray[np.bool_], valid: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float64]:
        """Take in the rewards (n_envs,) of one vector step and return them normalised.

        ``ended`` marks the episodes that this step ended; rows that are not ``valid`` don't count.
        """
        self._returns = np.where(valid, self._returns * self._gamma + reward, self._returns)
        self.statistics.update(self._returns if valid.all() else self._returns[valid])
        self._returns[ended] = 0.0
        scaled = reward / np.sqrt(self.statistics.var + self._epsilon)
        clipped: Array = np.minimum(np.maximum(scaled, -self._clip), self._clip)
        return clipped

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
            self.rewards = RewardNormalizer(config.n_envs, config.gamma)

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
