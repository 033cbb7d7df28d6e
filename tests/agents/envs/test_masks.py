"""Action masks, from the environment to every agent's choice."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent, UserError
from rltune.agents.algorithms.dqn import DQN
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.envs.vector import Envs
from rltune.agents.loop.normalization import ObservationNormalizer
from rltune.agents.loop.video import play
from rltune.agents.memory.batch import Batch
from rltune.agents.networks.distributions import Categorical
from rltune.agents.spaces import FORBIDDEN, AugmentedBox, InputParts, Spaces, choose

from tests.parameters import quick

FENCED, PICTURE = "tests.agents.toy_envs:Fenced", "tests.agents.toy_envs:FencedPicture"
SMALL = {"net_arch": (16,), "learning_rate": 0.01, "n_envs": 4}
REPLAYED = {**SMALL, "learning_starts": 64, "batch_size": 32, "train_freq": 4, "buffer_size": 1000}
ROLLOUT = {**SMALL, "n_steps": 16}
AGENTS: dict[str, dict[str, Any]] = {
    "a2c": {**ROLLOUT, "normalize_advantage": True},
    "ppo": {**ROLLOUT, "batch_size": 32, "n_epochs": 4},
    "trpo": {**ROLLOUT, "n_steps": 32},
    "acer": {**ROLLOUT, "buffer_size": 1000, "replay_start": 64},
    "dqn": {**REPLAYED, "double": True, "dueling": True},
    "sac": REPLAYED,
}
RAINBOW = {
    **REPLAYED,
    "noisy": True,
    "distributional": "c51",
    "n_atoms": 11,
    "v_min": 0,
    "v_max": 2,
    "gamma": 0.5,
}
QR = {**REPLAYED, "distributional": "qr", "n_quantiles": 10, "prioritised": True}
PAIR = {"counts": (3, 4)}


def make(
    name: str, config: Any = None, env: str = FENCED, steps: int = 1000, **kwargs: Any
) -> Agent:
    return Agent(name, env, config or AGENTS[name], total_timesteps=steps, env_kwargs=kwargs)


class Odd(gymnasium.Env[Any, Any]):
    """Gives whatever masks it is told to give, one after the other."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)

    def __init__(self, masks: list[Any], action: Any = None, ends: bool = False) -> None:
        self.masks = masks
        self.action_space = spaces.Discrete(2) if action is None else action
        self.ends = ends

    def _info(self) -> Any:
        mask = self.masks[min(self.steps, len(self.masks) - 1)]
        return {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.zeros(2, np.float32), self._info()

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, self.ends, False, self._info()


def odd(masks: list[Any], **kwargs: Any) -> Envs:
    return Envs(f"{__name__}:Odd", 1, seed=0, env_kwargs={"masks": masks, **kwargs})


# ------------------------------------------------------------------------------------ environments


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("where", ["info", "dict"])
def test_bits_follow_the_observation(where: str, vectorization: str) -> None:
    envs = Envs(FENCED, 2, seed=0, env_kwargs={"where": where}, vectorization=vectorization)
    space = envs.single_observation_space
    assert isinstance(space, AugmentedBox)
    assert (space.shape, space.dtype, space.inner.shape) == ((6,), np.float32, (2,))
    obs = envs.reset()
    for _ in range(20):
        assert set(np.unique(obs[:, 2:])) <= {0, 1}
        assert obs[:, 2:].any(1).all()
        step = envs.step(3 - obs[:, :1:-1].argmax(1))  # the last allowed one
        np.testing.assert_array_equal(step.reward, 1.0)
        obs = step.obs
    envs.close()


def test_masks_of_images_make_a_flat_vector_of_bytes() -> None:
    envs = Envs(PICTURE, 1, seed=0)
    obs = envs.reset()
    assert obs.dtype == np.uint8
    assert obs.shape == (1, 36 * 36 + 3)
    assert InputParts(envs.single_observation_space).observation(torch.from_numpy(obs)).shape == (
        1,
        1,
        36,
        36,
    )


def test_gymnasiums_own_masks_are_read() -> None:
    envs = Envs("Taxi-v3", 2, seed=0)
    assert envs.reset().shape == (2, 500 + 6)


def test_a_tuple_of_masks_is_one_after_the_other() -> None:
    mask = (np.array([1, 0]), np.array([0, 1, 1]))
    obs = odd([mask], action=spaces.MultiDiscrete([2, 3])).reset()
    np.testing.assert_array_equal(obs[0, 2:], [1, 0, 0, 1, 1])


def test_nothing_is_chosen_after_a_termination_so_nothing_need_be_allowed() -> None:
    for last in (None, [0, 0]):
        envs = odd([[1, 0], last], ends=True)
        envs.reset()
        np.testing.assert_array_equal(envs.step(np.array([0])).next_obs[0, 2:], [1, 1])


@pytest.mark.parametrize(
    ("masks", "kwargs", "said"),
    [
        ([[1, 1, 1]], {}, "has 3 entries, but Discrete.2. needs 2"),
        ([[0, 0]], {}, "forbids every action"),
        ([[1, 0, 0, 0, 0]], {"action": spaces.MultiDiscrete([2, 3])}, "of each choice"),
        ([[1, 1], None], {}, "only sometimes"),
        ([[1, 1]], {"action": spaces.Box(-1, 1, (2,))}, "for actions in a Box space"),
        ([[1, 1]], {"action": spaces.MultiBinary(2)}, "for actions in a MultiBinary space"),
    ],
)
def test_masks_that_cannot_be_heeded(masks: list[Any], kwargs: Any, said: str) -> None:
    def step() -> None:
        envs = odd(masks, **kwargs)
        envs.reset()
        envs.step(np.zeros(1, np.int64))

    with pytest.raises(UserError, match=said):
        step()


def test_masks_that_come_late_are_noticed() -> None:
    envs = odd([None])
    envs.reset()
    envs._backend._envs[0].masks = [[1, 0]]  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="only sometimes"):
        envs.reset()


# ------------------------------------------------------------------------------------------- parts


def test_forbidden_actions_have_no_probability_and_the_others_those_of_a_softmax() -> None:
    parts = InputParts(AugmentedBox(spaces.Box(-1, 1, (2,), np.float32), 3))
    seen = torch.tensor([[0.3, -0.2, 1, 0, 1]])
    logits = torch.tensor([[0.4, 5.0, -1.0]], requires_grad=True)
    allowed = parts.allow(logits, seen)
    log_prob, entropy = Categorical(3).evaluate(allowed, torch.tensor([[2]]))
    plain = torch.tensor([0.4, -1.0]).log_softmax(0)
    torch.testing.assert_close(log_prob, plain[1:])
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(0, keepdim=True))
    assert allowed.softmax(-1)[0, 1] == 0
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
    assert gradient[0, 1] == 0
    assert gradient.isfinite().all()
    assert Categorical(3).kl(allowed, allowed).tolist() == [0]


def test_random_choices_are_uniform_among_the_allowed() -> None:
    mask = torch.tensor([[0, 1, 0, 1, 1]]).bool().expand(6, -1)
    uniform = torch.tensor([0.0, 0.33, 0.34, 0.66, 0.67, 1 - 2**-24])
    assert choose(uniform, mask).tolist() == [1, 1, 3, 3, 4, 4]


def test_normalisation_leaves_the_bits_alone() -> None:
    rows = np.array([[5.0, 1, 0], [7.0, 1, 1]], np.float32)
    normalizer = ObservationNormalizer((3,), n_rest=2)
    for _ in range(100):
        normalizer.update(rows)
    result = normalizer.normalize(rows)
    np.testing.assert_array_equal(result[:, 1:], rows[:, 1:])
    np.testing.assert_allclose(result[:, 0], [-1, 1], atol=1e-3)


# ------------------------------------------------------------------------------------------ agents


@pytest.mark.parametrize(
    ("name", "config", "kwargs"),
    [
        *((name, None, {}) for name in AGENTS),
        ("ppo", None, PAIR),
        *quick([], [(name, None, PAIR) for name in ("a2c", "trpo", "sac")]),
        *quick([], [("dqn", RAINBOW, {}), ("dqn", QR, {})]),
    ],
)
def test_agents_never_take_what_is_forbidden_and_learn(name: str, config: Any, kwargs: Any) -> None:
    agent = make(name, config, **kwargs)  # the environment raises when it is taken
    chunk = agent.learn(1000)
    assert chunk.updates
    assert agent.diverged is None
    parameters = agent.algorithm.nets.parameters()  # type: ignore[attr-defined]
    assert all(parameter.isfinite().all() for parameter in parameters)
    assert agent.evaluate(20).mean > 6.5  # of 8; at random 4


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_images_are_masked_too(name: str) -> None:
    config = {**AGENTS[name], "n_steps": 8} if name == "ppo" else AGENTS[name]
    agent = make(name, config, PICTURE, 80)
    assert agent.learn(80).updates
    assert agent.evaluate(2, max_steps=5).lengths == [5, 5]


def test_playing_is_evaluating() -> None:
    agent = make("ppo", env="Taxi-v3", steps=64)
    agent.learn(64)
    assert play(agent, 2, seed=3, max_steps=6).returns == agent.evaluate(2, 3, 6).returns


@pytest.mark.parametrize("name", AGENTS)
def test_the_two_ways_to_offer_masks_are_one_and_resuming_is_bit_equal(
    name: str, tmp_path: Any
) -> None:
    finals = []
    for where in ("info", "dict"):
        agent = make(name, where=where)
        agent.learn(300)
        if where == "dict":
            agent.save(tmp_path / "agent.pt")
            agent = Agent.load(tmp_path / "agent.pt")
        agent.evaluate(2)
        agent.learn(400)
        finals.append(agent.algorithm.nets.state_dict())  # type: ignore[attr-defined]
    for key, tensor in finals[0].items():
        assert torch.equal(tensor, finals[1][key]), key


@pytest.mark.parametrize("double", [False, True])
def test_the_target_never_values_a_forbidden_successor_action(double: bool) -> None:
    space = AugmentedBox(spaces.Box(-1, 1, (2,), np.float32), 3)
    config = DQNConfig(double=double, net_arch=(8,))
    agent = DQN(config, Spaces(space, spaces.Discrete(3), 1), seed=0)
    obs = torch.randn(64, 5)
    obs[:, 2:] = 0
    obs[torch.arange(64), 2 + torch.arange(64) % 3] = 1  # one action is allowed
    n = torch.zeros(64)
    batch = agent.td_targets.of(Batch(obs, n.long(), n, obs, n + 1))
    expected = agent.target.module(obs)[torch.arange(64), torch.arange(64) % 3, 0]
    torch.testing.assert_close(batch.target, expected)
    assert batch.target.abs().max() < -FORBIDDEN / 2


def test_the_entropy_that_sac_aims_at_is_that_of_the_allowed_actions() -> None:
    agent = make("sac", **PAIR)
    algorithm: Any = agent.algorithm
    obs = torch.tensor([[0.0, 0, 1, 1, 0, 1, 1, 1, 1], [0.0, 0, 1, 0, 0, 1, 0, 0, 0]])
    target = algorithm.target_entropy.of(obs)
    assert target.tolist() == pytest.approx([0.89 * np.log(2) / 2, 0.89 * np.log(4) / 2])
