"""Function signatures that name the options behind ``**options``, for `help` and for editors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rltune.common.options import Option

F = TypeVar("F", bound=Callable[..., Any])


def takes_options(
    options: Mapping[str, Option], *, resumed: bool = False, rest: str | None = None
) -> Callable[[F], F]:
    """Return a decorator of a function whose ``**options`` are these.

    Its signature gets a keyword with type and default for each of them, and its docstring a line.

    Args:
        options: by name; those that the function has as parameters already are left out
        resumed: they are those of a run that is resumed: by default None, which changes nothing
        rest: the name of further keywords; None: there are none
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = [option for name, option in options.items() if name not in own.parameters]
        named += [_parameter(option, resumed) for option in added]
        if rest is not None:
            named.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
        function.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
        lines = [f"    {option.name}: {_described(option, resumed)}" for option in added]
        documented = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n".join([documented, "", "Options:", *lines]).lstrip()
        return function

    return decorate


def _parameter(option: Option, resumed: bool) -> inspect.Parameter:
    annotation = option.annotation if option.parse is None else f"str | {option.annotation}"
    if resumed and not annotation.endswith("| None"):
        annotation += " | None"
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if resumed else option.default,
        annotation=annotation,
    )


def _described(option: Option, resumed: bool) -> str:
    """Return the help, which is that of --no-NAME where the default is True."""
    text = option.described(resumed)
    return f"if False, {text}" if option.default is True else text
