"""Options of a run, each declared once: a dataclass field that knows its flag, range and help.

`option` does for the options of a search or a training what `rltune.agents.hyperparameters.hp`
does for hyperparameters. From the declaration come the flags of the command line
(`rltune.cli.option_flags`), the checks of the value, the key in run.yaml, and the keywords of the
Python functions with their documentation.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from rltune.agents.errors import UserError, unknown

REQUIRED = inspect.Parameter.empty  # the default of an option that has none


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option. Only ``help`` has to be given; the name, type and default are the field's.

    Attributes:
        help: a phrase that names the thing and its unit; the default is added to it
        group: heading on the help page; default: "options"
        flags: all spellings on the command line; default: the name with dashes, or --no-NAME of a
            bool that is true by default; (): no flag, a keyword of Python alone
        metavar: what the help page shows for the value
        parse: turns the text of the flag into the value; default: as the type says
        bare: the value of the flag without a value; None: it needs one
        least, above, below: bounds of the value, ``least`` is allowed itself
        choices: all valid values
        shown: what the help page says of the default; default: the value
        resume: whether `rltune resume` has it, too; a text is its help there
        written: what to write, in an error on the type; default: the type in words
    """

    help: str
    group: str = ""
    flags: tuple[str, ...] | None = None
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    bare: str | None = None
    least: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    shown: str | None = None
    resume: bool | str = False
    written: str = ""

    name: str = ""
    annotation: str = ""
    kind: type = str  # int, float, str, bool, list or dict
    default: Any = REQUIRED

    @property
    def spellings(self) -> tuple[str, ...]:
        """All spellings of the flag, none for a keyword of Python alone."""
        if self.flags is not None:
            return self.flags
        no = "no-" if self.default is True else ""
        return (f"--{no}{self.name.replace('_', '-')}",)

    @property
    def flag(self) -> str:
        """The long spelling of the flag, for messages; without a flag the name."""
        return next((flag for flag in self.spellings if flag.startswith("--")), self.name)

    def described(self, resumed: bool = False) -> str:
        """Return the help, with the default; ``resumed``: as `rltune resume` shows it."""
        if resumed:
            return self.resume if isinstance(self.resume, str) else self.help
        shown = self.shown
        if (
            shown is None
            and self.kind in (int, float, str)
            and self.default not in (None, REQUIRED)
        ):
            shown = str(self.default)
        return f"{self.help} (default: {shown})" if shown else self.help

    def check(self, value: Any) -> None:
        """Raise UserError for a value out of range; its type is right."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            raise unknown("value", value, self.choices, self.flag)
        if self.least is not None and value < self.least:
            raise UserError(f"{self.flag} must be at least {self.least:g}, not {value:g}.")
        if self.above is not None and not value > self.above:
            raise UserError(f"{self.flag} must be above {self.above:g}, not {value:g}.")
        if self.below is not None and not value < self.below:
            raise UserError(f"{self.flag} must be below {self.below:g}, not {value:g}.")


def option(default: Any = MISSING, **facts: Any) -> Any:
    """Declare an option: a dataclass field with the attributes of `Option` as its ``facts``."""
    metadata = {"option": Option(**facts)}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(spec: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name and in their order."""
    fields = dataclasses.fields(spec)
    return options_for(
        spec, {field.name: field.metadata["option"] for field in fields if field.metadata}
    )


def options_for(spec: type, declared: Mapping[str, Option]) -> dict[str, Option]:
    """Return the options for the fields of a dataclass which does not declare them itself."""
    hints = typing.get_type_hints(spec)
    return {
        field.name: dataclasses.replace(
            declared[field.name],
            name=field.name,
            annotation=str(field.type),
            kind=_kind(hints[field.name]),
            default=_default(field),
        )
        for field in dataclasses.fields(spec)
        if field.name in declared
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return REQUIRED if field.default is MISSING else field.default


def resumed(options: Mapping[str, Option]) -> dict[str, Option]:
    """Return the options that `rltune resume` has, too."""
    return {name: option for name, option in options.items() if option.resume}


def _kind(hint: Any) -> type:
    """Return the type of an annotation's values: the first that is not None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    kind: type = typing.get_origin(hint) or hint
    return kind


def check_options(spec: Any) -> None:
    """Raise UserError for the first field of the wrong type, or option out of its range."""
    from rltune.common.reading import check_types  # imports YAML, which a help page doesn't need

    options = options_of(type(spec))
    written = {option.name: option.written for option in options.values() if option.written}
    check_types(spec, written)
    for name, option in options.items():
        option.check(getattr(spec, name))


def keywords(given: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values of keywords, with what is given as a text, such as "30m", parsed.

    Raises:
        UserError: there is no such option, or a text can't be parsed.
    """
    values = dict(given)
    for name, value in given.items():
        if name not in options:
            raise unknown("option", name, options)
        parse = options[name].parse
        if parse is not None and isinstance(value, str):
            values[name] = parse(value)
    return values


def parse_whole(text: str) -> int:
    """Turn "50000" or "5e4" into a whole number. ValueError: it is none."""
    try:
        return int(text)  # a float would round a large seed
    except ValueError:
        value = float(text)
    if not value.is_integer():
        raise ValueError
    return int(value)


def parse_steps(text: str) -> int:
    """Turn "50000" or "5e4" into env steps, from 1 to 1e15. ValueError: it is none of them."""
    value = float(text)
    if not 1 <= value < 1e15:
        raise ValueError
    return round(value)


# What argparse calls their values in its messages.
parse_whole.__name__ = parse_steps.__name__ = "whole number"


def parse_duration(text: str) -> float:
    """Turn "90", "90s", "30m", "2h", "1h30m" or "1d" into seconds.

    Raises:
        UserError: the text is none of these.
    """
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    rest, total = text.strip().lower(), 0.0
    try:
        while rest:
            split = next((i for i, c in enumerate(rest) if c in units), len(rest))
            total += float(rest[:split]) * units[rest[split] if split < len(rest) else "s"]
            rest = rest[split + 1 :]
    except ValueError:
        total = math.nan
    if not (total > 0 and math.isfinite(total)):
        raise UserError(f"--time-limit {text!r} is no duration; write 90s, 30m, 2h or 1h30m.")
    return total
