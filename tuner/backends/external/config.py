"""Configurations of code of the user's own: its hyperparameters are what the search space names."""

from __future__ import annotations

import dataclasses
import functools
import keyword
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rltune.agents.config import hp
from rltune.agents.errors import UserError
from rltune.space.surroundings import is_surrounding

if TYPE_CHECKING:
    from rltune.space.core import SpaceCore

SCALES = ("log", "one_minus_log", "pow2")


def config_class(space: SpaceCore | None, more: Iterable[str], *, has_defaults: bool) -> type[Any]:
    """Return the class of configurations with what a space names; it has no values by default.

    Args:
        space: its dimensions, fixed and derived values and starts count; None: there is none
        more: further names
        has_defaults: whether the code has values of its own for what it is not told

    Raises:
        UserError: no field of a class can have a name.
    """
    scales: dict[str, str] = dict.fromkeys(more, "uniform")
    if space is not None:
        values: Iterable[Mapping[str, Any]] = (
            space.fixed, space.derived, *(start.values for start in space.starts)
        )  # fmt: skip
        for part in values:
            scales |= dict.fromkeys(part, "uniform")
        for name, dimension in space.dimensions.items():
            kind = "log" if dimension.log else dimension.kind
            scales[name] = kind if kind in SCALES else "uniform"
    own = {name: scale for name, scale in scales.items() if not is_surrounding(name)}
    return _made(tuple(own.items()), has_defaults)


def class_of(config: Iterable[str]) -> type[Any]:
    """Return the class of configurations with these names."""
    return _made(tuple((name, "uniform") for name in config), False)


@functools.cache
def _made(scales: tuple[tuple[str, str], ...], has_defaults: bool) -> type[Any]:
    for name, _ in scales:
        if keyword.iskeyword(name) or not name.isidentifier():
            raise UserError(
                f"{name!r} can't be the name of a hyperparameter, as it is a word of Python's; "
                f"write {name}_ (a script's flag may have its name: names: {{{name}_: --{name}}})."
            )
    fields = [
        (name, Any, hp(None, scale=scale, help="as the space says")) for name, scale in scales
    ]
    # Only our agents stack frames; the screens ask each agent.
    namespace = {"frame_stack": 0, "has_defaults": has_defaults}
    return dataclasses.make_dataclass(
        "SpaceConfig", fields, frozen=True, kw_only=True, namespace=namespace
    )
