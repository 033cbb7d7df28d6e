from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import rltune.agents
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import (
    ALIASES,
    AgentConfig,
    canonical_name,
    config_dict,
    config_hash,
    fixed,
    hp,
    hyperparameters,
    make_config,
)
from rltune.agents.errors import UserError


def test_values_are_coerced() -> None:
    config = make_config(
        PPOConfig,
        {
            "learning_rate": "lin_2.5e-4",
            "n_steps": "1e3",
            "batch-size": 64.0,
            "gamma": "0.9",
            "use_sde": "yes",
            "net_arch": "64, 32",
            "target_kl": None,
            "clip_range": 1,
        },
    )
    assert config.learning_rate == "lin_2.5e-4"
    assert (config.n_steps, config.batch_size, config.gamma) == (1000, 64, 0.9)
    assert isinstance(config.n_steps, int)
    assert isinstance(config.clip_range, float)
    assert config.use_sde is True
    assert config.net_arch == (64, 32)
    assert config.target_kl == PPOConfig().target_kl


@pytest.mark.parametrize(
    ("alias", "own", "value"),
    [
        ("num_steps", "n_steps", 64),
        ("num-envs", "n_envs", 4),
        ("update_epochs", "n_epochs", 3),
        ("clip_coef", "clip_range", 0.1),
        ("lr", "learning_rate", 1e-3),
        ("lambda", "gae_lambda", 0.9),
        ("clip_param", "clip_range", 0.3),
        ("entropy_coeff", "ent_coef", 0.01),
        ("num_minibatches", "n_minibatches", 4),
        ("mini-batches", "n_minibatches", 4),
        ("value_loss_coef", "vf_coef", 0.3),
    ],
)
def test_aliases_are_accepted(alias: str, own: str, value: Any) -> None:
    assert canonical_name(PPOConfig, alias) == own
    assert getattr(make_config(PPOConfig, {alias: value}), own) == value


def test_every_alias_means_a_hyperparameter_of_some_agent() -> None:
    configs = [getattr(rltune.agents, name) for name in rltune.agents.__all__ if "Config" in name]
    ours = {name for config in configs for name in hyperparameters(config)}
    assert "cg_max_steps" in ours
    assert set(ALIASES.values()) - ours == {"input"}  # RLlib's alone
    assert not set(ALIASES) & ours


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gama": 0.9}, "space.yaml:3: unknown hyperparameter 'gama'; did you mean 'gamma'"),
        ({"xyz": 1}, r"unknown hyperparameter 'xyz'; the nearest of \d+ are: (\w+, ){4}\w+\.$"),
        ({"gamma": 1.5}, "gamma is 1.5, but must be between 0 and 1"),
        ({"learning_rate": -1}, "learning_rate is -1, but must be at least 0"),
        ({"learning_rate": "fast"}, "a number or a schedule such as lin_1e-3"),
        ({"learning_rate": "lin_"}, "learning_rate is 'lin_'"),
        ({"learning_rate": "nan"}, "learning_rate is 'nan'"),
        ({"gamma": "lin_0.9"}, "gamma is 'lin_0.9', but must be a number$"),
        ({"n_steps": 1.5}, "n_steps is 1.5, but must be a whole number"),
        ({"n_steps": True}, "n_steps is True"),
        ({"n_steps": 0}, "must be at least 1"),
        ({"use_sde": "maybe"}, "use_sde is 'maybe', but must be true or false"),
        ({"activation": "tahn"}, "unknown activation 'tahn'; did you mean 'tanh'"),
        ({"net_arch": [64, 0]}, "must be between 1 and"),
        ({"optimizer": [3]}, r"optimizer is \[3\], but must be a text"),
        ({"lr": 1e-3, "learning_rate": 1e-3}, "lr and learning_rate are the same"),
    ],
)
def test_mistakes_are_explained(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        make_config(PPOConfig, values, "space.yaml:3")
    assert str(error.value).startswith("space.yaml:3: ")


def test_a_configuration_survives_json() -> None:
    config = make_config(PPOConfig, {"net_arch": [8], "learning_rate": "lin_1e-3"})
    assert make_config(PPOConfig, json.loads(json.dumps(config_dict(config)))) == config


def test_defaults_lie_in_their_own_ranges() -> None:
    for parameter in hyperparameters(PPOConfig).values():
        assert parameter.help
        if parameter.low is not None and parameter.high is not None:
            assert parameter.minimum <= parameter.low < parameter.high <= parameter.maximum
        if parameter.choices is not None:
            assert parameter.default in parameter.choices


def test_the_hash_names_the_values() -> None:
    one = config_hash({"a": 1, "b": [0.5, 2.0]})
    assert len(one) == 12
    assert one == config_hash({"b": (0.5, 2), "a": 1.0})
    assert one != config_hash({"a": 1, "b": [0.5, 3]})


def test_a_configuration_of_ones_own() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(AgentConfig):
        spice: float = hp(1.0, low=0.1, high=2.0, scale="log", help="how hot")

    known = hyperparameters(Mine)
    assert list(known)[-1] == "spice"
    assert known["spice"].scale == "log"
    assert known["gamma"].type == "float"
    assert make_config(Mine, {"spice": "2"}).spice == 2.0
    with pytest.raises(UserError, match="'num_steps'"):
        make_config(Mine, {"num_steps": 5})


def test_configurations_need_no_torch() -> None:
    code = "import sys, rltune.agents.config, rltune.agents.registry; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_number_given_as_text_keeps_all_its_digits() -> None:
    from rltune.agents.algorithms.sac import SACConfig

    assert float(make_config(SACConfig, {"ent_coef": 0.123456789}).ent_coef) == 0.123456789


def test_a_hyperparameter_of_the_class_above_may_be_none_of_this_one() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Fixed(AgentConfig):
        gamma: float = fixed(0.5)

    assert "gamma" not in hyperparameters(Fixed)
    assert Fixed().gamma == 0.5
    assert "gamma" not in config_dict(Fixed())
    assert make_config(Fixed, config_dict(Fixed(learning_rate=1e-2))) == Fixed(learning_rate=1e-2)
    with pytest.raises(UserError, match="unknown hyperparameter 'gamma'"):
        make_config(Fixed, {"gamma": 0.9})
