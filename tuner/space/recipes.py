"""Recipes: all that one training needs, as a YAML file; `rltune export --to yaml` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltune.agents.errors import UserError

# In the order of the file, with what a reader expects there.
KEYS: dict[str, type | tuple[type, ...]] = {
    "agent": str,
    "env": str,
    "env_kwargs": dict,
    "budget": (int, float),
    "seed": int,
    "schedule": list,
    "controls": dict,
    "weights": str,
    "config": dict,
}


def as_recipe(data: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """Return the data of a file that was exported; None: it holds something else.

    Args:
        data: of the file
        where: what the errors start with

    Raises:
        UserError: a key is unknown, or its value is of another kind.
    """
    if not isinstance(data.get("config"), dict):
        return None
    for key, value in data.items():
        if key == "about":  # of the JSON, which has no comments
            continue
        if key not in KEYS:
            raise UserError(f"{where}: unknown key {key!r}; there may be {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            raise UserError(f"{where}: {key} is {value!r}, which can't be")
    found = {key: value for key, value in data.items() if key in KEYS}
    if "budget" in found:
        found["budget"] = int(found["budget"])
    return found
