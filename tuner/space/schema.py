"""The JSON Schema of the search-space files, for editors that complete and check them.

``rltune space schema > search_spaces/schema.json`` publishes it. It knows the shape of the
language; what goes beyond (names in expressions, conditions, cycles) is for `rltune.space.space`.
"""

from __future__ import annotations

import json
from typing import Any

from rltune.agents.config import hyperparameters
from rltune.agents.registry import BUILTIN, agent_class
from rltune.agents.registry import HELP as AGENTS
from rltune.space.script import BOOLEANS, FOLDERS, KINDS, STYLES
from rltune.space.surroundings import LENGTH, PATTERN

NAME = rf"^([A-Za-z_][A-Za-z0-9_]*|{PATTERN})$"
POWERS_OF_TWO = [2**exponent for exponent in range(31)]


def space_schema() -> dict[str, Any]:
    """Return the schema (draft 7, which every editor reads)."""
    helps = _helps()
    expression = {"type": ["string", "number"], "minLength": 1}
    exported = {"type": "string", "description": "a file of rltune export --to yaml"}
    starts = {"type": "array", "items": {"anyOf": [{"$ref": "#/definitions/start"}, exported]}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "rltune search space",
        "type": "object",
        "additionalProperties": False,
        "required": ["space"],
        "properties": {
            "agent": {"type": "string", "description": AGENTS},
            "env": {"type": "string", "description": "gymnasium id, or module:Class of your own"},
            "budget": {
                "type": "integer",
                "minimum": 1,
                "description": "env steps of a whole budget",
            },
            "fixed": _by_name(helps, {}, "values that every configuration has"),
            "space": _by_name(helps, {"$ref": "#/definitions/dimension"}, "what is searched"),
            "derived": _by_name(helps, expression, "values computed from others"),
            "constraints": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "description": "what must hold, such as batch_size <= n_steps * n_envs",
            },
            "start": {**starts, "description": "known-good settings, tried first"},
            "portfolio": {**starts, "description": "what is often good elsewhere, tried next"},
            "script": _script(),
        },
        "definitions": {"dimension": {"anyOf": _dimensions()}, "start": _start(helps)},
    }


def schema_text() -> str:
    """Return the schema as the file holds it."""
    return json.dumps(space_schema(), indent=2) + "\n"


def _helps() -> dict[str, str]:
    """Return the agents' help on their hyperparameters, by name."""
    helps: dict[str, str] = {}
    for name in BUILTIN:
        for parameter in hyperparameters(agent_class(name).Config).values():
            helps.setdefault(parameter.name, parameter.help)
    helps[LENGTH] = "env steps of the training, at most the budget"
    return helps


def _by_name(helps: dict[str, str], value: dict[str, Any], description: str) -> dict[str, Any]:
    """An object whose keys are hyperparameters: ours for completion, any other of a user's own."""
    return {
        "type": "object",
        "description": description,
        "propertyNames": {"pattern": NAME},
        "properties": {name: _with_help(value, text) for name, text in helps.items()},
        "additionalProperties": value,
    }


def _with_help(value: dict[str, Any], text: str) -> dict[str, Any]:
    # Draft 7 ignores what stands beside a $ref, hence allOf.
    return {"description": text, **({"allOf": [value]} if "$ref" in value else value)}


def _start(helps: dict[str, str]) -> dict[str, Any]:
    start = _by_name(helps, {}, "a configuration; it may leave the searched ranges")
    texts = {"type": "array", "items": {"type": "string", "minLength": 1}}
    start["properties"] = {
        "name": {"type": "string", "minLength": 1, "description": "what to call it"},
        "env": {
            "anyOf": [{"type": "string", "minLength": 1}, texts],
            "description": "only for this environment, or these",
        },
        **start["properties"],
    }
    return start


def _script() -> dict[str, Any]:
    """The declarations on a script of the user's own."""
    text = {"type": ["string", "null"]}
    keys: dict[str, dict[str, Any]] = {
        "style": {"enum": list(STYLES), "description": "how hyperparameters are passed"},
        "names": {"type": "object", "additionalProperties": {"type": "string"}},
        "booleans": {"enum": list(BOOLEANS)},
        "args": {"type": "array", "description": "words that every trial has"},
        "results": {"anyOf": [{"enum": list(KINDS)}, {"type": "object"}]},
        "average": {"type": "integer", "minimum": 1, "description": "so many last values count"},
        "cwd": {"enum": list(FOLDERS), "description": "the folder where it runs"},
        "stop_seconds": {"type": "integer", "minimum": 0},
    }
    for name in ("config", "seed", "budget", "env", "folder", "resume", "checkpoint", "python"):
        keys[name] = text
    return {
        "type": "object",
        "description": "how a script of your own is told and read (docs/bring-your-own.md)",
        "additionalProperties": False,
        "properties": keys,
    }


def _dimensions() -> list[dict[str, Any]]:
    numbers: dict[str, dict[str, Any]] = {
        "log": {"type": "number", "exclusiveMinimum": 0},
        "uniform": {"type": "number"},
        "one_minus_log": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "pow2": {"enum": POWERS_OF_TWO},
    }
    kinds = [_dimension(kind, _range(number)) for kind, number in numbers.items()]
    step = {"type": "integer", "minimum": 1}
    kinds.append(_dimension("int", _range({"type": "integer"}), log={"type": "boolean"}, step=step))
    choices = {"type": "array", "minItems": 1, "uniqueItems": True}
    kinds.append(_dimension("choice", choices))
    return kinds


def _range(number: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": number, "minItems": 2, "maxItems": 2}


def _dimension(kind: str, value: dict[str, Any], **options: dict[str, Any]) -> dict[str, Any]:
    when = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": NAME},
        "description": "searched only when these have this value, or one of these",
    }
    prior = {"description": "the value that you expect to be good"}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [kind],
        "properties": {kind: value, **options, "when": when, "prior": prior},
    }
