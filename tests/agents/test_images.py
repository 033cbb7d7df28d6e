"""Images beside other numbers in one observation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent
from rltune.agents.config import make_config
from rltune.agents.envs.vector import Envs
from rltune.agents.images import with_images
from rltune.agents.loop.normalization import ObservationNormalizer
from rltune.agents.memory.pixels import MixedRows
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.networks.encoders import Combined, NatureCNN, make_encoder
from rltune.agents.registry import agent_class
from rltune.agents.spaces import InputParts, Mixed, Spaces
from toy_envs import Camera

ENV = "toy_envs:Camera"
SMALL = {"side": 8}
PIXELS = 8 * 8 * 3


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # small images: threads cost more than they bring
    yield
    torch.set_num_threads(before)


def mixed_spaces(**options: Any) -> Spaces:
    envs = Envs(ENV, 1, seed=0, env_kwargs=SMALL, small_images=True, **options)
    return Spaces(envs.single_observation_space, envs.single_action_space, 1)


def test_numbers_come_first_and_pixels_behind_them_channels_first() -> None:
    envs = Envs(ENV, 2, seed=0)
    space = envs.single_observation_space
    assert isinstance(space, Mixed)
    assert space.images == ((3, 36, 36),)
    assert (space.n_vector, space.shape) == (3, (3 + 3 * 36 * 36,))
    obs = envs.reset()
    assert set(np.unique(obs[:, 0])) <= {-1.0, 1.0}
    np.testing.assert_array_equal(obs[:, 1:3], [[1, 0], [1, 0]])
    assert set(np.unique(obs[:, 3:])) <= {20.0, 220.0}
    env = Camera(8)
    picture, *_ = env.reset(seed=3)
    picture["picture"][2, 5, 1] = 99
    wrapped: Any = with_images(env, 0, small=True)
    row = wrapped.observation(picture)
    assert row[3:].reshape(3, 8, 8)[1, 2, 5] == 99


def test_frames_of_a_picture_become_its_channels() -> None:
    one, two = (mixed_spaces(frame_stack=n).observation for n in (0, 2))
    assert isinstance(one, Mixed)
    assert isinstance(two, Mixed)
    assert (one.images, one.n_vector) == (((3, 8, 8),), 3)
    assert (two.images, two.n_vector) == (((6, 8, 8),), 6)
    envs = Envs(ENV, 1, seed=0, env_kwargs=SMALL, small_images=True, frame_stack=2)
    first = envs.reset()[0]
    second = envs.step(np.zeros(1, np.int64)).obs[0]
    np.testing.assert_array_equal(second[:3], first[3:6])
    np.testing.assert_array_equal(second[6 : 6 + PIXELS], first[6 + PIXELS :])


def test_small_images_beside_numbers_are_numbers_unless_an_encoder_reads_them() -> None:
    obs = Envs(ENV, 1, seed=0, env_kwargs=SMALL).single_observation_space
    assert not isinstance(obs, Mixed)
    assert obs.shape == (3 + PIXELS,)


def test_each_image_has_a_network_and_the_numbers_stand_beside_what_it_says() -> None:
    space = Mixed(np.zeros(2), np.ones(2), ((3, 36, 36), (1, 40, 50)))
    encoder = make_encoder(Spaces(space, spaces.Discrete(2), 1), "auto")
    assert isinstance(encoder, Combined)
    assert [type(part) for part in encoder.encoders] == [NatureCNN, NatureCNN]
    assert encoder.size == 2 + 2 * NatureCNN.size
    obs = torch.randint(0, 256, (4, space.shape[0])).float()
    read = encoder(obs)
    torch.testing.assert_close(read[:, :2], obs[:, :2])
    picture = obs[:, 2 : 2 + 3 * 36 * 36].view(4, 3, 36, 36)
    torch.testing.assert_close(read[:, 2:514], encoder.encoders[0](picture))


@pytest.mark.parametrize(
    ("agent", "config"),
    [
        ("a2c", {}),
        ("acer", {"n_envs": 2}),
        ("ddpg", {}),
        ("dqn", {"n_envs": 2}),
        ("ppo", {"n_steps": 32, "n_epochs": 1}),
        ("ppo", {"n_steps": 32, "n_epochs": 1, "lstm_size": 4, "sequence_length": 8}),
        ("sac", {}),
        ("sac", {"lstm_size": 4, "sequence_length": 4, "burn_in": 2}),
        ("td3", {}),
        ("trpo", {"n_steps": 16, "n_critic_updates": 1}),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_every_agent_reads_them_and_a_checkpoint_goes_on(
    agent: str, config: dict[str, Any], masked: bool, tmp_path: Any
) -> None:
    box = agent in ("ddpg", "td3")
    if masked and box:
        pytest.skip("masks are for choices")
    config = {"encoder": "small_cnn", "net_arch": "8", **config}
    if "buffer_size" in agent_class(agent).Config.__dataclass_fields__:
        config["buffer_size"] = 200
    if "learning_starts" in agent_class(agent).Config.__dataclass_fields__:
        config |= {"learning_starts": 20, "train_freq": 10, "batch_size": 16}
    kwargs = {**SMALL, "box": box, "masked": masked}
    made = Agent(agent, ENV, config, total_timesteps=96, env_kwargs=kwargs)
    assert made.learn(48).diverged is None
    made.save(tmp_path / "half.pt")
    resumed = Agent.load(tmp_path / "half.pt")
    for each in (made, resumed):
        assert each.learn(96).updates
    assert made.evaluate(2).returns == resumed.evaluate(2).returns
    weights, others = (entry.algorithm.state_dict() for entry in (made, resumed))
    torch.testing.assert_close(others, weights, rtol=0, atol=0)
    made.close(), resumed.close()


@pytest.mark.slow
def test_picture_and_number_are_both_needed_and_learned() -> None:
    config = {"encoder": "small_cnn", "learning_rate": 1e-3, "n_steps": 64, "batch_size": 128}
    agent = Agent("ppo", ENV, config, total_timesteps=12_000, env_kwargs=SMALL)
    agent.learn(12_000)
    assert agent.evaluate(10).mean > 7.5  # of 8; the picture or the number alone say nothing


def test_a_replay_memory_keeps_pixels_as_bytes() -> None:
    made = mixed_spaces()
    memory = ReplayMemory(100, made, (), np.int64, gamma=0.9)
    rows = memory.observations
    assert isinstance(rows, MixedRows)
    assert rows.pixels.dtype == np.uint8
    assert rows.pixels.shape[-1] == PIXELS
    assert rows.frames.shape[-1] == 3
    rng = np.random.default_rng(0)
    seen = [
        np.concatenate([rng.normal(size=3), rng.integers(0, 256, PIXELS)]).astype(np.float32)[None]
        for _ in range(7)
    ]
    for i in range(6):
        ended = np.array([i == 3])
        nothing = np.zeros(1, np.bool_)
        memory.add(
            obs=seen[i], action=np.array([i]), reward=np.zeros(1), terminated=nothing,
            truncated=ended, next_obs=seen[6] if i == 3 else seen[i + 1], valid=~nothing,
        )  # fmt: skip
    other = ReplayMemory(100, made, (), np.int64, gamma=0.9)
    other.load_state_dict(memory.state_dict())
    for each in (memory, other):
        batch = each.sample(50, torch.Generator().manual_seed(0))
        for obs, action, next_obs in zip(batch.obs, batch.action, batch.next_obs, strict=True):
            i = int(action)
            np.testing.assert_array_equal(obs, seen[i][0])
            np.testing.assert_array_equal(next_obs, seen[6 if i == 3 else i + 1][0])


def test_pixels_are_not_normalised() -> None:
    parts = InputParts(mixed_spaces().observation)
    normalizer = ObservationNormalizer(parts.shape, n_rest=PIXELS)
    rng = np.random.default_rng(0)
    obs = np.concatenate([rng.normal(5, 3, (500, 3)), np.full((500, PIXELS), 220.0)], 1)
    normalizer.update(obs)
    out = normalizer.normalize(obs)
    assert np.abs(out[:, :3].mean(0)).max() < 0.01
    assert (out[:, 3:] == 220).all()
    older = {"mean": torch.zeros(3 + PIXELS), "var": torch.ones(3 + PIXELS), "count": 1.0}
    normalizer.load_state_dict(older)  # of a version that had statistics of the rest, too
    np.testing.assert_allclose(normalizer.normalize(obs)[:, :3], np.clip(obs[:, :3], -10, 10), 1e-5)


def test_agents_of_the_tuner_get_these_networks_by_default() -> None:
    made = Envs(ENV, 1, seed=0)
    where = Spaces(made.single_observation_space, made.single_action_space, 1)
    for name in ("ppo", "dqn", "sac"):
        kind = agent_class(name)
        algorithm: Any = kind(make_config(kind.Config, {}), where, seed=0)
        layers = [type(layer).__name__ for layer in algorithm.nets.modules()]
        assert "Combined" in layers
        assert "NatureCNN" in layers
