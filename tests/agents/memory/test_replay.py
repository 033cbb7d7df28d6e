"""Replay: what comes out is what truly happened, in every ring position and with any n."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.errors import UserError
from rltune.agents.machine.memory import free_memory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.spaces import AugmentedBox, Spaces

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
    newest = {tuple(obs.tolist()) for obs in memory.observations.frames[row]}
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
    for column, other in zip(*drawn, strict=True):
        assert column is other is None or torch.equal(column, other)


def test_interrupted_episodes_end_as_time_limits() -> None:
    memory, world = make(30, 2, 3), World(2, seed=5)
    world.play(memory, 5)
    before = list(world.at)
    memory.interrupt()
    world.at = [(100.0, 0.0), (101.0, 0.0)]
    world.number = 102
    row = (memory.position - 1) % memory.n_rows
    world.play(memory, 5)
    batch = memory._gather(np.array([6, 6]), np.array([0, 1]), torch.device("cpu"))
    for i in range(2):
        if not memory.terminated[row, i] and before[i][1] > 0:
            assert tuple(batch.next_obs[i].tolist()) == before[i]
            assert float(batch.discount[i]) == pytest.approx(GAMMA)


# ------------------------------------------------------------------------------------------- images

SHAPE = (4, 5, 6)  # two frames of two channels, or four of one


def images(capacity: int, n_frames: int | None, n_envs: int = 2, n_step: int = 1) -> ReplayMemory:
    box = spaces.Box(0, 255, SHAPE, np.uint8)
    return ReplayMemory(
        capacity,
        Spaces(box, spaces.Discrete(3), n_envs),
        (),
        np.int64,
        gamma=GAMMA,
        n_step=n_step,
        n_frames=n_frames,
    )


class Stacks:
    """Stacks of random frames with every kind of end and of beginning."""

    def __init__(self, n_frames: int, n_envs: int = 2, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_frames = n_frames
        self.channels = SHAPE[0] // n_frames
        self.obs = np.stack([self._begin() for _ in range(n_envs)])

    def _frames(self, n: int) -> Any:
        return self.rng.integers(0, 256, (n * self.channels, *SHAPE[1:]), np.uint8)

    def _begin(self) -> Any:
        kind = self.rng.integers(3)
        if kind == 0:  # as gymnasium pads: the first frame over and over
            return np.tile(self._frames(1), (self.n_frames, 1, 1))
        if kind == 1:  # with zeros
            padding = np.zeros((SHAPE[0] - self.channels, *SHAPE[1:]), np.uint8)
            return np.concatenate([padding, self._frames(1)])
        return self._frames(self.n_frames)

    def step(self) -> dict[str, Any]:
        n = len(self.obs)
        end = self.rng.random(n)
        frames = np.stack([self._frames(1) for _ in range(n)])
        next_obs = np.concatenate([self.obs[:, self.channels :], frames], 1)
        next_obs[end > 0.95] = self.rng.integers(0, 256, SHAPE, np.uint8)  # no continuation
        step = {
            "obs": self.obs,
            "action": self.rng.integers(0, 3, n),
            "reward": self.rng.normal(size=n),
            "terminated": end < 0.2,
            "truncated": (end >= 0.2) & (end < 0.35),
            "next_obs": next_obs,
            "valid": self.rng.random(n) < 0.9,
        }
        self.obs = next_obs.copy()
        for i in np.flatnonzero(end < 0.35):
            if end[i] > 0.1:  # otherwise a life was lost, and the stack goes on
                self.obs[i] = self._begin()
        return step


def play(stacks: Stacks, memories: list[ReplayMemory], steps: int) -> None:
    for _ in range(steps):
        step = stacks.step()
        for memory in memories:
            memory.add(**step)


@pytest.mark.parametrize("n_frames", [2, 4, None])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("steps", [1, 6, 10, 13, 57])
def test_rebuilt_stacks_are_those_that_were_seen(
    n_frames: int | None, n_step: int, steps: int
) -> None:
    rebuilt, whole = images(20, n_frames, n_step=n_step), images(20, 1, n_step=n_step)
    stacks = Stacks(n_frames or 4, seed=steps)
    assert rebuilt.observations.frames.shape[2] == stacks.channels
    play(stacks, [rebuilt, whole], steps)
    for _ in range(3):
        for age in range(1, rebuilt.steps + 1):
            where = np.full(2, age), np.arange(2), torch.device("cpu")
            for ours, theirs in zip(rebuilt._gather(*where), whole._gather(*where), strict=True):
                assert ours is theirs is None or torch.equal(ours, theirs)
        # What was saved is saved exactly, and goes on in the same way.
        again = images(20, n_frames, n_step=n_step)
        again.load_state_dict(rebuilt.state_dict())
        rebuilt = again
        rebuilt.interrupt()
        whole.interrupt()
        stacks.obs = np.stack([stacks._begin() for _ in range(2)])
        play(stacks, [rebuilt, whole], 4)


def test_each_frame_is_stored_once() -> None:
    memory, stacks = images(400, 4, n_envs=1), Stacks(4, n_envs=1)
    play(stacks, [memory], 1000)
    assert memory.observations.frames.nbytes == 404 * 30
    assert all(key[0] < memory.n_rows for key in memory.observations.whole)
    assert len(memory.observations.whole) == memory.observations.odd.sum() < 150
    assert len(memory.final_obs) == memory.truncated.sum() < 150
    memory = images(400, None, n_envs=1)
    black = np.zeros((1, *SHAPE), np.uint8)
    bright = black + 255
    for i in range(500):  # begins as gymnasium begins: nothing is kept beside
        obs = np.concatenate([black[:, i % 9 :], bright[:, : i % 9]], 1)
        memory.add(
            obs=obs[:, :4],
            action=np.zeros(1, np.int64),
            reward=np.zeros(1),
            terminated=np.array([i % 9 == 8]),
            truncated=np.zeros(1, np.bool_),
            next_obs=np.concatenate([black[:, (i + 1) % 9 :], bright[:, : (i + 1) % 9]], 1)[:, :4],
            valid=np.ones(1, np.bool_),
        )
    assert not memory.observations.whole


def test_images_are_compressed_and_vectors_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltune.agents.memory.pixels._CHUNK", 1000)  # many parts
    memory = images(200, 4)
    step = Stacks(4).step()
    for _ in range(150):
        memory.add(**{**step, "next_obs": step["obs"]})
    state = memory.state_dict()["observations"]
    assert len(state["compressed"]) > 5
    assert sum(map(len, state["compressed"])) < 101 * 2 * 30 / 2
    again = images(200, 4)
    again.load_state_dict(memory.state_dict())
    np.testing.assert_array_equal(again.observations.frames, memory.observations.frames)
    vectors = make(20, 1)
    World(1, seed=0).play(vectors, 5)
    assert vectors.state_dict()["observations"]["compressed"] is None


@pytest.mark.parametrize("n_frames", [1, 4])
def test_images_with_a_mask_and_states_behind_them_are_kept_as_bytes(n_frames: int) -> None:
    image = spaces.Box(0, 255, SHAPE, np.uint8)
    augmented, n_pixels = AugmentedBox(image, 3, (2,)), 4 * 5 * 6
    plain = spaces.Box(-np.inf, np.inf, augmented.shape, np.float32)

    def memory(space: spaces.Box) -> Any:
        where = Spaces(space, spaces.Discrete(3), 2)
        return ReplayMemory(20, where, (), np.int64, gamma=GAMMA, n_frames=n_frames)

    ours, floats = memory(augmented), memory(plain)
    stacks, rest = Stacks(n_frames, seed=n_frames), np.random.default_rng(0)

    def play(steps: int) -> None:
        for _ in range(steps):
            step = stacks.step()
            for name in ("obs", "next_obs"):
                behind = rest.normal(size=(2, 3 + 1 + 4))
                step[name] = np.concatenate(
                    [step[name].reshape(2, -1), behind], 1, dtype=np.float32
                )
            for each in (ours, floats):
                each.add(**step)

    for _ in range(4):
        play(13)
        for age in range(1, ours.steps + 1):
            where = np.full(2, age), np.arange(2), torch.device("cpu")
            for part, other in zip(ours._gather(*where), floats._gather(*where), strict=True):
                assert part is other is None or torch.equal(part, other)
        again = memory(augmented)
        again.load_state_dict(ours.state_dict())
        ours = again
    # A frame's pixels are bytes, what stands behind them floats; two more are the stack's.
    row = n_pixels // n_frames + 4 * (3 + 1 + 4) + 2
    assert ours.observations.nbytes == 2 * ours.n_rows * row
    assert ours.non_finite() == []
    ours.observations.frames[3, 1] = np.inf
    assert ours.non_finite() == ["an observation"]


def test_the_capacity_counts_transitions_whatever_the_number_of_environments() -> None:
    for n_envs in (1, 4):
        memory = make(40, n_envs)
        World(n_envs, seed=0).play(memory, 100)
        assert len(memory) == 40


def test_too_large_a_memory_is_refused_before_it_is_allocated() -> None:
    free = free_memory()
    assert free is not None
    assert free > 10**6
    with pytest.raises(UserError, match=r"buffer_size .* needs .* GB .* choose at most \d"):
        make(free, 1)


@pytest.mark.parametrize("where", ["reward", "obs"])
def test_what_the_environment_gave_wrong_is_found(where: str) -> None:
    memory = make(40, 2)
    World(2, seed=0).play(memory, 30)
    assert memory.non_finite() == []
    if where == "reward":
        memory.reward[3, 1] = np.nan
        assert memory.non_finite() == ["a reward"]
    else:
        memory.observations.frames[3, 1] = np.inf
        assert memory.non_finite() == ["an observation"]


def test_the_bytes_are_those_of_all_arrays() -> None:
    small, large = make(40, 2), make(80, 2)
    step = large.nbytes - small.nbytes
    assert step == 20 * 2 * (small.nbytes // (small.n_rows * 2))
