"""Dimensions and fixed values from the command line.

``-s learning_rate=1e-5..1e-2:log`` and ``--learning-rate 1e-5 1e-2`` mean what
``learning_rate: {log: [1e-5, 1e-2]}`` means in a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rltune.agents.config import Hyperparameter, own_name
from rltune.agents.errors import UserError, unknown
from rltune.space.dimensions import (
    KINDS,
    Dimension,
    checked_value,
    fit,
    is_number,
    parse_dimension,
    range_spec,
)
from rltune.space.yaml_lines import SourceText, parse_yaml

_NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(\w+))?")


def parse_override(
    text: str, hyperparameters: Mapping[str, Hyperparameter]
) -> tuple[str, Dimension | Any]:
    """Read ``NAME=LOW..HIGH[:SCALE]``, ``NAME=a,b,c`` (choices) or ``NAME=VALUE`` (fixed).

    Without a scale the hyperparameter's own one is taken.

    Returns:
        our name of the hyperparameter, and its dimension or fixed value

    Raises:
        UserError: it is none of these, or does not suit the hyperparameter.
    """
    where = f"-s {text}"
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise UserError(f"{where}: write NAME=LOW..HIGH:SCALE, NAME=A,B,C or NAME=VALUE")
    parameter = _find(name, hyperparameters, where)
    match = _RANGE.fullmatch(value)
    if match is None:
        return parameter.name, _choices(_parse_list(value, where), parameter, where)
    low, high = (_parse_list(end, where)[0] for end in match.groups()[:2])
    return parameter.name, _range(low, high, match[3], parameter, where)


def dimension_from_values(
    name: str, values: Sequence[str], hyperparameters: Mapping[str, Hyperparameter]
) -> tuple[str, Dimension | Any]:
    """Read the values of a flag: one value is fixed, two numbers are a range, more are choices.

    A range has the hyperparameter's own scale.

    Returns:
        our name of the hyperparameter, and its dimension or fixed value

    Raises:
        UserError: an unknown hyperparameter, no values, or values that don't suit it.
    """
    flag = "--" + name.lstrip("-").replace("_", "-")
    where = " ".join((flag, *values))
    parameter = _find(name.lstrip("-"), hyperparameters, where)
    if not values:
        raise UserError(f"{flag}: needs a value")
    if parameter.type in ("int", "float", "any"):
        items = [_parse_list(value, where)[0] for value in values]
        if len(items) == 2 and all(map(is_number, items)):
            return parameter.name, _range(items[0], items[1], None, parameter, where)
        if parameter.type == "any":
            return parameter.name, _choices(items, parameter, where)
    return parameter.name, _choices(values, parameter, where)


def _find(name: str, hyperparameters: Mapping[str, Hyperparameter], where: str) -> Hyperparameter:
    own = own_name(name, hyperparameters)
    if own is None:
        raise unknown("hyperparameter", name, hyperparameters, where)
    return hyperparameters[own]


def _parse_list(text: str, where: str) -> list[Any]:
    """Read ``a, 1e-3, [64, 64]`` with YAML's scalars."""
    try:
        data, _ = parse_yaml(f"[{text}]", where)
    except UserError:
        raise UserError(f"{where}: {text!r} is not a value or a list of values") from None
    if not isinstance(data, list) or not data:
        raise UserError(f"{where}: needs a value")
    return data


def _choices(values: Sequence[Any], parameter: Hyperparameter, where: str) -> Dimension | Any:
    if parameter.type == "ints" and not any(isinstance(v, (list, str)) for v in values):
        values = [list(values)]  # 64,64 is one value
    try:
        items = [checked_value(parameter, value) for value in values]
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if len(items) == 1:
        return items[0]
    return parse_dimension(parameter.name, {"choice": items}, SourceText(where), ())


def _range(
    low: Any, high: Any, scale: str | None, parameter: Hyperparameter, where: str
) -> Dimension:
    if scale is None:
        spec = range_spec(parameter, low, high)
    elif scale in KINDS and scale != "choice":
        spec = {scale: [low, high]}
        if parameter.type == "int" and scale in ("log", "uniform"):
            spec = {"int": [low, high], "log": scale == "log"}
    else:
        raise unknown("scale", scale, set(KINDS) - {"choice"}, where)
    try:
        dimension = parse_dimension(parameter.name, spec, SourceText(where), ())
    except UserError as error:
        hint = ""
        if scale is None and parameter.scale in ("log", "one_minus_log"):
            hint = f"; for another scale write -s {parameter.name}={low}..{high}:uniform"
        raise UserError(f"{error}{hint}") from None
    try:
        return fit(dimension, parameter)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
