"""Signatures of functions that pass on ``**options``, for `help` and for editors."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def takes_fields_of(
    *specs: type, but: Iterable[str] = (), rest: str | None = None
) -> Callable[[F], F]:
    """Return a decorator of a function whose ``**options`` are the fields of these dataclasses.

    Args:
        specs: the dataclasses, whose defaults are shown
        but: fields that are no options
        rest: the name of further options; None: there are none
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        named = [
            parameter
            for parameter in own.parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        known = {*but, *(parameter.name for parameter in named)}
        fields = [field for spec in specs for field in dataclasses.fields(spec)]
        named += [_parameter(field) for field in fields if field.name not in known]
        if rest is not None:
            named.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
        function.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
        return function

    return decorate


def _parameter(field: dataclasses.Field[Any]) -> inspect.Parameter:
    default: Any = inspect.Parameter.empty
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        default = field.default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field.name, kind, default=default, annotation=field.type)
