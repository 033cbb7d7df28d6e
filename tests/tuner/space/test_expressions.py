from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rltune.agents.errors import UserError
from rltune.space.expressions import FUNCTIONS, Expression

# A busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

VALUES = {"a": 6, "b": 4, "x": 0.5, "zero": 0, "name": "adam", "flag": True, "sizes": [64, 32]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a * b // 3", 8),
        ("a / b", 1.5),
        ("-a % 4", 2),
        ("2 ** 10", 1024),
        ("4 ** x", 2.0),
        ("2 ** -1", 0.5),
        ("min(a, b) + max(a, b, 100) - abs(-3)", 101),
        ("round(x) + floor(1.7) + ceil(1.2) + log2(8)", 6.0),
        ("a * sum(sizes) <= 576", True),
        ("b <= a < 7", True),
        ("b <= a < 6", False),
        ("not flag or name == 'adam'", True),
        ("name != 'adam' and zero", False),
        ("1e3 + 1_000", 2000.0),
        ("  a  ", 6),
        ("+a", 6),
    ],
)
def test_evaluates(text: str, value: object) -> None:
    assert Expression(text).evaluate(VALUES) == value


def test_names_are_those_of_hyperparameters_not_of_functions() -> None:
    assert Expression("max(a, b) < min + log2(c)").names == {"a", "b", "min", "c"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "a; b",
        "a = 1",
        "a.b",
        "a[0]",
        "[a]",
        "(a, b)",
        "{1: 2}",
        "lambda: 1",
        "[x for x in a]",
        "f'{a}'",
        "a if b else 1",
        "__import__('os')",
        "open('x')",
        "max(a, key=b)",
        "max()",
        "max(*a)",
        "(lambda: 1)()",
        "a @ b",
        "a & b",
        "a << b",
        "~a",
        "a is b",
        "a in b",
        "None",
        "1j",
        "b'x'",
        "...",
        "await a",
        "(a := 1)",
        "a\0b",
        "a" * 501,
        "-" * 200 + "a",
        "(" * 300 + "a" + ")" * 300,
    ],
)
def test_refuses_everything_else(text: str) -> None:
    with pytest.raises(UserError):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("n_steps = 64", "; write == for ="),
        ("a < 1 && b < 2", "; write and for &&"),
        ("a < 1 || !b == c", "; write or for ||, write not for !"),
        ("(a < 1) & (b < 2)", "; write and for &"),
        ("a ^ 2 > 1", "; write ** for ^"),
        ("a != 'x=y&&z' +", "is not an expression"),
        ("a <= 1 >= 2 == 3 +", "is not an expression"),
    ],
)
def test_other_languages_operators_get_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        Expression(text)
    assert str(caught.value).endswith(hint)


def test_an_unknown_function_gets_the_close_match() -> None:
    with pytest.raises(UserError, match=r"unknown function 'cel'; did you mean 'ceil'"):
        Expression("cel(a)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a / zero", "division by zero"),
        ("a // zero", "division by zero"),
        ("a % zero", "division by zero"),
        ("zero ** -1", "division by zero"),
        ("missing + 1", "unknown name 'missing'"),
        ("name + 1", "name is 'adam', not a number"),
        ("name < 1", "'adam' is not a number and has no order"),
        ("name * 1000", "not a number"),
        ("9 ** 9 ** 9", "too large"),
        ("1e200 ** 2", "too large|Numerical result out of range"),
        ("1e300 * 1e300", "the result is inf"),
        ("(-8) ** x", "negative"),
        ("log2(zero)", "domain|positive"),
        ("a * 2 ** 300", "too large"),
        ("sum(a)", "a is 6, not a list of numbers"),
        ("max(sizes, 1)", "not a number"),
    ],
)
def test_says_what_cannot_be_computed(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Expression(text).evaluate(VALUES)


def test_an_error_shows_the_values() -> None:
    with pytest.raises(UserError, match=r"a // zero \(a=6, zero=0\): division by zero"):
        Expression("a // zero").evaluate(VALUES)


def test_substitutes_names_by_expressions_and_leaves_functions_alone() -> None:
    expression = Expression("min(a, rollout) <= min").substitute(
        {"rollout": "a + b", "min": "least"}
    )
    assert expression.names == {"a", "b", "least"}
    assert expression.evaluate({"a": 10, "b": -5, "least": 5}) is True
    assert Expression("2 * s").substitute({"s": "a + b"}).evaluate(VALUES) == 20


@pytest.mark.parametrize(
    ("text", "condition"),
    [("a < b", True), ("not a", True), ("a and b", True), ("a + b", False), ("max(a, b)", False)],
)
def test_knows_conditions(text: str, condition: bool) -> None:
    assert Expression(text).is_condition is condition


WORDS = ["a", "b", "x", "zero", "name", "(", ")", ",", "1", "0", "9e9", "'t'", " ", "**", "==", "<"]
WORDS += ["+", "-", "*", "/", "//", "%", "and", "or", "not", ".", "[", "]", ":", *FUNCTIONS]


@relaxed
@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_any_text_gives_a_value_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(UserError):
        Expression(text).evaluate(VALUES)
