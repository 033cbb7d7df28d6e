from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from rltune.agents.envs.vector import Envs, check_env_name, episode_seed, make_env
from rltune.agents.errors import UserError


class Counter(gymnasium.Env):
    """Shows (steps so far, number drawn at reset); ends after 3 or, by truncation, 5 steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3, start=5)
    ends_after = 3
    truncates_after = 99

    def __init__(self, fail_at: int = -1) -> None:
        self.fail_at = fail_at
        self.actions: list[object] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.start = 0, self.np_random.random()
        return np.array([0.0, self.start]), {}

    def step(self, action):
        self.actions.append(action)
        self.steps += 1
        if self.steps == self.fail_at:
            raise RuntimeError("broken simulator")
        obs = np.array([self.steps, self.start])
        return obs, 2.0, self.steps >= self.ends_after, self.steps >= self.truncates_after, {}


class Endless(Counter):
    ends_after = truncates_after = 10**9


class Limited(Endless):
    def __init__(self, max_episode_steps: int) -> None:
        super().__init__()
        self.truncates_after = max_episode_steps


def long_pendulum(**kwargs):
    return gymnasium.make("Pendulum-v1", **kwargs)


class Truncating(Counter):
    ends_after, truncates_after = 10**9, 2


class Scoring(Counter):
    """Tells at the end of an episode whether it was a success."""

    key = "is_success"

    def step(self, action):
        *step, _ = super().step(action)
        return *step, {self.key: self.start > 0.5} if self.steps == 3 else {}


class MetaScoring(Scoring):
    key = "success"

    def step(self, action):
        *step, info = super().step(action)
        return *step, {name: float(value) for name, value in info.items()}


def scoring_vector(num_envs, mode):
    return gymnasium.vector.SyncVectorEnv([Scoring] * num_envs, autoreset_mode=mode)


gymnasium.register("Scoring-v0", Scoring, vector_entry_point=scoring_vector)


class Stateful(Endless):
    """Its steps draw from the global state, so that only its own state can bring it back."""

    def step(self, action):
        _, *rest = super().step(action)
        self.sum = getattr(self, "sum", 0.0) + self.np_random.random()
        return np.array([self.steps, self.sum]), *rest

    def get_state(self):
        generator = self.np_random.bit_generator.state["state"]
        return {"steps": self.steps, "start": self.start, "sum": self.sum, "rng": dict(generator)}

    def set_state(self, state):
        self.steps, self.start, self.sum = state["steps"], state["start"], state["sum"]
        full = self.np_random.bit_generator.state
        self.np_random.bit_generator.state = {**full, "state": state["rng"]}


class WithSpaces(gymnasium.Env):
    """Any spaces; remembers the action."""

    def __init__(self, observation=None, action=None) -> None:
        self.observation_space = observation or spaces.Box(-1, 1, (2,))
        self.action_space = action or spaces.Discrete(2)
        self.observation_space.seed(0)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.last = action
        return self.observation_space.sample(), 0.0, False, False, {}


class OldApi(WithSpaces):
    def reset(self, *, seed=None, options=None):
        return super().reset()[0]


class Lying(WithSpaces):
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}


class Unseeded(WithSpaces):
    def reset(self):
        return super().reset()


class Stepping(WithSpaces):
    """Its steps give what it is made with."""

    def __init__(self, result) -> None:
        super().__init__()
        self.result = result

    def step(self, action):
        return self.result


def own(name: str) -> str:
    return f"{__name__}:{name}"


def rollout(envs: Envs, steps: int, seed: int = 0):
    envs.action_seed = np.random.default_rng(seed)
    return [envs.step(random_actions(envs, envs.action_seed)) for _ in range(steps)]


def random_actions(envs: Envs, generator):
    space = envs.single_action_space
    if isinstance(space, spaces.Discrete):
        return generator.integers(space.n, size=envs.n_envs)
    return generator.normal(size=(envs.n_envs, *space.shape)).astype(np.float32)


# ------------------------------------------------------------------------------- true transitions


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_successor_is_the_final_observation_and_obs_the_next_start(vectorization):
    envs = Envs(own("Counter"), 2, seed=3, vectorization=vectorization)
    first = envs.reset()
    steps = rollout(envs, 4)
    envs.close()
    assert steps[2].terminated.all()
    assert not steps[2].truncated.any()
    np.testing.assert_array_equal(steps[2].next_obs[:, 0], [3, 3])
    np.testing.assert_array_equal(steps[2].next_obs[:, 1], first[:, 1])
    np.testing.assert_array_equal(steps[2].obs[:, 0], [0, 0])
    assert (steps[2].obs[:, 1] != first[:, 1]).all()
    # The step after the end is a real one: no bogus row from the end to the start.
    np.testing.assert_array_equal(steps[3].next_obs[:, 0], [1, 1])
    assert steps[3].reward.tolist() == [2.0, 2.0]
    assert all(step.valid.all() for step in steps)
    assert [episode[1:4] for episode in steps[2].episodes] == [(6.0, 3, 0), (6.0, 3, 1)]


def test_gymnasium_default_hands_over_the_bogus_transition_that_we_do_not():
    stock = gymnasium.vector.SyncVectorEnv([Counter])
    stock.reset(seed=0)
    rewards = [stock.step(np.array([5]))[1][0] for _ in range(8)]
    assert 0.0 in rewards  # the row between two episodes, which no environment ever returned
    ours = Envs(own("Counter"), 1, seed=0)
    ours.reset()
    assert {step.reward[0] for step in rollout(ours, 8)} == {2.0}


def test_truncation_stays_apart_from_termination():
    envs = Envs(own("Truncating"), 1, seed=0)
    envs.reset()
    steps = rollout(envs, 2)
    assert not steps[1].terminated[0]
    assert steps[1].truncated[0]


@pytest.mark.parametrize(
    ("env", "vectorization", "kwargs"),
    [
        ("test_vector:Scoring", "sync", {}),
        ("test_vector:MetaScoring", "sync", {}),
        ("test_vector:Scoring", "async", {}),
        ("Scoring-v0", "native", {"mode": AutoresetMode.SAME_STEP}),
        ("Scoring-v0", "native", {"mode": AutoresetMode.NEXT_STEP}),
    ],
)
def test_an_episode_is_a_success_when_its_last_info_says_so(env, vectorization, kwargs):
    envs = Envs(env, 3, seed=0, vectorization=vectorization, env_kwargs=kwargs)
    envs.reset()
    said = []
    for _ in range(40):
        step = envs.step(np.zeros(3, int))
        said += [(bool(step.next_obs[e.env, 1] > 0.5), e.success) for e in step.episodes]
    envs.close()
    assert len(said) >= 30
    assert {truth for truth, _ in said} == {True, False}
    assert all(truth is success for truth, success in said)


@pytest.mark.parametrize("vectorization", ["sync", "async", "native"])
def test_most_environments_know_no_success(vectorization):
    envs = Envs("CartPole-v1", 2, seed=0, max_episode_steps=4, vectorization=vectorization)
    envs.reset()
    assert [e.success for e in rollout(envs, 4)[-1].episodes] == [None, None]
    envs.close()


@pytest.mark.parametrize("vectorization", ["sync", "async", "native"])
def test_time_limit_truncates(vectorization):
    envs = Envs("CartPole-v1", 2, seed=0, max_episode_steps=4, vectorization=vectorization)
    envs.reset()
    steps = rollout(envs, 4)
    envs.close()
    assert not steps[2].truncated.any()
    assert steps[3].truncated.all()
    assert not steps[3].terminated.any()
    assert [episode.length for episode in steps[3].episodes] == [4, 4]


@pytest.mark.parametrize(
    ("env", "vectorization"),
    [
        ("Pendulum-v1", "sync"),
        ("Pendulum-v1", "async"),
        ("CliffWalking-v1", "sync"),
        ("test_vector:Endless", "sync"),
        ("test_vector:Endless", "async"),
        ("test_vector:Limited", "sync"),
        ("test_vector:long_pendulum", "sync"),
    ],
)
def test_a_limit_among_the_arguments_takes_the_place_of_the_registered_one(env, vectorization):
    limit = {"max_episode_steps": 201 if "endulum" in env else 7}
    envs = Envs(env, 2, seed=0, env_kwargs=limit, vectorization=vectorization)
    envs.reset()
    steps = rollout(envs, limit["max_episode_steps"])
    envs.close()
    assert not steps[-2].truncated.any()
    assert steps[-1].truncated.all()
    one = make_env(env, env_kwargs=limit)
    one.reset()
    ends = [one.step(one.action_space.sample())[3] for _ in steps]
    assert ends == [False] * (len(steps) - 1) + [True]


def test_the_native_version_knows_the_limit_too():
    limit = {"max_episode_steps": 4}
    envs = Envs("CartPole-v1", 2, seed=0, env_kwargs=limit, vectorization="native")
    envs.reset()
    assert [e.length for e in rollout(envs, 4)[-1].episodes] == [4, 4]


@pytest.mark.parametrize("limit", [0, -3, 2.5, "7", True])
def test_a_limit_is_a_number_of_steps(limit):
    with pytest.raises(UserError, match="max_episode_steps must be a whole number from 1, not"):
        Envs("CartPole-v1", 1, seed=0, env_kwargs={"max_episode_steps": limit})


def test_only_training_may_have_episodes_without_end(monkeypatch):
    monkeypatch.setattr("rltune.agents.envs.vector.LONGEST_EPISODE", 20)
    for env, training, limit, lengths in (
        (own("Endless"), True, None, []),
        (own("Endless"), False, None, [20, 20]),
        (own("Endless"), False, 30, [30]),
        (own("Counter"), False, None, [3] * 13),
    ):
        envs = Envs(env, 1, seed=0, training=training, max_episode_steps=limit)
        envs.reset()
        episodes = [e for step in rollout(envs, 40) for e in step.episodes]
        assert [e.length for e in episodes] == lengths
        assert all(envs.cuts(e) is (e.length == 20) for e in episodes)


def test_registered_time_limit_is_kept():
    envs = Envs("Pendulum-v1", 1, seed=0)
    envs.reset()
    steps = rollout(envs, 400)
    assert [t for t, step in enumerate(steps) if step.truncated[0]] == [199, 399]
    total = sum(step.reward[0] for step in steps[:200])
    assert steps[199].episodes[0].episode_return == pytest.approx(total)


def test_native_marks_the_row_between_two_episodes_as_invalid():
    envs = Envs("CartPole-v1", 4, seed=0, vectorization="native")
    envs.reset()
    steps = rollout(envs, 200)
    lengths = [episode.length for step in steps for episode in step.episodes]
    assert len(lengths) > 10
    for before, after in pairwise(steps):
        np.testing.assert_array_equal(after.valid, ~(before.terminated | before.truncated))
        assert (after.reward[~after.valid] == 0).all()
    # Every valid row is counted in some episode: finished ones, and the four that are running.
    assert sum(lengths) <= sum(step.valid.sum() for step in steps)


def test_native_transitions_are_those_of_the_bare_environment():
    envs = Envs("CartPole-v1", 4, seed=0, vectorization="native")
    obs = envs.reset()
    bare = make_env("CartPole-v1").unwrapped
    bare.reset(seed=0)
    checked = 0
    generator = np.random.default_rng(1)
    for _ in range(60):
        action = random_actions(envs, generator)
        step = envs.step(action)
        for i in step.valid.nonzero()[0]:
            bare.state, bare.steps_beyond_terminated = tuple(obs[i].astype(np.float64)), None
            successor, _, terminated, _, _ = bare.step(action[i])
            np.testing.assert_allclose(step.next_obs[i], successor, atol=1e-5)
            assert step.terminated[i] == terminated
            checked += terminated
        obs = step.obs
    assert checked > 3


# ------------------------------------------------------------------------------------------ seeds


def episodes_by_number(n_envs: int, seed: int, wanted: int, vectorization: str = "sync"):
    """Return length and first observation of each episode, always acting with action 1."""
    envs = Envs("CartPole-v1", n_envs, seed=seed, vectorization=vectorization)
    envs.reset()
    found = {}
    while len(found) < wanted:
        for episode in envs.step(np.ones(n_envs, int)).episodes:
            if episode.number < wanted:
                found[episode.number] = (episode.episode_return, episode.length)
    envs.close()
    return [found[number] for number in range(wanted)]


def test_episode_depends_on_seed_and_number_only():
    alone = episodes_by_number(1, seed=7, wanted=9)
    assert alone == episodes_by_number(4, seed=7, wanted=9)
    assert alone == episodes_by_number(3, seed=7, wanted=9, vectorization="async")
    assert alone != episodes_by_number(1, seed=8, wanted=9)
    assert len(set(alone)) > 1


def test_episode_seeds_differ_and_fit_any_environment():
    seeds = {episode_seed(seed, number) for seed in range(5) for number in range(600)}
    assert len(seeds) == 3000
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_first_observations_follow_the_seed(vectorization):
    def first(seed):
        return Envs("CartPole-v1", 2, seed=seed, vectorization=vectorization).reset()

    np.testing.assert_array_equal(first(0), first(0))
    assert (first(0) != first(1)).all()
    assert (first(0)[0] != first(0)[1]).all()


def test_seed_zero_is_a_seed():
    assert episodes_by_number(2, seed=0, wanted=4) == episodes_by_number(2, seed=0, wanted=4)


# ----------------------------------------------------------------------------------------- resume


def assert_same_future(one: Envs, other: Envs, steps: int = 80) -> None:
    for a, b in zip(rollout(one, steps, seed=5), rollout(other, steps, seed=5), strict=True):
        for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert a.episodes == b.episodes


@pytest.mark.parametrize(
    ("env", "options", "steps"),
    [
        ("CartPole-v1", {}, 333),
        ("CartPole-v1", {"vectorization": "async"}, 50),
        ("CartPole-v1", {"frame_stack": 3}, 50),
        ("Pendulum-v1", {}, 250),
        ("LunarLander-v3", {}, 150),
        ("FrozenLake-v1", {}, 100),
        ("ALE/Breakout-v5", {}, 12),
    ],
)
def test_resume_is_bit_equal(env, options, steps, tmp_path):
    if env.startswith("ALE"):
        pytest.importorskip("ale_py")
        pytest.importorskip("cv2")
    ahead = min(80, steps)
    straight = Envs(env, 2, seed=1, **options)
    straight.reset()
    rollout(straight, steps)
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    resumed = Envs(env, 2, seed=1, **options)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    np.testing.assert_array_equal(straight.obs, resumed.obs)
    assert_same_future(straight, resumed, ahead)
    # and once more, from a state that was itself resumed
    again = Envs(env, 2, seed=1, **options)
    again.load_state_dict(resumed.state_dict())
    assert_same_future(straight, again, ahead)
    for envs in (straight, resumed, again):
        envs.close()


def test_resume_asks_an_environment_that_keeps_its_own_state(tmp_path):
    straight = Envs(own("Stateful"), 2, seed=1)
    straight.reset()
    rollout(straight, 40)
    state = straight.state_dict()
    assert state["actions"] == []
    torch.save(state, tmp_path / "state.pt")
    resumed = Envs(own("Stateful"), 2, seed=1)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert_same_future(straight, resumed)


def test_native_resume_begins_new_episodes():
    straight = Envs("CartPole-v1", 2, seed=1, vectorization="native")
    straight.reset()
    rollout(straight, 10)
    resumed = Envs("CartPole-v1", 2, seed=1, vectorization="native")
    resumed.load_state_dict(straight.state_dict())
    assert (np.abs(resumed.obs) <= 0.05).all()
    assert min(e.number for s in rollout(resumed, 200) for e in s.episodes) >= 2


def test_log_of_actions_keeps_running_episodes_only():
    envs = Envs("CartPole-v1", 2, seed=0)
    envs.reset()
    rollout(envs, 5000)
    assert len(envs._log._buffer) <= 256
    running = [len(actions) for actions in envs.state_dict()["actions"]]
    assert running == envs.state_dict()["lengths"]


def test_log_of_actions_grows_with_a_long_episode():
    envs = Envs(own("Endless"), 2, seed=0)
    envs.reset()
    steps = rollout(envs, 700)
    taken = np.stack([step.action for step in steps]) + 5  # the space starts at 5
    for i, actions in enumerate(envs.state_dict()["actions"]):
        np.testing.assert_array_equal(actions.numpy(), taken[:, i])


# ------------------------------------------------------------------------------------ action spaces


@pytest.mark.parametrize("kind", ["Discrete", "MultiDiscrete", "MultiBinary"])
def test_actions_count_from_zero(kind):
    space = {
        "Discrete": spaces.Discrete(3, start=-1),
        "MultiDiscrete": spaces.MultiDiscrete([2, 3], start=[4, 5]),
        "MultiBinary": spaces.MultiBinary(2),
    }[kind]
    envs = Envs(own("WithSpaces"), 2, seed=0, env_kwargs={"action": space})
    envs.reset()
    envs.step(np.zeros((2, *space.shape), np.int64))
    taken = envs._backend._envs[0].last
    expected = getattr(space, "start", 0)
    np.testing.assert_array_equal(taken, np.broadcast_to(expected, space.shape))
    envs.step(np.ones((2, *space.shape), np.int64))
    np.testing.assert_array_equal(envs._backend._envs[1].last, taken + 1)


def test_box_actions_are_clipped_for_the_environment_only():
    space = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 4], np.float32))
    envs = Envs(own("WithSpaces"), 1, seed=0, env_kwargs={"action": space})
    envs.reset()
    raw = np.array([[-3.0, 9.0]], np.float32)
    step = envs.step(raw)
    np.testing.assert_array_equal(envs._backend._envs[0].last, [-1, 4])
    np.testing.assert_array_equal(step.action, raw)


def test_custom_environments_are_given_numpy_integers():
    envs = Envs(own("Counter"), 1, seed=0)
    envs.reset()
    envs.step(np.array([2]))
    (action,) = envs._backend._envs[0].actions
    assert isinstance(action, np.integer)
    assert action == 7


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Dict(a=spaces.Discrete(2)), "Dict"),
        (spaces.Box(0, 5, (2,), np.int32), "MultiDiscrete"),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), "MultiDiscrete"),
    ],
)
def test_unsupported_action_space(space, said):
    with pytest.raises(UserError, match=said):
        Envs(own("WithSpaces"), 1, seed=0, env_kwargs={"action": space})


# ------------------------------------------------------------------------------------- observations


IMAGE = spaces.Box(0, 255, (40, 50, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "frame_stack", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (3,), np.float64), 0, (3,), np.float32),
        (spaces.Box(-1, 1, (3,), np.float64), 4, (12,), np.float32),
        (spaces.Box(-1, 1, (3, 2)), 0, (6,), np.float32),
        (spaces.Box(0, 255, (128,), np.uint8), 0, (128,), np.float32),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), 0, (147,), np.float32),
        (IMAGE, 0, (3, 40, 50), np.uint8),
        (IMAGE, 2, (6, 40, 50), np.uint8),
        (spaces.Box(0, 255, (3, 40, 50), np.uint8), 0, (3, 40, 50), np.uint8),
        (spaces.Box(0, 255, (40, 50), np.uint8), 0, (1, 40, 50), np.uint8),
        (spaces.Box(0, 255, (40, 50), np.uint8), 4, (4, 40, 50), np.uint8),
        (spaces.Discrete(5), 0, (5,), np.float32),
        (spaces.MultiDiscrete([2, 3]), 0, (5,), np.float32),
        (spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3)), 0, (5,), np.float32),
        (spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)]), 2, (8,), np.float32),
    ],
)
def test_observations_are_float_vectors_or_images_with_channels_first(
    space, frame_stack, shape, dtype
):
    envs = Envs(
        own("WithSpaces"), 2, seed=0, env_kwargs={"observation": space}, frame_stack=frame_stack
    )
    obs = envs.reset()
    assert envs.single_observation_space.shape == shape
    assert obs.shape == (2, *shape)
    step = envs.step(np.zeros(2, np.int64))
    assert obs.dtype == step.obs.dtype == envs.single_observation_space.dtype == dtype


def test_channels_and_stacked_frames_are_where_they_should_be():
    env = make_env(own("WithSpaces"), env_kwargs={"observation": IMAGE}, frame_stack=2)
    first, _ = env.reset()
    np.testing.assert_array_equal(first[:3], first[3:])
    IMAGE.seed(11)
    expected = IMAGE.sample()
    IMAGE.seed(11)
    second, *_ = env.step(0)
    np.testing.assert_array_equal(second[:3], first[3:])
    np.testing.assert_array_equal(second[3:], expected.transpose(2, 0, 1))


class Mission(spaces.Space):
    """A space that gymnasium does not know, such as MiniGrid's."""

    def sample(self, mask=None, probability=None):
        return "go to the red ball"


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Sequence(spaces.Discrete(2)), "observations (a Sequence)"),
        (spaces.Dict(view=IMAGE, mission=Mission()), "observations['mission'] (a Mission)"),
        (
            spaces.Dict(all=spaces.Tuple([IMAGE, spaces.Sequence(IMAGE)])),
            "observations['all'][1] (a Sequence)",
        ),
    ],
)
def test_observations_that_are_no_vector_are_refused(space, said):
    with pytest.raises(UserError, match=re.escape(f"{said} can't be made a vector")):
        Envs(own("WithSpaces"), 1, seed=0, env_kwargs={"observation": space})


def test_steps_do_not_share_memory():
    envs = Envs("CartPole-v1", 2, seed=0)
    first = envs.reset().copy()
    kept = envs.obs
    rollout(envs, 3)
    np.testing.assert_array_equal(first, kept)


# -------------------------------------------------------------------------------------------- Atari


@pytest.fixture
def atari():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_atari_has_the_standard_steps(atari, vectorization):
    envs = Envs("ALE/Pong-v5", 2, seed=0, vectorization=vectorization)
    obs = envs.reset()
    assert obs.shape == (2, 4, 84, 84)
    assert obs.dtype == np.uint8
    assert envs.frame_skip == 4
    step = envs.step(np.zeros(2, np.int64))
    np.testing.assert_array_equal(step.next_obs[:, :3], obs[:, 1:])
    envs.close()


def test_atari_without_preprocessing(atari):
    envs = Envs("ALE/Pong-v5", 1, seed=0, atari=False)
    assert envs.single_observation_space.shape == (3, 210, 160)
    assert envs.frame_skip == 1


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_a_lost_life_ends_the_learners_episode_but_not_the_game(atari, vectorization):
    envs = Envs("ALE/Breakout-v5", 1, seed=0, vectorization=vectorization)
    envs.reset()
    steps = []
    while not (steps and steps[-1].episodes):
        steps += rollout(envs, 1, seed=len(steps))
    envs.close()
    assert sum(step.terminated[0] for step in steps) == 5  # Breakout has five lives
    assert {step.reward[0] for step in steps} <= {0.0, 1.0}


def test_evaluation_sees_whole_games_and_raw_rewards(atari):
    # Seaquest's points are worth 20 and more
    views = [Envs("ALE/Seaquest-v5", 1, seed=0, training=training) for training in (True, False)]
    for envs in views:
        envs.reset()
    learner, raw = (rollout(envs, 300) for envs in views)
    assert {step.reward[0] for step in learner} == {0.0, 1.0}
    assert max(step.reward[0] for step in raw) >= 20
    assert sum(step.terminated[0] for step in learner) > 0
    assert not any(step.terminated[0] for step in raw)
    np.testing.assert_array_equal(learner[-1].obs, raw[-1].obs)


def test_fire_starts_the_ball_after_every_life(atari):
    """An agent that never fires still loses its lives, since the ball is in play."""
    envs = Envs("ALE/Breakout-v5", 1, seed=0, training=False)
    envs.reset()
    steps = [envs.step(np.zeros(1, np.int64)) for _ in range(250)]
    assert any(step.terminated[0] for step in steps)


def test_atari_episode_depends_on_its_seed_only(atari):
    env = make_env("ALE/Breakout-v5", frame_stack=1)

    def play(seed):
        first, _ = env.reset(seed=seed)
        return np.stack([first, *(env.step(t % 4)[0] for t in range(30))])

    one = play(5)
    assert not np.array_equal(one, play(6))
    np.testing.assert_array_equal(one, play(5))
    # A game of another process, or of the same one earlier, makes no difference.
    fresh = make_env("ALE/Breakout-v5", frame_stack=1)
    np.testing.assert_array_equal(fresh.reset(seed=5)[0], one[0])


@pytest.mark.parametrize(("env", "share"), [("ALE/Pong-v5", 0.25), ("PongNoFrameskip-v4", 0.0)])
def test_sticky_actions_are_those_of_the_id(atari, env, share):
    """ALE's own actions are recorded: so many are repeated instead of alternating."""
    taken: list[int] = []

    class Recorder:
        def __init__(self, ale):
            self.ale = ale

        def __getattr__(self, name):
            return getattr(self.ale, name)

        def act(self, key):
            taken.append(list(self.ale.getMinimalActionSet()).index(key))
            return self.ale.act(key)

    game = make_env(env)
    game.reset(seed=0)
    game = game.env.env  # below the layout and the stack of frames
    game._ale = Recorder(game._ale)
    for t in range(250):
        game.step(t % 2)
    changes = np.array(taken).reshape(-1, 4)[:, 0] != np.arange(250) % 2
    assert changes.mean() == pytest.approx(share, abs=0.1 if share else 0)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("cartpole-v1", "did you mean 'CartPole-v1'"),
        ("CartPol-v1", "did you mean 'CartPole-v1'"),
        ("CartPole-v9", "write 'CartPole-v1'"),
        ("CartPole", "needs a version; write 'CartPole-v1'"),
        ("LunarLander-v2", "write 'LunarLander-v3'"),
        ("Qqqq-v0", "module:Class', one that a package registers 'package:Qqqq-v0'"),
        ("no_such_module:Env", "no module 'no_such_module'"),
        ("no_such_module:Env-v0", "no module 'no_such_module'"),
        (f"{__name__}:Countr", "did you mean 'Counter'"),
        (f"{__name__}:IMAGE", "is a dict|is a ndarray|is a Box"),
    ],
)
def test_unknown_environment(env, said):
    with pytest.raises(UserError, match=said):
        check_env_name(env)


def test_missing_package_names_the_extra(monkeypatch):
    def missing(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(UserError, match=r'pip install "rltune\[box2d\]"'):
        make_env("LunarLander-v3")


def test_wrong_arguments():
    with pytest.raises(UserError, match="gravy"):
        make_env("CartPole-v1", env_kwargs={"gravy": 1})
    with pytest.raises(UserError, match="gravy"):
        make_env(own("Counter"), env_kwargs={"gravy": 1})


def test_not_an_environment():
    with pytest.raises(UserError, match="Python's own"):
        Envs("pathlib:Path", 1, seed=0)
    with pytest.raises(UserError, match=r"gymnasium\.Env"):
        Envs("numpy:ndarray", 1, seed=0)


def test_broken_resets_are_explained():
    with pytest.raises(UserError, match="must return"):
        Envs(own("OldApi"), 1, seed=0).reset()
    with pytest.raises(UserError, match="shape"):
        Envs(own("Lying"), 1, seed=0).reset()
    with pytest.raises(UserError, match="must take seed"):
        Envs(own("Unseeded"), 1, seed=0)


FINE = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ((FINE, 1.0, False, {}), "step() must return (observation, reward, terminated"),
        ("hello", "step() must return"),
        ((np.zeros(3), 1.0, False, False, {}), "step() gave an observation of shape (3,)"),
        ((FINE, np.ones(2), False, False, {}), "step() gave a reward of shape (2,)"),
    ],
)
def test_broken_steps_are_explained(result, said):
    envs = Envs(own("Stepping"), 2, seed=0, env_kwargs={"result": result})
    envs.reset()
    with pytest.raises(UserError, match=re.escape(said)):
        rollout(envs, 1)


def test_a_reward_may_be_an_array_of_one_number():
    result = (FINE, np.array([2.5]), np.bool_(False), False, None)
    envs = Envs(own("Stepping"), 2, seed=0, env_kwargs={"result": result})
    envs.reset()
    assert rollout(envs, 1)[0].reward.tolist() == [2.5, 2.5]


def test_unknown_vectorization():
    with pytest.raises(UserError, match="did you mean 'async'"):
        Envs("CartPole-v1", 1, seed=0, vectorization="asyn")


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ("Acrobot-v1", {}, "envpool"),
        ("CartPole-v1", {"frame_stack": 2}, "frame_stack"),
        (f"{__name__}:Counter", {}, "sync"),
    ],
)
def test_no_native_version(env, options, said):
    with pytest.raises(UserError, match=said):
        Envs(env, 2, seed=0, vectorization="native", **options)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_errors_of_the_environment_come_through(vectorization):
    envs = Envs(own("Counter"), 2, seed=0, env_kwargs={"fail_at": 2}, vectorization=vectorization)
    envs.reset()
    with pytest.raises(RuntimeError, match="broken simulator"):
        rollout(envs, 2)
    envs.close()


def test_module_of_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("shadow = True\n")
    (tmp_path / "mine_envs_test.py").write_text(
        "import gymnasium\nimport agents\nassert agents.shadow\n"
        "def make(length=1):\n    return gymnasium.make('CartPole-v1', max_episode_steps=length)\n"
        "gymnasium.register('Mine-v0', make, max_episode_steps=4)\n"
    )
    monkeypatch.chdir(tmp_path)
    # pytest runs in the repository, whose own folder another test may have imported.
    monkeypatch.delitem(sys.modules, "agents", raising=False)
    envs = Envs("mine_envs_test:make", 1, seed=0, env_kwargs={"length": 2})
    envs.reset()
    assert rollout(envs, 2)[1].truncated[0]
    envs = Envs("mine_envs_test:Mine-v0", 1, seed=0, env_kwargs={"length": 99})
    envs.reset()
    assert rollout(envs, 4)[3].truncated[0]


SEVERAL = """
class Holds:
    def __init__(self): self.possible_agents = ["a", "b"]
class Announces:
    possible_agents: list
def make(): return Holds()
"""


@pytest.mark.parametrize("name", ["Announces", "make"])
def test_an_environment_of_several_agents_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "several_agents.py").write_text(SEVERAL)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="has several agents, and rltune trains one"):
        make_env(f"several_agents:{name}")
