"""Hindsight: goals that were reached in the same episode, and their rewards."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.memory.hindsight import HindsightMemory, PrioritisedHindsightMemory
from rltune.agents.spaces import Goals, Spaces

GAMMA = 0.5
ACHIEVED, DESIRED, NUMBER = 0, 1, 2
WISH = -1.0  # the goal that every episode has
STRATEGIES = pytest.mark.parametrize("strategy", ["future", "final", "episode"])


def reward(achieved: Any, desired: Any, info: Any = None) -> Any:
    return -(achieved != desired).any(-1).astype(np.float32)


GOALS = Goals(np.array([ACHIEVED]), np.array([[DESIRED]]), reward, lambda: None)


def make(
    strategy: str = "future",
    capacity: int = 100,
    n_envs: int = 1,
    n_sampled_goal: int = 4,
    kind: type[HindsightMemory] = HindsightMemory,
    **others: Any,
) -> HindsightMemory:
    box = spaces.Box(-1e9, 1e9, (3,), np.float32)
    where = Spaces(box, spaces.Discrete(3), n_envs, GOALS)
    return kind(
        capacity,
        where,
        (),
        np.int64,
        n_sampled_goal=n_sampled_goal,
        strategy=strategy,
        gamma=GAMMA,
        **others,
    )


class Episodes:
    """What is achieved tells episode and step: 100 * episode + step; step 0 is the first look."""

    def __init__(self, n_envs: int = 1, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_envs, self.begun = n_envs, n_envs
        self.at = [100 * i for i in range(n_envs)]
        self.ends: dict[int, int] = {}  # the last step of each finished episode

    def look(self, at: list[int]) -> Any:
        return np.array([[place, WISH, place] for place in at], np.float32)

    def play(self, memory: HindsightMemory, steps: int, chance: float = 0.2) -> None:
        for _ in range(steps):
            obs = self.look(self.at)
            after = [place + 1 for place in self.at]
            terminated, truncated = self.rng.random((2, self.n_envs)) < chance / 2
            memory.add(
                obs=obs,
                action=np.array([place % 3 for place in self.at]),
                reward=np.full(self.n_envs, -1.0),
                terminated=terminated,
                truncated=truncated,
                next_obs=self.look(after),
                valid=np.ones(self.n_envs, np.bool_),
            )
            self.at = after
            for env in np.flatnonzero(terminated | truncated):
                self.ends[after[env] // 100] = after[env]
                self.at[env] = 100 * self.begun
                self.begun += 1

    def last(self, episode: int) -> int:
        """Return the last step of an episode, the newest so far of one that goes on."""
        running = {place // 100: place for place in self.at}
        return self.ends.get(episode, running.get(episode, -1))


def draw(memory: HindsightMemory, n: int = 2000) -> Any:
    batch = memory.sample(n, torch.Generator().manual_seed(0))
    seen = zip(batch.obs.tolist(), batch.next_obs.tolist(), batch.reward.tolist(), strict=True)
    return batch, list(seen)


@STRATEGIES
@pytest.mark.parametrize("kind", [HindsightMemory, PrioritisedHindsightMemory])
@pytest.mark.parametrize("steps", [1, 13, 60, 150])
def test_goals_are_reached_in_the_same_episode(
    strategy: str, kind: type[HindsightMemory], steps: int
) -> None:
    others = {"alpha": 0.6} if kind is PrioritisedHindsightMemory else {}
    memory = make(strategy, capacity=100, n_envs=2, kind=kind, **others)
    episodes = Episodes(n_envs=2)
    episodes.play(memory, steps)
    oldest = steps - memory.steps
    _, seen = draw(memory)
    found: dict[int, set[int]] = {}
    for i, (obs, next_obs, got) in enumerate(seen):
        place, goal = int(obs[NUMBER]), int(obs[DESIRED])
        if i % 5 == 0:
            assert (goal, got) == (WISH, -1.0)
            continue
        assert next_obs[DESIRED] == goal or next_obs[NUMBER] != place + 1  # after a termination
        assert got == (0.0 if goal == place + 1 else -1.0)
        found.setdefault(place, set()).add(goal)
    assert found
    for place, goals in found.items():
        last = episodes.last(place // 100)
        assert all(goal // 100 == place // 100 for goal in goals)
        if strategy == "final":
            assert goals == {last}
        elif strategy == "future":
            assert place < min(goals) <= max(goals) <= last
        else:
            assert 0 < min(goal % 100 for goal in goals) <= max(goals) <= last
    if strategy == "episode" and oldest == 0 and steps > 1:
        assert any(min(goals) <= place for place, goals in found.items())


def test_other_goals_and_own_ones_have_the_same_shares_in_every_part() -> None:
    memory = make(n_sampled_goal=3)
    Episodes().play(memory, 50)
    batch, _ = draw(memory, 64)
    is_own = batch.obs[:, DESIRED] == WISH
    assert is_own.reshape(4, 16).sum(1).tolist() == [4, 4, 4, 4]


def test_without_other_goals_it_is_a_replay_memory() -> None:
    memory = make(n_sampled_goal=0)
    Episodes().play(memory, 50)
    batch, _ = draw(memory, 64)
    assert (batch.obs[:, DESIRED] == WISH).all()


def test_the_rewards_of_several_steps_are_those_of_the_new_goal() -> None:
    memory = make("episode", n_step=3)
    episodes = Episodes(seed=3)
    episodes.play(memory, 80)
    for i, (obs, _, got) in enumerate(draw(memory)[1]):
        place, goal = int(obs[NUMBER]), int(obs[DESIRED])
        ahead = range(place + 1, min(place + 3, episodes.last(place // 100)) + 1)
        wanted = sum(
            GAMMA**k * (0.0 if i % 5 and step == goal else -1.0) for k, step in enumerate(ahead)
        )
        assert got == pytest.approx(wanted)


def test_the_last_goal_of_an_episode_that_terminates_is_known() -> None:
    """Its observation is in no row of the ring."""
    memory = make("final")
    episodes = Episodes()
    episodes.play(memory, 1, chance=2.0)  # 2.0: every step ends an episode
    _, seen = draw(memory, 10)
    assert {(obs[DESIRED], got) for obs, _, got in seen} == {(WISH, -1.0), (1.0, 0.0)}
    assert memory.terminated[0, 0]


def test_a_termination_stays_one_and_a_time_limit_none() -> None:
    memory = make()
    episodes = Episodes(seed=1)
    episodes.play(memory, 90, chance=0.5)
    batch, seen = draw(memory)
    ended = {
        int(memory.observations.frames[row, 0, NUMBER]) for row in np.flatnonzero(memory.terminated)
    }
    for (obs, _, _), discount in zip(seen, batch.discount.tolist(), strict=True):
        assert discount == (0.0 if int(obs[NUMBER]) in ended else GAMMA)


def test_episodes_that_are_broken_off_end_there() -> None:
    memory, episodes = make("final", n_envs=2), Episodes(n_envs=2)
    memory.interrupt()  # nothing there yet
    episodes.play(memory, 5, chance=0.0)
    memory.interrupt()
    episodes.at = [500, 600]
    episodes.play(memory, 5, chance=0.0)
    goals = {obs[DESIRED] for obs, _, _ in draw(memory)[1]}
    assert goals == {WISH, 5.0, 105.0, 505.0, 605.0}


@STRATEGIES
@pytest.mark.parametrize("steps", [0, 3, 70, 250])
def test_it_goes_on_from_what_was_saved(strategy: str, steps: int) -> None:
    memory, episodes = make(strategy, n_envs=2), Episodes(n_envs=2, seed=2)
    episodes.play(memory, steps, chance=0.1)
    again = make(strategy, n_envs=2)
    again.load_state_dict(memory.state_dict())
    others = Episodes(n_envs=2, seed=2)
    others.play(make(strategy, n_envs=2), steps, chance=0.1)
    for _ in range(3):
        episodes.play(memory, 20, chance=0.1)
        others.play(again, 20, chance=0.1)
        for ours, theirs in zip(draw(memory)[0], draw(again)[0], strict=True):
            assert ours is theirs is None or torch.equal(ours, theirs)


def test_its_bytes_are_counted() -> None:
    memory = make()
    assert memory.nbytes >= memory.n_rows * (3 * 4 + 8 + 4 + 3 + memory._extra_bytes)
    where = Spaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3), 1)
    with pytest.raises(ValueError, match="needs the goals"):
        HindsightMemory(10, where, (), np.int64, n_sampled_goal=4, strategy="final", gamma=0.9)


class Walk(gymnasium.Env[Any, Any]):
    """What SB3's memory has to know of an environment."""

    def __init__(self) -> None:
        place = spaces.Box(-1e9, 1e9, (1,), np.float32)
        self.observation_space = spaces.Dict(
            achieved_goal=place, desired_goal=place, observation=place
        )
        self.action_space = spaces.Discrete(3)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return reward(achieved_goal, desired_goal)


@STRATEGIES
def test_goals_are_drawn_as_in_stable_baselines3(strategy: str) -> None:
    """From the same finished episodes: each pair of step and goal equally often."""
    her = pytest.importorskip("stable_baselines3.her.her_replay_buffer")
    from stable_baselines3.common.vec_env import DummyVecEnv

    memory = make(strategy)
    env = DummyVecEnv([Walk])
    theirs = her.HerReplayBuffer(
        100,
        env.observation_space,
        env.action_space,
        env=env,
        n_sampled_goal=4,
        goal_selection_strategy=strategy,
    )
    for episode, length in enumerate((3, 4, 5, 6)):
        for step in range(length):
            now, after = 100 * episode + step, 100 * episode + step + 1
            ends = step == length - 1
            terminated = ends and episode % 2 == 0
            memory.add(
                obs=np.array([[now, WISH, now]], np.float32),
                action=np.zeros(1, np.int64),
                reward=np.full(1, -1.0),
                terminated=np.array([terminated]),
                truncated=np.array([ends and not terminated]),
                next_obs=np.array([[after, WISH, after]], np.float32),
                valid=np.ones(1, np.bool_),
            )
            looks = [
                {
                    name: np.array([[x]], np.float32)
                    for name, x in zip(env.observation_space.spaces, (at, WISH, at), strict=True)
                }
                for at in (now, after)
            ]
            info = [{"TimeLimit.truncated": ends and not terminated}]
            theirs.add(
                looks[0], looks[1], np.zeros(1, np.int64), np.full(1, -1.0), np.array([ends]), info
            )
    n = 20_000
    np.random.seed(0)  # noqa: NPY002 (SB3 draws from it)
    sample = theirs.sample(n)
    batch = memory.sample(n, torch.Generator().manual_seed(0))
    counts = [
        Counter(zip(*(column.flatten().tolist() for column in columns), strict=True))
        for columns in (
            (batch.obs[:, NUMBER], batch.obs[:, DESIRED], batch.reward, batch.discount == 0),
            (
                sample.observations["observation"],
                sample.observations["desired_goal"],
                sample.rewards,
                sample.dones == 1,
            ),
        )
    ]
    assert counts[0].keys() == counts[1].keys()
    for key in counts[0]:
        own, other = counts[0][key] / n, counts[1][key] / n
        assert abs(own - other) < 5 * np.sqrt(2 * max(own, other) / n), key
