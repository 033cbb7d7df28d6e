from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import hyperparameters
from rltune.agents.errors import UserError
from rltune.space.dimensions import Dimension, checked_value, fit, own_dimension, parse_dimension
from rltune.space.yaml_lines import SourceText

# A busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

HP = hyperparameters(PPOConfig)


def parse(spec: object, name: str = "x") -> Dimension:
    return parse_dimension(name, spec, SourceText("s.yaml"), ("space", name))


floats = st.floats(-1e12, 1e12, allow_nan=False)


@st.composite
def dimensions(draw: st.DrawFn) -> Dimension:
    """Any dimension that the language can say."""
    kind = draw(st.sampled_from(["uniform", "log", "one_minus_log", "int", "pow2", "choice"]))
    if kind == "choice":
        scalar = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3))
        values = draw(
            st.lists(
                st.one_of(scalar, st.lists(st.integers(1, 512), max_size=3)),
                min_size=1,
                max_size=5,
                unique_by=lambda v: v if not isinstance(v, list) else str(v),
            )
        )
        assume(not any(isinstance(v, str) and v.startswith("[") for v in values))
        return parse({"choice": values})
    if kind == "pow2":
        low, high = sorted(draw(st.lists(st.integers(0, 30), min_size=2, max_size=2, unique=True)))
        return parse({"pow2": [2**low, 2**high]})
    if kind == "int":
        log = draw(st.booleans())
        ends = st.integers(1 if log else -(10**6), 10**6)
        low, high = sorted(draw(st.lists(ends, min_size=2, max_size=2, unique=True)))
        if log:
            return parse({"int": [low, high], "log": True})
        step = draw(st.sampled_from([s for s in (1, 2, 3, 5, 10) if (high - low) % s == 0]))
        return parse({"int": [low, high], "step": step})
    bounds = {
        "uniform": floats,
        "log": st.floats(1e-12, 1e12),
        "one_minus_log": st.floats(0, 1, exclude_max=True),
    }
    low_, high_ = sorted(draw(st.lists(bounds[kind], min_size=2, max_size=2, unique=True)))
    assume(kind != "one_minus_log" or 1 - low_ > 1 - high_ > 0)
    return parse({kind: [low_, high_]})


@relaxed
@given(dimensions(), st.integers(0, 2**32))
def test_samples_are_inside_and_survive_the_internal_view(dimension: Dimension, seed: int) -> None:
    value = dimension.sample(np.random.default_rng(seed))
    assert dimension.contains(value)
    again = dimension.from_internal(dimension.to_internal(value))
    assert type(again) is type(value)
    assert again == value


@relaxed
@given(dimensions())
def test_the_internal_ends_are_our_ends(dimension: Dimension) -> None:
    internal = dimension.internal
    if internal.type == "categorical":
        assert [dimension.from_internal(c) for c in internal.choices] == list(dimension.choices)
        return
    ends = [dimension.from_internal(internal.low), dimension.from_internal(internal.high)]
    assert all(dimension.contains(end) for end in ends)
    for end, wanted in zip(sorted(ends), (dimension.low, dimension.high), strict=True):
        assert end == pytest.approx(wanted, rel=1e-4, abs=1e-4 * (dimension.high - dimension.low))


@relaxed
@given(dimensions())
def test_what_is_written_is_read_back(dimension: Dimension) -> None:
    assert parse(dimension.to_dict()) == dimension


@relaxed
@given(dimensions())
def test_optuna_takes_the_internal_view(dimension: Dimension) -> None:
    internal = dimension.internal
    assume(internal.type != "float" or internal.high - internal.low > 1e-9)
    low, high, log = internal.low, internal.high, internal.log
    distribution: Any
    if internal.type == "categorical":
        distribution = optuna.distributions.CategoricalDistribution(internal.choices)
    elif internal.type == "int":
        distribution = optuna.distributions.IntDistribution(
            int(low), int(high), log=log, step=internal.step
        )
        assert distribution.high == high, "Optuna must not cut the range"
    else:
        distribution = optuna.distributions.FloatDistribution(low, high, log=log)
    value = dimension.sample(np.random.default_rng(0))
    x = dimension.to_internal(value)
    assert distribution._contains(distribution.to_internal_repr(x))
    assert distribution.to_external_repr(distribution.to_internal_repr(x)) == x


def test_one_minus_log_is_uniform_in_the_logarithm_of_one_minus_x() -> None:
    rng = np.random.default_rng(0)
    gamma = parse({"one_minus_log": [0.9, 0.9999]})
    values = np.array([gamma.sample(rng) for _ in range(4000)])
    # Three decades of 1 - gamma: 0.1 to 0.01, to 0.001, to 0.0001.
    counts = np.histogram(np.log10(1 - values), bins=[-4, -3, -2, -1])[0]
    assert counts.min() > 1200


@pytest.mark.parametrize(
    "spec",
    [{"log": [1e-4, 1]}, {"int": [1, 10_000], "log": True}, {"pow2": [1, 16384]}],
    ids=["log", "int-log", "pow2"],
)
def test_logarithmic_scales_have_half_their_samples_below_the_geometric_mean(spec: object) -> None:
    rng = np.random.default_rng(0)
    dimension = parse(spec)
    middle = math.sqrt(dimension.low * dimension.high)
    below = sum(dimension.sample(rng) < middle for _ in range(3000))
    assert 0.44 < below / 3000 < 0.56


def test_int_samples_reach_both_ends_and_keep_the_step() -> None:
    rng = np.random.default_rng(0)
    dimension = parse({"int": [2, 10], "step": 4})
    assert {dimension.sample(rng) for _ in range(100)} == {2, 6, 10}
    assert not dimension.contains(4)


def test_sampled_numbers_are_short_enough_to_type() -> None:
    rng = np.random.default_rng(0)
    rate = parse({"log": [1e-5, 1e-2]})
    assert all(len(f"{rate.sample(rng):.4e}") and _digits(rate.sample(rng)) <= 5 for _ in range(99))
    # Known settings with up to five digits come back exactly, also next to the end of a wide range.
    wide = parse({"uniform": [0, 100]})
    assert wide.from_internal(wide.to_internal(2.0612e-5)) == 2.0612e-5
    gamma = parse({"one_minus_log": [0.9, 0.9999]})
    assert gamma.from_internal(gamma.to_internal(0.99971234)) == 0.99971234


def _digits(value: float) -> int:
    return len(f"{value:.12g}".split("e")[0].replace(".", "").strip("0"))


def test_a_narrow_range_is_not_rounded_away() -> None:
    rng = np.random.default_rng(0)
    narrow = parse({"uniform": [1_000_000, 1_000_001]})
    assert len({narrow.sample(rng) for _ in range(50)}) > 40


def test_choices_tell_numbers_from_truth_values() -> None:
    dimension = parse({"choice": [True, "1", None, [64, 64]]})
    assert dimension.contains(True)
    assert not dimension.contains(1)
    assert dimension.to_internal([64, 64]) == "[64, 64]"
    assert dimension.from_internal("[64, 64]") == [64, 64]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (1e-3, "needs a range such as {log: [1e-5, 1e-2]}; a single value belongs under fixed:"),
        (
            {"log": [0, 1e-2]},
            "log needs two positive numbers [low, high] with low < high; got [0, 0.01]",
        ),
        ({"log": [1e-2, 1e-5]}, "log needs two positive numbers"),
        (
            {"log": ["1e-5", 1]},
            'log needs two positive numbers [low, high] with low < high; got ["',
        ),
        ({"log": [1, 2, 3]}, "log needs two positive numbers"),
        ({"log": 1}, "log needs two positive numbers"),
        ({"uniform": [1, 1]}, "uniform needs two numbers [low, high] with low < high; got [1, 1]"),
        ({"uniform": [0, math.inf]}, "uniform needs two numbers"),
        ({"uniform": [math.nan, 1]}, "uniform needs two numbers"),
        ({"uniform": [False, True]}, "uniform needs two numbers"),
        ({"uniform": [0, 10**400]}, "uniform needs two numbers"),
        ({"one_minus_log": [0.9, 1]}, "one_minus_log needs two numbers [low, high] with 0 <= low"),
        (
            {"int": [0.5, 3]},
            "int needs two whole numbers [low, high] with low < high; got [0.5, 3]",
        ),
        ({"int": [0, 2**60]}, "int needs two whole numbers"),
        ({"int": [0, 8], "log": True}, "int with log: true needs low >= 1; got 0"),
        ({"int": [1, 8], "log": 1}, "log: beside int: write log: true; got 1"),
        ({"int": [1, 8], "step": 2}, "step: must be a whole number that divides 7 (high - low)"),
        ({"int": [1, 8], "step": 0}, "step: must be a whole number"),
        ({"int": [1, 9], "step": 2, "log": True}, "step: does not go with log: true"),
        ({"uniform": [1, 9], "step": 2}, "step: does not go with uniform: remove it"),
        ({"pow2": [30, 64]}, "pow2 needs two powers of two [low, high] with low < high, such as"),
        ({"pow2": [0, 64]}, "pow2 needs two powers of two"),
        ({"choice": []}, "choice needs a list of values such as [adam, rmsprop]; got []"),
        ({"choice": "adam"}, 'choice needs a list of values such as [adam, rmsprop]; got "adam"'),
        ({"choice": [1, True]}, "the choice true is there twice; remove one"),
        ({"choice": [1, 1.0]}, "the choice 1.0 is there twice"),
        ({"choice": [{"a": 1}]}, 'the choice {"a": 1} must be'),
        ({"choice": [math.nan]}, "the choice nan must be"),
        ({"choice": [object()]}, "must be a number, a text, true, false or a list of them"),
        ({}, "needs a scale: one of uniform, log"),
        ({"lgo": [1, 2]}, "unknown scale 'lgo'; did you mean 'log'?"),
        ({"log": [1, 2], "uniform": [1, 2]}, "has several scales (log, uniform); keep one"),
        ({"log": [1, 2], "wen": {"a": 1}}, "wen: does not go with log: remove it"),
        ({"log": [1, 2], "when": "a"}, "when: needs names and values such as {optimizer: rmsprop}"),
        ({"log": [1, 2], "when": {}}, "when: needs names and values"),
        ({"log": [1, 2], "when": {"a": []}}, "when.a: needs a value or a list of values"),
        ({"log": [1, 2], "when": {"a": math.nan}}, "when.a: needs a value or a list of values"),
    ],
)
def test_mistakes_say_what_to_write(spec: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(spec)
    assert str(caught.value).startswith("s.yaml: space.x")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        (
            "n_epochs",
            {"uniform": [1, 9]},
            "n_epochs is a whole number; write {int: [low, high]} or",
        ),
        ("n_epochs", {"log": [1, 9]}, "write {int: [low, high], log: true} or {pow2: [low, high]}"),
        ("optimizer", {"uniform": [1, 9]}, "optimizer is not a number; write {choice: [...]}"),
        ("normalize_rewards", {"int": [0, 1]}, "normalize_rewards is not a number"),
        ("optimizer", {"choice": ["adm", "rmsprop"]}, "did you mean 'adam'?"),
        ("n_epochs", {"choice": [1, 2.5]}, "n_epochs is 2.5, but must be a whole number"),
        ("gamma", {"uniform": [0.9, 1.5]}, "gamma is 1.5, but must be between 0 and 1"),
        ("gamma", {"choice": ["0.5", 0.5]}, "two choices of gamma mean the same; remove one"),
    ],
)
def test_a_dimension_must_suit_the_hyperparameter(name: str, spec: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        fit(parse(spec, name), HP[name])
    assert message in str(caught.value)


def test_values_get_the_type_of_the_hyperparameter() -> None:
    assert fit(parse({"choice": ["1e-3", "lin_1e-3", 1]}), HP["learning_rate"]).choices == (
        1e-3,
        "lin_1e-3",
        1.0,
    )
    assert checked_value(HP["net_arch"], "64,64") == [64, 64]
    assert type(checked_value(HP["n_envs"], 8.0)) is int


def test_every_range_that_an_agent_declares_is_a_dimension() -> None:
    ranged = [p for p in HP.values() if p.choices or None not in (p.low, p.high)]
    assert len(ranged) > 15
    for parameter in ranged:
        dimension = own_dimension(parameter)
        assert fit(dimension, parameter) == dimension
