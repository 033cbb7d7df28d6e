from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import DDPG, Agent, DDPGConfig
from rltune.agents.algorithms.noise import NormalNoise, OrnsteinUhlenbeckNoise, make_noise
from rltune.agents.errors import UserError
from rltune.agents.spaces import Spaces


def draws(noise: Any, steps: int, n_envs: int, seed: int = 0) -> np.ndarray[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([noise.draw(n_envs, generator) for _ in range(steps)]).numpy()


def test_normal_noise_has_its_std_and_no_memory() -> None:
    noise = draws(NormalNoise(2, 0.3), 5000, 3).reshape(5000, 6)
    assert noise.mean(0) == pytest.approx(np.zeros(6), abs=0.02)
    assert noise.std(0) == pytest.approx(np.full(6, 0.3), abs=0.01)
    assert np.corrcoef(noise[1:].T, noise[:-1].T) == pytest.approx(np.eye(12), abs=0.06)


def test_ornstein_uhlenbeck_noise_is_correlated_in_time_and_not_among_environments() -> None:
    theta, dt, std = 5.0, 0.05, 0.4  # a quarter is drawn back each step: quickly stationary
    noise = draws(OrnsteinUhlenbeckNoise(2, std, theta, dt), 20_000, 2)[100:].reshape(-1, 4)
    keep = 1 - theta * dt
    expected = std * np.sqrt(dt / (1 - keep**2))
    assert noise.std(0) == pytest.approx(np.full(4, expected), rel=0.04)
    for lag in (1, 2, 4):
        correlation = np.corrcoef(noise[lag:].T, noise[:-lag].T)[:4, 4:]
        assert correlation == pytest.approx(np.eye(4) * keep**lag, abs=0.04)


def test_ornstein_uhlenbeck_noise_begins_at_zero() -> None:
    first = [draws(OrnsteinUhlenbeckNoise(1, 0.2), 1, 1, seed).item() for seed in range(500)]
    assert np.std(first) == pytest.approx(0.2 * 0.1, rel=0.15)  # std sqrt(dt)


@pytest.mark.parametrize("kind", ["normal", "ornstein-uhlenbeck"])
def test_noise_goes_on_where_it_was_saved(kind: str) -> None:
    whole, second = make_noise(kind, 2, 0.1), make_noise(kind, 2, 0.1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        whole.draw(3, generator)
    second.load_state_dict(whole.state_dict())
    again = torch.Generator()
    again.set_state(generator.get_state())
    assert torch.equal(whole.draw(3, generator), second.draw(3, again))


def test_noise_of_no_kind_is_refused() -> None:
    with pytest.raises(UserError, match="noise_type"):
        make_noise("pink", 1, 0.1)


def test_the_noise_begins_anew_where_an_episode_ends() -> None:
    box = spaces.Box(-1, 1, (1,), np.float32)
    config = DDPGConfig(noise_type="ornstein-uhlenbeck", noise_std=0.2, net_arch=(4,))
    ddpg = DDPG(config, Spaces(box, box, 3), seed=0)
    for _ in range(10):
        ddpg.act(np.zeros((3, 1), np.float32), explore=True)
    noise: Any = ddpg.noise
    before = noise.value
    assert bool((before != 0).all())
    ddpg.episodes_ended(np.array([True, True, False]))
    assert (noise.value == 0).flatten().tolist() == [True, True, False]
    assert noise.value[2] == before[2]


def test_the_loop_says_which_episodes_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[bool]] = []
    monkeypatch.setattr(DDPG, "episodes_ended", lambda _, ended: told.append(ended.tolist()))
    config = {"n_envs": 2, "net_arch": [4], "learning_starts": 1000}
    agent = Agent("ddpg", "toy_envs:Aim", config, total_timesteps=100, device="cpu")
    chunk = agent.learn(100)
    agent.close()
    assert sum(map(sum, told)) == len(chunk.episodes) > 2
