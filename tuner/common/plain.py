"""Serialisable values: copies made of the types that JSON and YAML know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a copy made of dictionaries, lists and scalars; NaN and infinity stay."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return scalar(value)


def json_dict(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy in JSON's types: keys become text, and a number that is not finite null."""
    return {str(key): _json(value) for key, value in values.items()}


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json_dict(value)
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    value = scalar(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def scalar(value: Any) -> Any:
    """Return a NumPy scalar as Python's number, and any type that JSON lacks as text."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
