"""Helpers of the tests of DDPG, TD3 and SAC: transitions, and SB3's models fed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.replay import ReplayMemory


def fill(algorithm: Any, steps: int, seed: int = 0) -> ReplayMemory:
    """Return a memory of the algorithm's with random transitions, some of them last ones."""
    memory: ReplayMemory = algorithm.make_memory()
    rng = np.random.default_rng(seed)
    space, n = algorithm.spaces.observation, algorithm.spaces.n_envs

    def look() -> Any:
        if space.dtype == np.uint8:
            return rng.integers(0, 256, (n, *space.shape), np.uint8)
        return rng.normal(size=(n, *space.shape)).astype(np.float32)

    algorithm.spaces.action.seed(seed)
    obs = look()
    for _ in range(steps):
        next_obs = look()
        memory.add(
            obs=obs,
            action=np.stack([algorithm.spaces.action.sample() for _ in range(n)]),
            reward=rng.normal(size=n),
            terminated=rng.random(n) < 0.2,
            truncated=rng.random(n) < 0.1,
            next_obs=next_obs,
            valid=np.ones(n, np.bool_),
        )
        obs = next_obs
    return memory


class Fixed:
    """A memory that gives the batches that it was given, one after the other."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = iter(batches)

    def sample(self, *_: Any, **__: Any) -> Batch:
        return next(self.batches)


class FixedForSB3(Fixed):
    """The same for a model of SB3's, whose actions are in [-1, 1]."""

    def __init__(self, batches: list[Batch], scale: Any) -> None:
        super().__init__(batches)
        self.scale = scale

    def sample(self, *_: Any, **__: Any) -> Any:
        from stable_baselines3.common.type_aliases import ReplayBufferSamples

        batch = next(self.batches)
        return ReplayBufferSamples(
            observations=batch.obs,
            actions=self.scale.to_nets(batch.action),
            next_observations=batch.next_obs,
            dones=(batch.discount == 0).float().unsqueeze(1),
            rewards=batch.reward.unsqueeze(1),
        )


def copy_from_sb3(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for own, other in pairs:
            own.copy_(other)


def assert_all_close(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for own, other in pairs:
        torch.testing.assert_close(own.detach(), other.detach(), atol=2e-6, rtol=1e-5)


def critic_pairs(ours: Any, theirs: Any, name: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the parameters of our critics and of SB3's, in pairs."""
    own, other = getattr(ours.nets, f"{name}").state_dict(), theirs.state_dict()
    layers = {"0.0": "0", "0.2": "2", "1": "4"}
    n_critics = len(ours.nets.critics.networks)
    names = [
        (f"networks.{i}.{a}.{p}", f"qf{i}.{b}.{p}")
        for i in range(n_critics)
        for a, b in layers.items()
        for p in ("weight", "bias")
    ]
    assert len(names) == len(own) == len(other)
    return [(own[a], other[b]) for a, b in names]
