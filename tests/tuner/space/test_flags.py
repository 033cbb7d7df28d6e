from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import hyperparameters
from rltune.agents.errors import UserError
from rltune.space.dimensions import Dimension
from rltune.space.space import dimension_from_values, parse_override

# A busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

HP = hyperparameters(PPOConfig)


def plain(found: tuple[str, Any]) -> tuple[str, Any]:
    name, value = found
    if isinstance(value, Dimension):
        assert value.name == name
        return name, value.to_dict()
    return name, value


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("learning_rate=1e-5..1e-2:log", "learning_rate", {"log": [1e-5, 1e-2]}),
        ("learning_rate=1e-5..1e-2", "learning_rate", {"log": [1e-5, 1e-2]}),
        ("learning-rate = 1e-5..1e-2:uniform", "learning_rate", {"uniform": [1e-5, 1e-2]}),
        ("lr=1e-5..1e-2", "learning_rate", {"log": [1e-5, 1e-2]}),
        ("n_steps=32..2048:pow2", "n_steps", {"pow2": [32, 2048]}),
        ("n_steps=32..2048", "n_steps", {"pow2": [32, 2048]}),
        ("n_steps=10..300", "n_steps", {"int": [10, 300], "log": True}),
        ("gamma=0.9..0.9999:one_minus_log", "gamma", {"one_minus_log": [0.9, 0.9999]}),
        ("gamma=.9...99", "gamma", {"one_minus_log": [0.9, 0.99]}),
        ("log_std_init=-3..1", "log_std_init", {"uniform": [-3.0, 1.0]}),
        ("n_epochs=1..20:int", "n_epochs", {"int": [1, 20]}),
        ("n_epochs=1..20", "n_epochs", {"int": [1, 20]}),
        ("n_epochs=1..20:log", "n_epochs", {"int": [1, 20], "log": True}),
        ("n_epochs=1..20:uniform", "n_epochs", {"int": [1, 20]}),
        ("n_epochs=5,10,20", "n_epochs", {"choice": [5, 10, 20]}),
        ("optimizer=adam,rmsprop", "optimizer", {"choice": ["adam", "rmsprop"]}),
        ("optimizer=adam", "optimizer", "adam"),
        ("normalize_rewards=true,false", "normalize_rewards", {"choice": [True, False]}),
        ("ent_coef=0.01", "ent_coef", 0.01),
        ("batch_size=1e2", "batch_size", 100),
        ("learning_rate=lin_1e-3", "learning_rate", "lin_1e-3"),
        ("learning_rate=lin_1e-3,1e-3", "learning_rate", {"choice": ["lin_1e-3", 1e-3]}),
        ("net_arch=64,64", "net_arch", [64, 64]),
        ("net_arch=[64]", "net_arch", [64]),
        ("net_arch=[64,64],[256]", "net_arch", {"choice": [[64, 64], [256]]}),
    ],
)
def test_dash_s(text: str, name: str, expected: object) -> None:
    assert plain(parse_override(text, HP)) == (name, expected)


@pytest.mark.parametrize(
    ("flag", "values", "name", "expected"),
    [
        ("--learning-rate", ["1e-5", "1e-2"], "learning_rate", {"log": [1e-5, 1e-2]}),
        ("learning_rate", ["1e-5", "1e-2"], "learning_rate", {"log": [1e-5, 1e-2]}),
        ("n_epochs", ["1", "20"], "n_epochs", {"int": [1, 20]}),
        ("n_steps", ["32", "1024"], "n_steps", {"pow2": [32, 1024]}),
        ("gamma", ["0.9", "0.999"], "gamma", {"one_minus_log": [0.9, 0.999]}),
        ("gamma", ["0.9", "0.99", "0.999"], "gamma", {"choice": [0.9, 0.99, 0.999]}),
        ("gamma", ["0.9"], "gamma", 0.9),
        ("clip-coef", ["lin_0.2", "0.1"], "clip_range", {"choice": ["lin_0.2", 0.1]}),
        ("optimizer", ["adam", "rmsprop"], "optimizer", {"choice": ["adam", "rmsprop"]}),
        ("normalize_rewards", ["true", "false"], "normalize_rewards", {"choice": [True, False]}),
        ("net_arch", ["64,64"], "net_arch", [64, 64]),
        ("net_arch", ["64,64", "256"], "net_arch", {"choice": [[64, 64], [256]]}),
    ],
)
def test_a_flag_with_values(flag: str, values: list[str], name: str, expected: object) -> None:
    assert plain(dimension_from_values(flag, values, HP)) == (name, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "-s x: write NAME=LOW..HIGH:SCALE, NAME=A,B,C or NAME=VALUE"),
        ("gamma=", "-s gamma=: write NAME="),
        ("gama=1", "-s gama=1: unknown hyperparameter 'gama'; did you mean 'gamma'?"),
        ("gamma=0.9..0.99:logg", "unknown scale 'logg'; did you mean 'log'?"),
        ("gamma=0.9..0.99:choice", "unknown scale 'choice'"),
        ("gamma=0.99..0.9", "one_minus_log needs two numbers [low, high] with 0 <= low < high < 1"),
        ("gamma=0.9..1", "got [0.9, 1]; for another scale write -s gamma=0.9..1:uniform"),
        ("gamma=0.9..2:uniform", "gamma is 2.0, but must be between 0 and 1"),
        ("n_steps=30..64:pow2", "pow2 needs two powers of two [low, high] with low < high"),
        (
            "n_epochs=0.5..2",
            "int needs two whole numbers [low, high] with low < high; got [0.5, 2]",
        ),
        ("n_epochs=1..9:one_minus_log", "one_minus_log needs"),
        ("n_epochs=0..9", "n_epochs is 0, but must be at least 1"),
        ("n_epochs=3,3", "the choice 3 is there twice; remove one"),
        ("optimizer=adam..rmsprop", "unknown optimizer 'adam..rmsprop'"),
        ("optimizer=1..2", "optimizer is not a number; write {choice: [...]} with its values"),
        ("gamma=[", "'[' is not a value or a list of values"),
        ("gamma={a: 1}", "gamma is {'a': 1}, but must be a number"),
        ("gamma=,", "',' is not a value or a list of values"),
        ("gamma=null", "gamma is None, but must be a number"),
    ],
)
def test_mistakes_show_what_was_typed(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_override(text, HP)
    assert str(caught.value).startswith(f"-s {text}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "values", "message"),
    [
        ("--gama", ["1"], "--gama 1: unknown hyperparameter 'gama'; did you mean 'gamma'?"),
        ("--gamma", [], "--gamma: needs a value"),
        ("--gamma", ["0.9", "1"], "--gamma 0.9 1: one_minus_log needs two numbers"),
        ("--n-epochs", ["1", "two"], "--n-epochs 1 two: n_epochs is 'two', but must be a whole"),
        ("--gamma", ["0.9", "]"], "']' is not a value or a list of values"),
    ],
)
def test_mistakes_in_flags(flag: str, values: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        dimension_from_values(flag, values, HP)
    assert message in str(caught.value)


WORDS = [
    "1",
    "0.5",
    "1e-3",
    "..",
    ":",
    "log",
    "pow2",
    ",",
    "[",
    "]",
    "=",
    "adam",
    "-",
    "{",
    "'",
    " ",
]


@relaxed
@given(
    st.sampled_from(list(HP)),
    st.one_of(st.text(max_size=8), st.lists(st.sampled_from(WORDS), max_size=6).map("".join)),
)
def test_any_text_is_a_dimension_a_value_or_one_clear_error(name: str, text: str) -> None:
    with contextlib.suppress(UserError):
        parse_override(f"{name}={text}", HP)
    with contextlib.suppress(UserError):
        dimension_from_values(name, [text, "1"], HP)
