"""Segments: what comes out is what went in, in every ring position and after a restore."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.memory.segments import SegmentMemory, Segments
from rltune.agents.spaces import Spaces

N_ENVS, N_STEPS, N_ACTIONS = 3, 4, 5
CPU = torch.device("cpu")


def make(capacity: int = 40, observation: Any = None) -> SegmentMemory:
    box = spaces.Box(-1e9, 1e9, (2,), np.float32) if observation is None else observation
    return SegmentMemory(
        capacity, N_STEPS, Spaces(box, spaces.Discrete(N_ACTIONS), N_ENVS), N_ACTIONS
    )


class World:
    """Random steps whose observation tells (env, step), with a log of what truly happened."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.time = 0
        self.true: dict[tuple[int, int], Any] = {}

    def step(self, memory: SegmentMemory) -> None:
        rng, t = self.rng, self.time
        ends = rng.random(N_ENVS)
        rows = {
            "obs": self.obs(t),
            "action": rng.integers(N_ACTIONS, size=N_ENVS),
            "reward": rng.normal(size=N_ENVS),
            "terminated": ends < 0.2,
            "truncated": (ends > 0.1) & (ends < 0.4),  # some are both
            "valid": rng.random(N_ENVS) < 0.8,
        }
        ended = rows["terminated"] | rows["truncated"]
        rows["next_obs"] = np.where(ended[:, None], -self.obs(t), self.obs(t + 1))
        memory.add(**rows)
        for env in range(N_ENVS):
            self.true[env, t] = {name: value[env] for name, value in rows.items()}
        self.time += 1

    def obs(self, t: int) -> Any:
        return np.stack([[env, t + 1] for env in range(N_ENVS)]).astype(np.float32)

    def rollouts(self, memory: SegmentMemory, n: int) -> None:
        for _ in range(n):
            for _ in range(N_STEPS):
                self.step(memory)
            memory.keep(self.mu(memory.fresh_obs))

    def mu(self, obs: Any) -> Any:
        return obs[..., 1:] + 0.1 * np.arange(N_ACTIONS)

    def check(self, segments: Segments) -> set[int]:
        """Compare all with what happened; returns the rollouts that were seen."""
        finals = dict(zip(segments.final_index.tolist(), segments.final_obs, strict=True))
        seen = set()
        for env in range(N_ENVS):
            assert set(segments.obs[env, :-1, 0].tolist()) == {env}
            times = (segments.obs[env, :-1, 1] - 1).long().tolist()
            assert times == list(range(times[0], times[0] + N_STEPS))
            assert times[0] % N_STEPS == 0
            seen.add(times[0] // N_STEPS)
            for i, t in enumerate(times):
                true = self.true[env, t]
                assert segments.action[env, i] == true["action"]
                assert segments.reward[env, i] == np.float32(true["reward"])
                assert segments.terminated[env, i] == true["terminated"]
                assert segments.valid[env, i] == true["valid"]
                np.testing.assert_array_equal(
                    segments.mu[env, i], np.float32(self.mu(true["obs"][None]))[0]
                )
                limit = true["truncated"] and not true["terminated"]
                assert segments.cut[env, i] == (limit and i < N_STEPS - 1)
                if segments.cut[env, i]:
                    np.testing.assert_array_equal(finals.pop(env * N_STEPS + i), true["next_obs"])
            np.testing.assert_array_equal(segments.obs[env, -1], true["next_obs"])
        assert not finals
        return seen


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 11])
def test_samples_are_what_happened(n: int) -> None:
    world, memory = World(n), make()  # three rollouts are kept
    world.rollouts(memory, n)
    assert len(memory) == min(n, 3) * N_ENVS * N_STEPS
    assert memory.full == (n >= 3)
    assert world.check(memory.newest(CPU)) == {n - 1}
    generator = torch.Generator().manual_seed(0)
    seen = set().union(*(world.check(memory.sample(generator)) for _ in range(40)))
    assert seen == set(range(max(0, n - 3), n))


def test_environments_are_sampled_apart() -> None:
    world, memory = World(), make()
    world.rollouts(memory, 3)
    generator = torch.Generator().manual_seed(0)
    assert any(len(world.check(memory.sample(generator))) > 1 for _ in range(5))


def test_capacity_is_in_transitions() -> None:
    assert make(36).capacity == 3
    assert make(47).capacity == 3
    assert make(1).capacity == 1


def test_a_rollout_is_kept_when_it_is_full() -> None:
    world, memory = World(), make()
    world.step(memory)
    with pytest.raises(RuntimeError, match="not full yet"):
        memory.keep(world.mu(memory.fresh_obs))
    for _ in range(3):
        world.step(memory)
    with pytest.raises(RuntimeError, match="keep it first"):
        world.step(memory)


@pytest.mark.parametrize("rollouts", [0, 2, 3, 5])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_restored_memory_goes_on_alike(rollouts: int, steps: int) -> None:
    world, memory = World(), make()
    world.rollouts(memory, rollouts)
    for _ in range(steps):
        world.step(memory)
    again = make()
    again.load_state_dict(memory.state_dict())
    twice = make()
    twice.load_state_dict(again.state_dict())

    state, copies = world.rng.bit_generator.state, []
    for each in (memory, twice):
        world.rng.bit_generator.state = state
        world.time = N_STEPS * rollouts + steps
        for _ in range(N_STEPS - steps):
            world.step(each)
        each.keep(world.mu(each.fresh_obs))
        world.rollouts(each, 2)
        generator = torch.Generator().manual_seed(1)
        copies.append([each.sample(generator) for _ in range(10)])
        world.check(each.newest(CPU))
    for ours, theirs in zip(*copies, strict=True):
        world.check(ours)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_an_unfinished_rollout_can_be_forgotten() -> None:
    world, memory = World(), make()
    world.rollouts(memory, 2)
    for _ in range(3):
        world.step(memory)
    memory.interrupt()
    world.time = 2 * N_STEPS
    world.rollouts(memory, 1)
    assert world.check(memory.newest(CPU)) == {2}
    assert all(key[0] < 3 for key in memory.final_obs)


def test_images_are_kept_as_bytes() -> None:
    memory = make(observation=spaces.Box(0, 255, (1, 4, 4), np.uint8))
    never = np.zeros(N_ENVS, np.bool_)
    for t in range(N_STEPS):
        memory.add(
            obs=np.full((N_ENVS, 1, 4, 4), t, np.uint8),
            action=np.zeros(N_ENVS, np.int64),
            reward=np.zeros(N_ENVS),
            terminated=never,
            truncated=never | (t == 1),
            next_obs=np.full((N_ENVS, 1, 4, 4), 100 + t, np.uint8),
            valid=~never,
        )
    memory.keep(np.full((N_ENVS, N_STEPS, N_ACTIONS), 0.2, np.float32))
    segments = memory.newest(CPU)
    assert segments.obs.dtype == segments.final_obs.dtype == torch.uint8
    assert segments.obs[0, :, 0, 0, 0].tolist() == [0, 1, 2, 3, 103]
    assert segments.final_obs[:, 0, 0, 0].tolist() == [101] * N_ENVS


def test_a_rollout_that_ends_early_is_bootstrapped_there() -> None:
    world, memory = World(3), make()
    world.rollouts(memory, 1)
    world.step(memory)
    world.step(memory)
    memory.end_rollout()
    memory.keep(world.mu(memory.fresh_obs))
    segments = memory.newest(CPU)
    finals = dict(zip(segments.final_index.tolist(), segments.final_obs, strict=True))
    assert not segments.valid[:, 2:].any()
    for env in range(N_ENVS):
        for i in (0, 1):
            true = world.true[env, N_STEPS + i]
            assert segments.valid[env, i] == true["valid"]
            cut = not true["terminated"] and (i == 1 or true["truncated"])
            assert segments.cut[env, i] == cut
            if cut:
                np.testing.assert_array_equal(finals[env * N_STEPS + i], true["next_obs"])
    world.time = 2 * N_STEPS
    world.rollouts(memory, 1)
    world.check(memory.newest(CPU))
