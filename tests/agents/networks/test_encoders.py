from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent
from rltune.agents.config import OnPolicyConfig, make_config
from rltune.agents.errors import UserError
from rltune.agents.networks.actor_critic import ActorCritic
from rltune.agents.networks.distributions import make_distribution
from rltune.agents.networks.encoders import IMAGE_ENCODERS, Flat, NatureCNN, make_encoder
from rltune.agents.networks.layers import initialise
from rltune.agents.spaces import Spaces
from torch import nn

ACTION = spaces.Discrete(6)
NAMES = list(IMAGE_ENCODERS)


def images(*shape: int, dtype: Any = np.uint8) -> Spaces:
    high = 255 if dtype == np.uint8 else 1
    return Spaces(spaces.Box(0, high, shape, dtype), ACTION, 1)


VECTOR = Spaces(spaces.Box(-1, 1, (3,), np.float32), ACTION, 1)
ATARI = images(4, 84, 84)


class Dot(gymnasium.Env[Any, Any]):
    """A small image of bits, channels last as MinAtar's; says in which half the dot is."""

    observation_space = spaces.Box(0, 1, (10, 10, 4), np.bool_)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def _next(self) -> Any:
        self.place = self.np_random.integers(10, size=2)
        obs = np.zeros((10, 10, 4), np.bool_)
        obs[self.place[0], self.place[1], 1] = True
        return obs

    def step(self, action: Any) -> Any:
        reward = float(action == (self.place[1] > 4))
        self.steps += 1
        return self._next(), reward, self.steps >= 8, False, {}


# Units that come out, and parameters counted by hand from the papers for 4 x 84 x 84.
PAPERS = {
    "nature_cnn": (
        512,
        (4 * 64 + 1) * 32 + (32 * 16 + 1) * 64 + (64 * 9 + 1) * 64 + (7 * 7 * 64 + 1) * 512,
    ),
    "small_cnn": (256, (4 * 64 + 1) * 16 + (16 * 16 + 1) * 32 + (9 * 9 * 32 + 1) * 256),
    "impala_resnet": (
        256,
        (4 * 9 + 1) * 16
        + 4 * (16 * 9 + 1) * 16
        + (16 * 9 + 1) * 32
        + 4 * (32 * 9 + 1) * 32
        + (32 * 9 + 1) * 32
        + 4 * (32 * 9 + 1) * 32
        + (11 * 11 * 32 + 1) * 256,
    ),
}


@pytest.mark.parametrize("kind", NAMES)
def test_networks_for_images_are_those_of_the_papers(kind: str) -> None:
    encoder = make_encoder(ATARI, kind)
    size, n_parameters = PAPERS[kind]
    assert sum(p.numel() for p in encoder.parameters()) == n_parameters
    assert encoder.size == size
    bright = torch.full((2, 4, 84, 84), 255, dtype=torch.uint8)
    assert encoder(bright).shape == (2, size)
    as_floats = make_encoder(images(4, 84, 84, dtype=np.float32), kind)
    as_floats.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(encoder(bright), as_floats(torch.ones(2, 4, 84, 84)))


@pytest.mark.parametrize("kind", ["small_cnn", "impala_resnet"])
@pytest.mark.parametrize("side", [5, 10, 27, 28])
def test_small_images_are_read_too(kind: str, side: int) -> None:
    encoder = make_encoder(images(7, side, side), kind)
    obs = torch.zeros(2, 7, side, side, dtype=torch.uint8)
    assert encoder(obs).shape == (2, 256)
    # Every pixel counts.
    pixels = torch.rand(1, 7, side, side, requires_grad=True)
    initialise(encoder, 1.0, "orthogonal", torch.Generator().manual_seed(0))
    out = encoder.linear[0](encoder.convolutions(pixels))
    assert torch.autograd.grad(out.sum(), pixels)[0].ne(0).flatten(2).any(2).all()


@pytest.mark.parametrize(
    ("kind", "spaces_", "least"),
    [(kind, VECTOR, IMAGE_ENCODERS[kind].smallest) for kind in NAMES]
    + [("nature_cnn", images(4, 35, 84), 36), ("small_cnn", images(1, 4, 9), 5)],
)
def test_what_is_no_image_or_too_small_is_refused(kind: str, spaces_: Any, least: int) -> None:
    with pytest.raises(UserError, match=f"{kind} reads images of at least {least} x {least}"):
        make_encoder(spaces_, kind)


def test_auto_takes_what_fits() -> None:
    assert isinstance(make_encoder(ATARI, "auto"), NatureCNN)
    assert isinstance(make_encoder(VECTOR, "auto"), Flat)
    assert isinstance(make_encoder(images(4, 10, 10), "auto"), Flat)
    flat = make_encoder(ATARI, "mlp")
    assert isinstance(flat, Flat)
    assert flat(torch.full((1, 4, 84, 84), 255, dtype=torch.uint8)).max() == pytest.approx(1)
    assert flat.size == math.prod((4, 84, 84))


def weights(kind: str, seed: int) -> list[torch.Tensor]:
    nets = ActorCritic(
        images(4, 36, 36),
        make_distribution(ACTION),
        make_config(OnPolicyConfig, {"encoder": kind}),
        torch.Generator().manual_seed(seed),
    )
    obs = torch.zeros(2, 4, 36, 36, dtype=torch.uint8)
    assert nets(obs)[0].shape == (2, 6)
    assert nets(obs)[1].shape == (2,)
    return list(nets.encoder.parameters())


@pytest.mark.parametrize("kind", NAMES)
def test_weights_come_from_the_seed(kind: str) -> None:
    one = weights(kind, 0)
    torch.manual_seed(99)
    for a, b, c in zip(one, weights(kind, 0), weights(kind, 1), strict=True):
        assert torch.equal(a, b)
        assert a.ndim == 1 or not torch.equal(a, c)


def test_layer_norm_stands_before_the_activation_of_the_hidden_layer() -> None:
    encoder = make_encoder(ATARI, "small_cnn", layer_norm=True)
    norm, activation = encoder.linear[1]
    assert isinstance(norm, nn.LayerNorm)
    assert isinstance(activation, nn.ReLU)


SMALL_IMAGES = {
    "ppo": {"n_envs": 2, "n_steps": 16, "n_epochs": 1},
    "dqn": {"learning_starts": 8, "batch_size": 8, "buffer_size": 100},
}


@pytest.mark.parametrize("agent", SMALL_IMAGES)
@pytest.mark.parametrize("kind", ["small_cnn", "impala_resnet"])
def test_small_images_of_bits_reach_the_network_as_images(agent: str, kind: str) -> None:
    config = {**SMALL_IMAGES[agent], "encoder": kind}
    made = Agent(agent, "test_encoders:Dot", config, total_timesteps=32, device="cpu")
    assert made.algorithm.spaces.observation.shape == (4, 10, 10)
    assert made.learn(32).updates > 0
    assert made.evaluate(1).lengths == [8]
    plain = Agent(agent, "test_encoders:Dot", SMALL_IMAGES[agent], total_timesteps=32)
    assert plain.algorithm.spaces.observation.shape == (400,)
