"""Dimensions of a search space: range, scale, and the internal value that samplers work on.

The sampler works on an *internal* value: the exponent of a power of two, ``1 - x`` on a logarithmic
scale, the value itself for the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rltune.agents.config import Hyperparameter, coerce
from rltune.agents.errors import UserError, unknown
from rltune.space.yaml_lines import KeyPath, SourceText

if TYPE_CHECKING:
    import numpy as np

CONTINUOUS = ("uniform", "log", "one_minus_log")
KINDS = (*CONTINUOUS, "int", "pow2", "choice")
EXAMPLES = {
    "uniform": "{uniform: [0.1, 1.0]}",
    "log": "{log: [1e-5, 1e-2]}",
    "one_minus_log": "{one_minus_log: [0.9, 0.9999]}",
    "int": "{int: [1, 20]}",
    "pow2": "{pow2: [32, 2048]}",
    "choice": "{choice: [adam, rmsprop]}",
}
LARGEST_INT = 2**53  # beyond it, floats skip whole numbers
LARGEST_FLOAT = 1e300
DIGITS = 5  # significant digits of a sampled number: a printed command repeats it exactly

Condition = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Internal:
    """A dimension as the sampler sees it: one of Optuna's three kinds of distribution."""

    type: str  # "int", "float" or "categorical"
    low: float = 0
    high: float = 0
    log: bool = False
    step: int = 1  # int only
    choices: tuple[bool | int | float | str | None, ...] = ()


@dataclass(frozen=True)
class Dimension:
    """One searched hyperparameter.

    ``when`` maps other names to the values for which this dimension is active; empty: always.
    ``prior`` is the value that the user expects to be good; None: there is none.
    """

    name: str
    kind: str  # one of KINDS
    low: float = 0
    high: float = 0
    choices: tuple[Any, ...] = ()
    log: bool = False  # int only: on a logarithmic scale
    step: int = 1  # int only
    when: Condition = field(default_factory=dict)
    prior: Any = None

    @cached_property
    def internal(self) -> Internal:
        """The distribution of the internal values."""
        if self.kind == "choice":
            return Internal("categorical", choices=tuple(choice_label(c) for c in self.choices))
        if self.kind == "int":
            return Internal("int", self.low, self.high, log=self.log, step=self.step)
        if self.kind == "pow2":
            return Internal("int", int(self.low).bit_length() - 1, int(self.high).bit_length() - 1)
        if self.kind == "one_minus_log":
            return Internal("float", 1 - self.high, 1 - self.low, log=True)
        return Internal("float", self.low, self.high, log=self.kind == "log")

    def to_internal(self, value: Any) -> Any:
        """Return the sampler's view of a value. UserError: the value isn't in the dimension."""
        if not self.contains(value):
            raise UserError(f"{self.name}={value!r} is outside of {self.describe()}")
        if self.kind == "choice":
            return choice_label(value)
        if self.kind == "pow2":
            return int(value).bit_length() - 1
        if self.kind == "one_minus_log":
            internal = self.internal
            return min(max(1 - value, internal.low), internal.high)
        return int(value) if self.kind == "int" else float(value)

    def from_internal(self, x: Any) -> Any:
        """Return the value for an internal value, numbers with five significant digits."""
        if self.kind == "choice":
            return next(c for c in self.choices if same(choice_label(c), x))
        if self.kind == "pow2":
            return 2 ** int(x)
        if self.kind == "int":
            return int(x)
        if self.kind == "one_minus_log":
            return self._tidy(1 - float(x), min(float(x), self.high - self.low))
        return self._tidy(float(x), min(abs(float(x)), self.high - self.low))

    def _tidy(self, value: float, scale: float) -> float:
        if scale > 0:
            value = round(value, DIGITS - 1 - math.floor(math.log10(scale)))
        return min(max(value, self.low), self.high)

    def contains(self, value: Any) -> bool:
        """Whether the value can be sampled here."""
        if self.kind == "choice":
            return any(same(value, choice) for choice in self.choices)
        if not is_number(value) or not self.low <= value <= self.high:
            return False
        if self.kind == "pow2":
            return value == int(value) and is_power_of_two(int(value))
        if self.kind == "int":
            return value == int(value) and (int(value) - int(self.low)) % self.step == 0
        return True

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value."""
        internal = self.internal
        if internal.type == "categorical":
            return self.choices[int(rng.integers(len(self.choices)))]
        low, high = internal.low, internal.high
        if internal.type == "float":
            if not internal.log:
                return self.from_internal(rng.uniform(low, high))
            x = math.exp(rng.uniform(math.log(low), math.log(high)))
            return self.from_internal(min(max(x, low), high))
        if internal.log:
            x = math.exp(rng.uniform(math.log(low - 0.5), math.log(high + 0.5)))
            return self.from_internal(min(max(round(x), low), high))
        steps = (int(high) - int(low)) // internal.step
        return self.from_internal(low + internal.step * int(rng.integers(steps + 1)))

    def to_dict(self) -> dict[str, Any]:
        """Return it in the language of the search-space files, without its name."""
        if self.kind == "choice":
            result: dict[str, Any] = {"choice": list(self.choices)}
        else:
            result = {self.kind: [self.low, self.high]}
        if self.log:
            result["log"] = True
        if self.step != 1:
            result["step"] = self.step
        if self.prior is not None:
            result["prior"] = self.prior
        if self.when:
            result["when"] = {name: _wanted(values) for name, values in self.when.items()}
        return result

    def describe(self) -> str:
        """Return it as one writes it, such as ``log: [1e-05, 0.01]``."""
        if self.kind == "choice":
            return f"choice: {word(self.choices)}"
        extra = ", log: true" if self.log else ""
        extra += f", step: {self.step}" if self.step != 1 else ""
        return f"{self.kind}: [{self.low:g}, {self.high:g}]{extra}"


def parse_dimension(name: str, spec: object, source: SourceText, path: KeyPath) -> Dimension:
    """Read a dimension such as ``{log: [1e-5, 1e-2]}``. UserError: what is wrong with it."""
    if not isinstance(spec, Mapping):
        raise source.error(
            path, f"needs a range such as {EXAMPLES['log']}; a single value belongs under fixed:"
        )
    kind = _kind_of(spec, source, path)
    log = kind == "int" and "log" in spec
    options = {"log", "step", "when", "prior"} if kind == "int" else {"when", "prior"}
    for key in spec:
        if key != kind and key not in options:
            raise source.error((*path, str(key)), f"does not go with {kind}: remove it")
    when = _parse_when(spec["when"], source, (*path, "when")) if "when" in spec else {}
    if kind == "choice":
        choices = _parse_choices(spec[kind], source, path)
        return _with_prior(Dimension(name, kind, choices=choices, when=when), spec, source, path)
    low, high = _parse_range(kind, spec[kind], source, path)
    if log and not isinstance(spec["log"], bool):
        raise source.error((*path, "log"), f"beside int: write log: true; got {show(spec['log'])}")
    log = log and bool(spec["log"])
    if log and low < 1:
        raise source.error(path, f"int with log: true needs low >= 1; got {low:g}")
    step = spec.get("step", 1)
    if "step" in spec and (not is_whole(step) or step < 1 or (high - low) % step != 0):
        raise source.error(
            (*path, "step"),
            f"must be a whole number that divides {high - low:g} (high - low); got {show(step)}",
        )
    if log and step != 1:
        raise source.error((*path, "step"), "does not go with log: true; remove one of the two")
    found = Dimension(name, kind, low, high, log=log, step=int(step), when=when)
    return _with_prior(found, spec, source, path)


def _with_prior(
    dimension: Dimension, spec: Mapping[Any, Any], source: SourceText, path: KeyPath
) -> Dimension:
    if "prior" not in spec:
        return dimension
    prior = plain(spec["prior"])
    if prior is INVALID or prior is None or not dimension.contains(prior):
        raise source.error(
            (*path, "prior"),
            f"needs the value that you expect to be good, of {dimension.describe()}; got "
            f"{show(spec['prior'])}",
        )
    return replace(dimension, prior=prior)


def _kind_of(spec: Mapping[Any, Any], source: SourceText, path: KeyPath) -> str:
    kinds = [key for key in spec if isinstance(key, str) and key in KINDS]
    if "int" in kinds and "log" in kinds:
        kinds.remove("log")
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        raise source.error(path, f"has several scales ({', '.join(kinds)}); keep one")
    names = [key for key in spec if key not in ("when", "step", "prior")]
    if names:
        error = unknown("scale", str(names[0]), KINDS)
        raise source.error(path, str(error))
    raise source.error(path, f"needs a scale: one of {', '.join(KINDS)}")


def _parse_range(
    kind: str, value: object, source: SourceText, path: KeyPath
) -> tuple[float, float]:
    what = {
        "uniform": "two numbers [low, high] with low < high",
        "log": "two positive numbers [low, high] with low < high",
        "one_minus_log": "two numbers [low, high] with 0 <= low < high < 1",
        "int": "two whole numbers [low, high] with low < high",
        "pow2": "two powers of two [low, high] with low < high, such as [32, 2048]",
    }[kind]
    fail = source.error(path, f"{kind} needs {what}; got {show(value)}")
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise fail
    low, high = value
    if not (is_number(low) and is_number(high) and low < high):
        raise fail
    if kind in ("int", "pow2"):
        if not (is_whole(low) and is_whole(high)):
            raise fail
        low, high = int(low), int(high)
        if kind == "pow2" and not (is_power_of_two(low) and is_power_of_two(high)):
            raise fail
        return low, high
    low, high = float(low), float(high)
    valid = {"log": low > 0, "one_minus_log": low >= 0 and 0 < 1 - high < 1 - low}.get(kind, True)
    if not valid or low == high:
        raise fail
    return low, high


def _parse_choices(value: object, source: SourceText, path: KeyPath) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise source.error(
            path, f"choice needs a list of values such as [adam, rmsprop]; got {show(value)}"
        )
    choices: list[Any] = []
    for item in value:
        choice = plain(item)
        if choice is INVALID or isinstance(choice, dict):
            raise source.error(
                path,
                f"the choice {show(item)} must be a number, a text, true, false or a list of them",
            )
        # Optuna cannot tell apart values that are equal in Python, such as 1, 1.0 and true.
        if any(choice_label(choice) == choice_label(other) for other in choices):
            raise source.error(path, f"the choice {show(item)} is there twice; remove one")
        choices.append(choice)
    return tuple(choices)


def _parse_when(value: object, source: SourceText, path: KeyPath) -> Condition:
    if not isinstance(value, Mapping) or not value:
        raise source.error(
            path, f"needs names and values such as {{optimizer: rmsprop}}; got {show(value)}"
        )
    when: Condition = {}
    for key, wanted in value.items():
        values = plain(wanted if isinstance(wanted, (list, tuple)) else [wanted])
        if not isinstance(key, str) or values is INVALID or not values:
            raise source.error((*path, str(key)), f"needs a value or a list of values: {key}")
        when[key] = tuple(values)
    return when


def _wanted(values: tuple[Any, ...]) -> Any:
    """The values of a condition as a file has them; a list that is a value stays in a list."""
    return values[0] if len(values) == 1 and not isinstance(values[0], list) else list(values)


def own_dimension(parameter: Hyperparameter) -> Dimension:
    """The dimension that a hyperparameter's own declaration describes."""
    if parameter.choices:
        spec: dict[str, Any] = {"choice": list(parameter.choices)}
    else:
        spec = range_spec(parameter, parameter.low, parameter.high)
    return parse_dimension(parameter.name, spec, SourceText("hp"), (parameter.name,))


def range_spec(parameter: Hyperparameter, low: Any, high: Any) -> dict[str, Any]:
    """The range on the hyperparameter's own scale, as a file has it.

    Powers of two become whole numbers on a logarithmic scale when an end is none.
    """
    if parameter.type != "int":
        return {parameter.scale: [low, high]}
    if parameter.scale == "pow2" and all(
        is_whole(e) and is_power_of_two(int(e)) for e in (low, high)
    ):
        return {"pow2": [low, high]}
    return {"int": [low, high], "log": parameter.scale in ("log", "pow2") and low >= 1}


def fit(dimension: Dimension, parameter: Hyperparameter) -> Dimension:
    """Return the dimension with its values in the hyperparameter's type.

    Raises:
        UserError: a range for what is no number, fractions for a whole number, a value that the
            hyperparameter does not allow.
    """
    if dimension.kind == "choice":
        choices = [checked_value(parameter, choice) for choice in dimension.choices]
        if len({json.dumps(choice) for choice in choices}) < len(choices):
            raise UserError(f"two choices of {dimension.name} mean the same; remove one")
        prior = None if dimension.prior is None else checked_value(parameter, dimension.prior)
        return replace(dimension, choices=tuple(choices), prior=prior)
    if parameter.type not in ("int", "float", "any"):
        raise UserError(
            f"{dimension.name} is not a number; write {{choice: [...]}} with its values"
        )
    if parameter.type == "int" and dimension.kind not in ("int", "pow2"):
        log = ", log: true" if dimension.kind == "log" else ""
        raise UserError(
            f"{dimension.name} is a whole number; write {{int: [low, high]{log}}} or "
            "{pow2: [low, high]}"
        )
    for end in (dimension.low, dimension.high):
        coerce(parameter, end)
    return dimension


def checked_value(parameter: Hyperparameter, value: object) -> Any:
    """Return a value in the hyperparameter's type, tuples as lists. UserError: not allowed."""
    result = coerce(parameter, value)
    return list(result) if isinstance(result, tuple) else result


INVALID = object()


def plain(value: object, depth: int = 0) -> Any:
    """Return a copy made of JSON's types only; INVALID when the value has any other, or NaN."""
    if depth > 8:
        return INVALID
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value if is_number(value) else INVALID
    if isinstance(value, (list, tuple)):
        items = [plain(item, depth + 1) for item in value]
        return INVALID if any(item is INVALID for item in items) else items
    if isinstance(value, Mapping):
        pairs = {key: plain(item, depth + 1) for key, item in value.items()}
        bad = any(item is INVALID or not isinstance(key, str) for key, item in pairs.items())
        return INVALID if bad else pairs
    return INVALID


def show(value: object) -> str:
    """The value as it may be quoted in an error: short, and in YAML's words."""
    known = plain(value)
    text = repr(value) if known is INVALID else json.dumps(known)
    return text if len(text) <= 60 else text[:57] + "..."


def word(value: object) -> str:
    """The value as one writes it in a file: ``[adam, true, 0.5]``."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(word, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def is_number(value: object) -> bool:
    """Whether it is a finite number of a sane size (a bool isn't one)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= LARGEST_FLOAT


def is_whole(value: Any) -> bool:
    """Whether it is a whole number that a float holds exactly; ``8.0`` is one."""
    return is_number(value) and abs(value) <= LARGEST_INT and value == int(value)


def is_power_of_two(value: int) -> bool:
    """Whether it is 1, 2, 4, 8, ..."""
    return value > 0 and value & (value - 1) == 0


def choice_label(choice: Any) -> bool | int | float | str | None:
    """Return a choice as Optuna can store it: lists become their JSON text."""
    if isinstance(choice, list):
        return json.dumps(choice)
    known: bool | int | float | str | None = choice
    return known


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal; unlike in Python, ``true`` isn't 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
