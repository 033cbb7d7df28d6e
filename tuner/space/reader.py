"""Reading the parts of a search space from plain data; a mistake says where and what to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError, unknown
from rltune.agents.reward_signals import NESTED, spelled_out
from rltune.space.core import Start
from rltune.space.dimensions import INVALID, Dimension, is_whole, parse_dimension, plain, show
from rltune.space.expressions import Expression
from rltune.space.recipes import as_recipe
from rltune.space.script import read_script
from rltune.space.surroundings import is_surrounding
from rltune.space.yaml_lines import KeyPath, SourceText, read_yaml

STARTS = ("start", "portfolio")
KEYS = ("agent", "env", "budget", "fixed", "space", "derived", "constraints", *STARTS, "script")


def read_parts(data: object, source: SourceText) -> dict[str, Any]:
    """Return the arguments of `rltune.space.space.Space` that the data describe."""
    data = _mapping(data, source, (), "keys such as agent, fixed and space")
    for key in data:
        if key not in KEYS:
            raise source.error((str(key),), str(unknown("key", str(key), KEYS)))
    if "space" not in data:
        raise source.error((), "has no key space: with the hyperparameters to search")
    return {
        "agent": _text(data.get("agent"), source, ("agent",)),
        "env": _text(data.get("env"), source, ("env",)),
        "budget": _budget(data.get("budget"), source),
        "fixed": _fixed(data.get("fixed"), source),
        "dimensions": _dimensions(data["space"], source),
        "derived": _derived(data.get("derived"), source),
        "constraints": _constraints(data.get("constraints"), source),
        "starts": tuple(s for part in STARTS for s in _starts(data.get(part), source, part)),
        "script": read_script(data.get("script"), source),
        "source": source,
    }


def _mapping(value: object, source: SourceText, path: KeyPath, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise source.error(path, f"needs {what}; got {show(value)}")
    return value


def _spelled_out(value: object, source: SourceText, path: KeyPath, what: str) -> dict[str, Any]:
    """Return a mapping of hyperparameters, those of reward signals under their own names."""
    values = _mapping(value, source, path, what)
    try:
        return spelled_out(values, strength=None if path == ("space",) else 1.0)
    except UserError as error:
        raise source.error((*path, NESTED), str(error)) from None


def _named(value: object, source: SourceText, key: str, what: str) -> Iterator[tuple[str, Any]]:
    """The pairs of a mapping whose keys are names of hyperparameters."""
    if value is None:
        return
    for name, item in _spelled_out(value, source, (key,), what).items():
        if not (isinstance(name, str) and (name.isidentifier() or is_surrounding(name))):
            raise source.error((key, str(name)), f"{show(name)} is not a name such as n_steps")
        yield name, item


def _text(value: object, source: SourceText, path: KeyPath) -> str | None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise source.error(path, f"needs a name; got {show(value)}")
    return value


def _budget(value: Any, source: SourceText) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or value < 1:
        raise source.error(
            ("budget",), f"needs a number of env steps such as 1e5; got {show(value)}"
        )
    return int(value)


def _fixed(value: object, source: SourceText) -> dict[str, Any]:
    result = {}
    for name, item in _named(value, source, "fixed", "names and values such as {n_envs: 8}"):
        result[name] = plain(item)
        if result[name] is INVALID:
            raise source.error(("fixed", name), f"{show(item)} is not a value")
    return result


def _dimensions(value: object, source: SourceText) -> dict[str, Dimension]:
    what = "names and ranges such as {gamma: {uniform: [0.9, 0.99]}}"
    if value is None:
        raise source.error(("space",), f"needs {what}; got nothing")
    return {
        name: parse_dimension(name, item, source, ("space", name))
        for name, item in _named(value, source, "space", what)
    }


def _expression(value: object, source: SourceText, path: KeyPath, example: str) -> Expression:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = repr(value)
    if not isinstance(value, str):
        raise source.error(path, f"needs an expression such as {example}; got {show(value)}")
    try:
        return Expression(value, path)
    except UserError as error:
        raise source.error(path, str(error)) from None


def _derived(value: object, source: SourceText) -> dict[str, Expression]:
    example = "n_steps * n_envs // batch_size"
    return {
        name: _expression(item, source, ("derived", name), example)
        for name, item in _named(value, source, "derived", f"names and expressions: {example}")
    }


def _constraints(value: object, source: SourceText) -> tuple[Expression, ...]:
    example = "batch_size <= n_steps * n_envs"
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise source.error(("constraints",), f"needs a list such as [{example}]; got {show(value)}")
    constraints = []
    for i, item in enumerate(value):
        constraint = _expression(item, source, ("constraints", i), example)
        if not constraint.is_condition:
            raise source.error(
                ("constraints", i), f"needs a comparison such as {example}; got {show(item)}"
            )
        constraints.append(constraint)
    return tuple(constraints)


def _starts(value: object, source: SourceText, part: str) -> tuple[Start, ...]:
    if value is None:
        return ()
    what = "configurations such as {learning_rate: 1e-3, n_steps: 32}"
    if not isinstance(value, (list, tuple)):
        raise source.error((part,), f"needs a list of {what}; got {show(value)}")
    return tuple(_start(item, source, (part, i), what) for i, item in enumerate(value))


def _exported(file: str, source: SourceText, path: KeyPath) -> dict[str, Any]:
    """Return the configuration in a file of `rltune export`, for any environment."""
    try:
        data, _ = read_yaml(Path(source.name).parent / file)
        found = as_recipe(data, file) if isinstance(data, dict) else None
    except UserError as error:
        raise source.error(path, str(error)) from None
    if found is None:
        raise source.error(path, f"{file} is no file that rltune export --to yaml has written")
    if found.get("schedule"):
        raise source.error(
            path, f"the hyperparameters in {file} change as it trains; a start's can't"
        )
    return {"name": Path(file).stem, **found["config"]}


def _start(value: object, source: SourceText, path: KeyPath, what: str) -> Start:
    if isinstance(value, str):
        value = _exported(value, source, path)
    values = plain(_spelled_out(value, source, path, what))
    if values is INVALID:
        raise source.error(path, f"needs {what}; got {show(value)}")
    name = _text(values.pop("name", None), source, (*path, "name")) or ""
    env = values.pop("env", None)
    envs = env if isinstance(env, list) else [] if env is None else [env]
    for item in envs:
        _text(item, source, (*path, "env"))
    if not values:
        raise source.error(path, f"needs {what}; got {show(value)}")
    for key in values:
        if not key.isidentifier():
            raise source.error((*path, key), f"{show(key)} is not a name such as n_steps")
    return Start(values, name, tuple(envs), str(path[0]), path)
