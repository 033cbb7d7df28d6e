"""Atari side by side: ours in a loop, ALE's vector environment and envpool give the same game."""

from __future__ import annotations

from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding
from rltune.agents.envs.vector import Envs, make_env
from rltune.agents.errors import UserError

pytest.importorskip("ale_py")
pytest.importorskip("cv2")
VECTORIZATIONS = ["sync", "native", "envpool"]


def make(name: str, vectorization: str, n_envs: int = 2, **options) -> Envs:
    if vectorization == "envpool":
        pytest.importorskip("envpool")
    return Envs(name, n_envs, seed=0, vectorization=vectorization, **options)


def rollout(envs: Envs, steps: int, action: int | None = None):
    obs = envs.reset()
    generator = np.random.default_rng(0)
    for _ in range(steps):
        random = generator.integers(envs.single_action_space.n, size=envs.n_envs)
        step = envs.step(random if action is None else np.full(envs.n_envs, action))
        yield obs, step
        obs = step.obs
    envs.close()


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_successors_are_the_next_frames_also_at_an_end(vectorization):
    """Three of the four frames of a successor were seen before, whatever ended."""
    ends = lost = 0
    for obs, step in rollout(make("ALE/Breakout-v5", vectorization), 260):
        assert step.obs.dtype == np.uint8
        ended = [episode.env for episode in step.episodes]
        for i in step.valid.nonzero()[0]:
            if vectorization == "sync" and step.terminated[i] and i not in ended:
                continue  # FIRE has been pressed in the same step
            np.testing.assert_array_equal(step.next_obs[i, :3], obs[i, 1:])
        ends += len(ended)
        lost += step.terminated[step.valid].sum()
    assert ends >= 2
    assert lost >= 5 * ends  # five lives a game


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_fire_is_pressed_after_every_life(vectorization):
    """An agent that never fires still loses its lives, since the ball is in play."""
    envs = make("ALE/Breakout-v5", vectorization, n_envs=1)
    steps = [step for _, step in rollout(envs, 300, action=0)]
    assert sum(int(step.terminated[0]) for step in steps) >= 5
    if vectorization != "sync":
        # The key is not the agent's action: no transition.
        for before, after in pairwise(steps):
            if not before.episodes:
                assert after.valid[0] == (not before.terminated[0])


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_rewards_are_clipped_and_returns_are_the_score(vectorization):
    envs = make("ALE/Seaquest-v5", vectorization, n_envs=4, max_episode_steps=150)
    rewards, returns = set(), []
    for _, step in rollout(envs, 155):
        rewards |= set(step.reward.tolist())
        returns += [episode.episode_return for episode in step.episodes]
    assert rewards == {0.0, 1.0}
    assert max(returns) >= 20


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_time_limit_in_decisions(vectorization):
    steps = [s for _, s in rollout(make("ALE/Pong-v5", vectorization, max_episode_steps=9), 9)]
    assert not any(step.truncated.any() for step in steps[:-1])
    assert steps[-1].truncated.all()
    assert [episode.length for episode in steps[-1].episodes] == [9, 9]


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_the_picture_is_the_same(vectorization):
    """Pong's first screens: the same 84x84 grey picture, but for paddles and the clock."""
    reference = make_picture("sync")
    difference = np.abs(make_picture(vectorization).astype(int) - reference)
    assert (difference > 8).mean() < 0.03


def make_picture(vectorization: str):
    *_, (_, step) = rollout(make("ALE/Pong-v5", vectorization, n_envs=1), 10, action=0)
    return step.obs[0, -1]


@pytest.mark.parametrize("name", ["PongNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4"])
def test_the_frames_are_those_of_gymnasiums_wrapper(name):
    """Bit for bit, until a life is lost: gymnasium's does not press FIRE."""
    ours = make_env(name, frame_stack=1)
    obs, info = ours.reset(seed=7)
    bare = gymnasium.make(name, obs_type="grayscale", frameskip=1)
    bare.reset(seed=0)
    bare.unwrapped.np_random = seeding.np_random(7)[0]
    theirs = gymnasium.wrappers.AtariPreprocessing(bare)
    theirs.reset()
    reference = theirs.step(1)  # FIRE
    generator = np.random.default_rng(0)
    steps, score = 0, 0.0
    while True:
        np.testing.assert_array_equal(obs[0], reference[0])
        assert info["lives"] == reference[4]["lives"]
        action = generator.integers(ours.action_space.n)
        obs, reward, terminated, truncated, info = ours.step(action)
        reference = theirs.step(action)
        if info["life_lost"] or steps == 150:
            break
        assert (reward, terminated, truncated) == reference[1:4]
        steps, score = steps + 1, score + abs(reward)
    assert steps >= 100
    assert score > 0


def test_a_smaller_screen_is_the_same_picture():
    small, large = (
        make_env("PongNoFrameskip-v4", frame_stack=1, env_kwargs={"screen_size": size})
        for size in (42, 84)
    )
    pairs = [env.reset(seed=1)[0] for env in (small, large)]
    for _ in range(30):
        pairs = [env.step(2)[0] for env in (small, large)]
    assert pairs[0].shape == (1, 42, 42)
    shrunk = pairs[1].reshape(42, 2, 42, 2).mean((1, 3))
    assert np.abs(shrunk - pairs[0][0]).max() <= 1  # of rounding
    for size in (9, 161, 42.5, "small"):
        with pytest.raises(UserError, match=r"screen_size is .*a whole number from 10 to 160"):
            make_env("PongNoFrameskip-v4", env_kwargs={"screen_size": size})


def test_no_frameskip_ids_are_not_sticky_in_envpool():
    envs = make("PongNoFrameskip-v4", "envpool")
    assert envs._backend._envs.config["repeat_action_probability"] == 0.0
    sticky = make("ALE/Pong-v5", "envpool")
    assert sticky._backend._envs.config["repeat_action_probability"] == 0.25
