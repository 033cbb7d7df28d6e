"""Hyperparameters: the declaration of one (`hp`), and the check of a value for it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rltune.agents.errors import UserError, unknown
from rltune.agents.model_files import read_model
from rltune.agents.schedules import EXAMPLES, is_schedule, parse_schedule


@dataclass(frozen=True)
class Hyperparameter:
    """The declaration of one hyperparameter.

    ``low`` and ``high`` bound the range worth searching, ``minimum`` and ``maximum`` the valid one.
    ``schedule`` says that a schedule (`rltune.agents.schedules`) is accepted beside a number. What
    is not ``mutable`` decides on the form of networks, memories and environments, or matters only
    when they are made: a training that has begun keeps it.
    """

    name: str
    type: str  # "int", "float", "bool", "str" or "ints"; "any" of what is no hyperparameter
    default: Any
    low: float | None
    high: float | None
    scale: str  # "uniform", "log", "one_minus_log" or "pow2"
    choices: tuple[Any, ...] | None
    help: str
    schedule: bool
    minimum: float
    maximum: float
    # Of a model file, for each output layer the activation that it may name; else nothing.
    outputs: tuple[str, ...] = ()
    mutable: bool = True


def hp(
    default: Any,
    *,
    help: str,
    low: float | None = None,
    high: float | None = None,
    scale: str = "uniform",
    choices: tuple[Any, ...] | None = None,
    schedule: bool = False,
    minimum: float = 0,
    maximum: float = math.inf,
    outputs: tuple[str, ...] = (),
    mutable: bool = True,
) -> Any:
    """Declare a hyperparameter: a dataclass field that knows its range, scale and help."""
    metadata = {
        "low": low,
        "high": high,
        "scale": scale,
        "choices": choices,
        "help": help,
        "schedule": schedule,
        "minimum": minimum,
        "maximum": maximum,
        "outputs": outputs,
        "mutable": mutable,
    }
    return dataclasses.field(default=default, metadata=metadata)


def fixed(value: Any) -> Any:
    """Give a hyperparameter of the class above a value that nobody can choose: it has no meaning.

    It is no hyperparameter of this class then: no flag, and nothing that a run or checkpoint keeps.
    """
    return dataclasses.field(default=value, init=False)


def coerce(parameter: Hyperparameter, value: object, where: str = "") -> Any:
    """Turn ``value`` into the hyperparameter's type and check that it is allowed.

    Raises:
        UserError: it is of a wrong type, out of range or not among the choices.
    """
    try:
        result = _CONVERT[parameter.type](value, parameter.schedule)
    except (TypeError, ValueError, OverflowError):
        expected = _EXPECTED[parameter.type]
        raise UserError(
            f"{prefix(where)}{parameter.name} is {value!r}, but must be {expected}"
            + (f" or a schedule such as {EXAMPLES}" if parameter.schedule else "")
        ) from None
    if parameter.outputs and result:
        # Already in a search space: the file may change, or not be there, where a trial runs.
        try:
            return read_model(result, parameter.outputs).text()
        except UserError as error:
            raise UserError(f"{prefix(where)}{parameter.name}: {error}") from None
    if parameter.choices is not None and result not in parameter.choices:
        raise unknown(parameter.name, str(value), map(str, parameter.choices), where)
    for number in _numbers(parameter, result):
        if not parameter.minimum <= number <= parameter.maximum:
            limit = (
                f"at least {parameter.minimum:g}"
                if parameter.maximum == math.inf
                else f"between {parameter.minimum:g} and {parameter.maximum:g}"
            )
            raise UserError(f"{prefix(where)}{parameter.name} is {value!r}, but must be {limit}")
    return result


def prefix(where: str) -> str:
    """Return the beginning of an error at this place."""
    return f"{where}: " if where else ""


def _numbers(parameter: Hyperparameter, value: Any) -> tuple[float, ...]:
    if parameter.type == "ints":
        return tuple(value)
    if parameter.type in ("int", "float"):
        return parse_schedule(value).values
    return ()


def _to_int(value: Any, _schedule: bool = False) -> int:
    if isinstance(value, bool) or int(float(value)) != float(value):
        raise ValueError("not a whole number")
    return int(float(value))


def _to_float(value: Any, schedule: bool) -> float | str:
    if isinstance(value, bool):
        raise ValueError("not a number")
    if schedule and is_schedule(value):
        parse_schedule(value)
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _to_bool(value: Any, _schedule: bool) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    word = str(value).lower()
    if word not in words:
        raise ValueError("not a truth value")
    return words[word]


def _to_str(value: Any, _schedule: bool) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError("not a text")
    return str(value)  # numbers too, as 0.1 beside "auto"


def _to_ints(value: Any, _schedule: bool) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [part for part in value.strip("[]() ").split(",") if part.strip()]
    if isinstance(value, (int, float)):
        value = [value]
    return tuple(_to_int(part) for part in value)


_CONVERT: dict[str, Callable[[Any, bool], Any]] = {
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "str": _to_str,
    "ints": _to_ints,
    "any": lambda value, _schedule: value,
}
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "ints": "whole numbers such as 64,64",
    "any": "a value",
}
