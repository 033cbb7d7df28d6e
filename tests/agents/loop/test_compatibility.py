"""Compatibility checks: misfits are found before a search is spent on them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from rltune.agents.errors import UserError
from rltune.agents.loop.compatibility import check_fit


class Env(gymnasium.Env[Any, Any]):
    """Fails in its first step as it is told; counts those that were closed."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    closed = 0

    def __init__(self, error: Exception | None = None, size: int = 2) -> None:
        self.error, self.size = error, size

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        if self.error is not None:
            raise self.error
        return np.zeros(self.size, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        type(self).closed += 1


OWN = f"{__name__}:Env"


@pytest.mark.parametrize(
    ("agent", "env", "kwargs", "said"),
    [
        ("dqn", "Pendulum-v1", {}, "dqn chooses among discrete actions"),
        ("acer", "Pendulum-v1", {}, "use ppo"),
        ("td3", "CartPole-v1", {}, "Discrete"),
        ("ppo", "CartPol-v1", {}, "CartPole-v1"),
        ("ppo", OWN, {"size": 3}, "step() gave an observation of shape (3,)"),
        ("pp0", "CartPole-v1", {}, "did you mean 'ppo'"),
    ],
)
def test_what_does_not_fit_is_told(agent: str, env: str, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        check_fit(agent, env, [{}], kwargs)
    assert said in str(error.value)


@pytest.mark.parametrize("agent", ["a2c", "acer", "dqn", "ppo", "sac", "trpo"])
def test_what_fits_passes(agent: str) -> None:
    check_fit(agent, "CartPole-v1", [{}, {"net_arch": [8]}])


def test_memory_makes_no_odds() -> None:
    check_fit("dqn", "CartPole-v1", [{"buffer_size": 10**15}])


def test_a_simulator_that_fails_is_left_to_the_trials() -> None:
    closed = Env.closed
    configs: list[dict[str, Any]] = [{}, {"gamma": 0.5}]
    check_fit("ppo", OWN, configs, {"error": RuntimeError("no licence")})
    assert Env.closed == closed + 1  # one environment serves both
