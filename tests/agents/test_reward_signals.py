"""The spelling of reward signals."""

from __future__ import annotations

from typing import Any

import pytest
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.algorithms.sac_config import SACConfig
from rltune.agents.config import make_config
from rltune.agents.errors import UserError
from rltune.agents.reward_signals import signals_of, spelled_out, value_streams


def test_nested_signals_mean_hyperparameters() -> None:
    signals = {
        "extrinsic": {"strength": 2, "gamma": 0.9},
        "curiosity": {"strength": 0.02, "gamma": 0.95, "encoding_size": 64, "learning_rate": 1e-3},
        "rnd": None,
    }
    made = make_config(PPOConfig, {"reward-signals": signals, "n_steps": 16})
    assert (made.extrinsic_strength, made.gamma, made.n_steps) == (2, 0.9, 16)
    assert (made.curiosity_strength, made.curiosity_gamma, made.curiosity_size) == (0.02, 0.95, 64)
    assert made.curiosity_learning_rate == 1e-3
    assert made.rnd_strength == 1.0
    assert signals_of(made) == ["curiosity", "rnd"]


def test_a_signal_of_ones_own_stands_beside_ours() -> None:
    signals = {"mine:Signal": {"strength": 0.1, "learning_rate": 1e-3}, "rnd": {}}
    made = make_config(PPOConfig, {"reward_signals": signals})
    assert (made.custom_signal, made.custom_strength) == ("mine:Signal", 0.1)
    assert made.custom_learning_rate == 1e-3
    assert signals_of(made) == ["rnd", "custom"]
    assert value_streams(made) == 3


def test_values_are_as_many_as_the_agent_and_the_user_want() -> None:
    signals = {"reward_signals": {"rnd": {}, "curiosity": {}}}
    assert value_streams(make_config(PPOConfig, signals)) == 3
    assert value_streams(make_config(SACConfig, signals)) == 3
    assert value_streams(make_config(SACConfig, {**signals, "shared_value": True})) == 1
    assert value_streams(make_config(DQNConfig, signals)) == 1
    assert value_streams(make_config(PPOConfig, {})) == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"reward_signals": 3}, "reward_signals is 3, but must be such as {rnd: {strength: 0.1}}"),
        ({"reward_signals": {"rnd": 1}}, "reward_signals.rnd is 1, but must be such as"),
        ({"reward_signals": {"gial": {}}}, "reward signal 'gial'.*did you mean 'gail'"),
        (
            {"reward_signals": {"rnd": {"stregth": 1}}},
            "reward_signals.rnd.*did you mean 'strength'",
        ),
        ({"reward_signals": {"rnd": {"strength": -1}}}, "rnd_strength is -1, but must be at least"),
        ({"reward_signals": {"rnd": {}}, "rnd_strength": 1}, "are the same; keep one"),
        ({"custom_strength": 1}, "custom_strength needs a signal; name one of a plug-in"),
        ({"reward_signals": {"a:B": {}, "c:D": {}}}, "has a:B and c:D; an agent has one signal"),
        ({"gail_strength": 1}, "gail needs demonstrations; name a file: --demonstrations FILE"),
        ({"rnd_strength": 1, "rnd_gamma": 0.9, "shared_value": True}, "leave rnd_gamma out"),
    ],
)
def test_mistakes_are_said_in_a_sentence(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_config(PPOConfig, values)


def test_signals_reward_single_steps() -> None:
    with pytest.raises(UserError, match=r"rnd_strength needs n_step 1.*give --n-step 1"):
        make_config(DQNConfig, {"rnd_strength": 1, "n_step": 3})


def test_what_has_no_signals_stays_as_it_is() -> None:
    values = {"n_steps": 16, "gamma": 0.9}
    assert spelled_out(values) == values
