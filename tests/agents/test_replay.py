"""Replay: what comes out is what truly happened, in every ring position and with any n."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.algorithm import Spaces
from rltune.agents.replay import ReplayMemory

GAMMA = 0.9


def make(capacity: int, n_envs: int, n_step: int = 1) -> ReplayMemory:
    box = spaces.Box(-1e9, 1e9, (2,), np.float32)
    return ReplayMemory(
        capacity, Spaces(box, spaces.Discrete(3), n_envs), (), np.int64, gamma=GAMMA, n_step=n_step
    )


class World:
    """Episodes whose observation tells (episode, step), with a log of what truly happened."""

    def __init__(self, n_envs: int, seed: int, bogus: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_envs = n_envs
        self.bogus = bogus  # a row that is no transition after each episode, as native envs have
        self.number = n_envs
        self.at = [(float(i), 0.0) for i in range(n_envs)]
        self.resetting = [False] * n_envs
        self.true: dict[tuple[float, float], tuple[float, tuple[float, float], bool, bool]] = {}

    def play(self, memory: ReplayMemory, steps: int) -> None:
        for _ in range(steps):
            rows: dict[str, list[Any]] = {
                k: [] for k in ("obs", "action", "reward", "terminated", "truncated", "next_obs")
            }
            valid = []
            for i in range(self.n_envs):
                here = self.at[i]
                reward = float(self.rng.normal())
                end = self.rng.random()
                terminated, truncated = bool(end < 0.1), bool(0.1 <= end < 0.2)
                after = (here[0], here[1] + 1)
                if self.resetting[i]:
                    terminated = truncated = False
                    valid.append(False)
                    self.resetting[i] = False
                    after = self.at[i] = (float(self.number), 0.0)
                    self.number += 1
                else:
                    valid.append(True)
                    self.true[here] = (reward, after, terminated, truncated)
                    self.at[i] = after
                    if terminated or truncated:
                        if self.bogus:
                            self.resetting[i] = True
                        else:
                            self.at[i] = (float(self.number), 0.0)
                            self.number += 1
                for name, value in zip(
                    rows, (here, 1, reward, terminated, truncated, after), strict=True
                ):
                    rows[name].append(value)
            memory.add(**{k: np.array(v) for k, v in rows.items()}, valid=np.array(valid))

    def expected(self, obs: tuple[float, float], n: int, newest: set[Any]) -> Any:
        total, factor = 0.0, 1.0
        while True:
            reward, after, terminated, truncated = self.true[obs]
            total += factor * reward
            factor *= GAMMA
            n -= 1
            if terminated:
                return total, None, 0.0
            if truncated or n == 0 or obs in newest:
                return total, after, factor
            obs = after


@pytest.mark.parametrize("bogus", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("steps", "n_envs"), [(7, 1), (20, 3), (100, 3)])
def test_samples_are_what_happened(steps: int, n_envs: int, n_step: int, bogus: bool) -> None:
    memory, world = make(60, n_envs, n_step), World(n_envs, seed=steps, bogus=bogus)
    generator = torch.Generator().manual_seed(0)
    world.play(memory, steps)
    assert len(memory) == min(steps * n_envs, 60)
    row = memory._row(np.ones(1, int))[0]
    newest = {tuple(obs.tolist()) for obs in memory.obs[row]}
    seen = set()
    for _ in range(20):
        batch = memory.sample(32, generator)
        for i in range(32):
            obs = tuple(batch.obs[i].tolist())
            seen.add(obs)
            total, after, discount = world.expected(obs, n_step, newest)
            assert float(batch.reward[i]) == pytest.approx(total, abs=1e-5)
            assert float(batch.discount[i]) == pytest.approx(discount, abs=1e-6)
            if after is not None:
                assert tuple(batch.next_obs[i].tolist()) == after
    valid = int(memory.valid[memory._row(np.arange(1, memory.steps + 1))].sum())
    assert len(seen) == valid  # every valid transition is drawn sooner or later


def test_what_is_loaded_goes_on_as_what_was_saved() -> None:
    worlds = [World(2, seed=1), World(2, seed=1)]
    memories = [make(30, 2, 3), make(30, 2, 3)]
    for world in worlds:
        world.play(memories[0] if world is worlds[0] else make(30, 2, 3), 25)
    memories[1].load_state_dict(memories[0].state_dict())
    for world, memory in zip(worlds, memories, strict=True):
        world.play(memory, 10)
    drawn = [memory.sample(64, torch.Generator().manual_seed(3)) for memory in memories]
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one, other)


def test_interrupted_episodes_end_as_time_limits() -> None:
    memory, world = make(30, 2, 3), World(2, seed=5)
    world.play(memory, 5)
    before = list(world.at)
    memory.interrupt()
    world.at = [(100.0, 0.0), (101.0, 0.0)]
    world.number = 102
    row = (memory.position - 1) % (memory.capacity + 1)
    world.play(memory, 5)
    batch = memory._gather(np.array([6, 6]), np.array([0, 1]), torch.device("cpu"))
    for i in range(2):
        if not memory.terminated[row, i] and before[i][1] > 0:
            assert tuple(batch.next_obs[i].tolist()) == before[i]
            assert float(batch.discount[i]) == pytest.approx(GAMMA)
