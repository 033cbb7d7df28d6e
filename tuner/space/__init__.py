"""Search spaces: dimensions, conditions, constraints, and the language of their files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.space.core import Start as Start
    from rltune.space.dimensions import Dimension as Dimension
    from rltune.space.flags import dimension_from_values as dimension_from_values
    from rltune.space.flags import parse_override as parse_override
    from rltune.space.space import Space as Space
    from rltune.space.space import shipped_name as shipped_name
    from rltune.space.space import shipped_spaces as shipped_spaces

_HOME = {
    "Dimension": "dimensions",
    "Space": "space",
    "Start": "core",
    "dimension_from_values": "flags",
    "parse_override": "flags",
    "shipped_name": "space",
    "shipped_spaces": "space",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
