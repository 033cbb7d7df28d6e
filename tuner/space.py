"""The search space: what is searched, what is fixed, what must hold, and where to start.

One language as YAML and as a Python dict; docs/spaces.md shows it on one page. A *configuration*
is a dict of hyperparameters. Reading, changing and checking a space never trains anything.
"""

from __future__ import annotations

import graphlib
import importlib.resources
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rltune.agents.errors import UserError, unknown
from rltune.dimensions import (
    INVALID,
    Dimension,
    is_whole,
    parse_dimension,
    plain,
    same,
    show,
)
from rltune.expressions import Expression
from rltune.yaml_lines import KeyPath, Source, read_yaml

__all__ = ["Dimension", "Space", "Start", "shipped_spaces"]

KEYS = ("agent", "env", "budget", "fixed", "space", "derived", "constraints", "start")
MAX_REJECTIONS = 10_000  # draws without a valid configuration before the constraints are to blame


@dataclass(frozen=True)
class Start:
    """A known-good configuration to try first.

    ``values`` may leave the searched ranges. ``env`` lists the environments that it is meant for;
    empty: any.
    """

    values: dict[str, Any]
    name: str = ""
    env: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it in the language of the search-space files."""
        head: dict[str, Any] = {"name": self.name} if self.name else {}
        if self.env:
            head["env"] = self.env[0] if len(self.env) == 1 else list(self.env)
        return {**head, **self.values}


@dataclass(frozen=True)
class Space:
    """A search space. Immutable; what changes it returns a new one.

    Attributes:
        agent: name of the agent that it is for, or None
        env: its environment, or None
        budget: environment steps of a full trial, or None
        fixed: values that every configuration has
        dimensions: what is searched, by name, in the order of the file
        derived: values computed from others
        constraints: what a configuration must satisfy
        starts: known-good configurations
    """

    agent: str | None = None
    env: str | None = None
    budget: int | None = None
    fixed: dict[str, Any] = field(default_factory=dict)
    dimensions: dict[str, Dimension] = field(default_factory=dict)
    derived: dict[str, Expression] = field(default_factory=dict)
    constraints: tuple[Expression, ...] = ()
    starts: tuple[Start, ...] = ()

    # -- reading and writing

    @classmethod
    def load(cls, path: str | Path) -> Space:
        """Read a YAML file, or the space that ships under a name such as ``ppo``.

        Raises:
            UserError: ``file:line: key: what is wrong and what to write instead``.
        """
        data, source = read_yaml(_find_file(str(path)))
        return cls._read(data, source)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "") -> Space:
        """Read a dict in the language of the YAML files; the dimensions alone will do too.

        Args:
            data: the space
            where: what the errors start with

        Raises:
            UserError: ``where: key: what is wrong and what to write instead``.
        """
        if isinstance(data, Mapping) and data and not any(key in KEYS for key in data):
            data = {"space": data}
        return cls._read(data, Source(where))

    @classmethod
    def _read(cls, data: object, source: Source) -> Space:
        data = _mapping(data, source, (), "keys such as agent, fixed and space")
        for key in data:
            if key not in KEYS:
                error = unknown("key", str(key), KEYS)
                raise source.error((str(key),), str(error))
        if "space" not in data:
            raise source.error((), "has no key space: with the hyperparameters to search")
        space = cls(
            agent=_text(data.get("agent"), source, ("agent",)),
            env=_text(data.get("env"), source, ("env",)),
            budget=_budget(data.get("budget"), source),
            fixed=_fixed(data.get("fixed"), source),
            dimensions=_dimensions(data["space"], source),
            derived=_derived(data.get("derived"), source),
            constraints=_constraints(data.get("constraints"), source),
            starts=_starts(data.get("start"), source),
        )
        space._check(source)
        return space

    def to_dict(self) -> dict[str, Any]:
        """Return plain types in the language of the YAML files; `from_dict` reads them back."""
        data: dict[str, Any] = {"agent": self.agent, "env": self.env, "budget": self.budget}
        data["fixed"] = dict(self.fixed)
        data["space"] = {name: d.to_dict() for name, d in self.dimensions.items()}
        data["derived"] = {name: expression.text for name, expression in self.derived.items()}
        data["constraints"] = [constraint.text for constraint in self.constraints]
        data["start"] = [start.to_dict() for start in self.starts]
        return {key: value for key, value in data.items() if value or key == "space"}

    # -- configurations

    def active(self, values: Mapping[str, Any]) -> list[str]:
        """The searched names that a configuration with these values has, in the file's order."""
        known = {**self.fixed, **values}
        for name in self._order:
            if not _holds(self.dimensions[name].when, known):
                known.pop(name, None)
        return [n for n, d in self.dimensions.items() if _holds(d.when, known)]

    def suggest(self, draw: Callable[[Dimension], Any]) -> dict[str, Any]:
        """Ask ``draw`` for the value of every active dimension, parents before children."""
        values: dict[str, Any] = {}
        for name in self._order:
            dimension = self.dimensions[name]
            if _holds(dimension.when, {**self.fixed, **values}):
                values[name] = draw(dimension)
        return {name: values[name] for name in self.dimensions if name in values}

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw values of the active dimensions that satisfy every constraint.

        Raises:
            UserError: the constraints leave (almost) nothing.
        """
        broken: list[str] = []
        for _ in range(MAX_REJECTIONS):
            values = self.suggest(lambda dimension: dimension.sample(rng))
            broken = self.violations(self.resolve(values))
            if not broken:
                return values
        raise UserError(
            f"none of {MAX_REJECTIONS:,} samples satisfies the constraints (the last one broke "
            f"{broken[0]}); widen the ranges or loosen the constraint"
        )

    def resolve(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the full configuration: fixed values, active ones and derived ones.

        ``values`` win over fixed ones; values of inactive dimensions are left out.

        Raises:
            UserError: a derived value cannot be computed, such as a division by zero.
        """
        active = set(self.active(values))
        config = dict(self.fixed)
        for name, value in values.items():
            if name not in self.dimensions or name in active:
                config[name] = value
        return self._with_derived(config)

    def violations(self, config: Mapping[str, Any]) -> list[str]:
        """The constraints that a resolved configuration breaks, with the values, for messages.

        A constraint over a name that the configuration lacks (an inactive dimension) holds.
        """
        known = self._with_derived(dict(config))
        return [
            constraint.with_values(known)
            for constraint in self.constraints
            if constraint.names <= known.keys() and not constraint.evaluate(known)
        ]

    def contains(self, values: Mapping[str, Any]) -> bool:
        """Whether exactly the active dimensions have a value, each in its range."""
        active = self.active(values)
        return set(values) == set(active) and all(
            self.dimensions[name].contains(values[name]) for name in active
        )

    def starts_for(self, env: str | None) -> list[Start]:
        """The starts that are meant for an environment and break no constraint."""
        return [
            start
            for start in self.starts
            if (not start.env or env in start.env)
            and not self.violations(self.resolve(start.values))
        ]

    def _with_derived(self, config: dict[str, Any]) -> dict[str, Any]:
        for name in self._derived_order:
            expression = self.derived[name]
            if expression.names <= config.keys():
                config[name] = expression.evaluate(config)
        return config

    @cached_property
    def _order(self) -> list[str]:
        """The dimensions, those that conditions ask for first."""
        graph = {n: [p for p in d.when if p in self.dimensions] for n, d in self.dimensions.items()}
        return list(graphlib.TopologicalSorter(graph).static_order())

    @cached_property
    def _derived_order(self) -> list[str]:
        graph = {
            n: sorted(p for p in e.names if p in self.derived) for n, e in self.derived.items()
        }
        return list(graphlib.TopologicalSorter(graph).static_order())

    # -- checks

    def _check(self, source: Source) -> None:
        """Raise a UserError when the parts of the space don't go together."""
        for name in self.dimensions:
            for other, part in (("fixed", self.fixed), ("derived", self.derived)):
                if name in part:
                    raise source.error(
                        (other, name), f"{name} is searched too (under space); keep one of the two"
                    )
        for name in self.derived:
            if name in self.fixed:
                raise source.error(("derived", name), f"{name} is fixed too; keep one of the two")
        self._check_conditions(source)
        self._check_expressions(source)
        for i, start in enumerate(self.starts):
            self._check_start(start, source, ("start", i))

    def _check_conditions(self, source: Source) -> None:
        for name, dimension in self.dimensions.items():
            for parent, wanted in dimension.when.items():
                path = ("space", name, "when", parent)
                if parent in self.fixed:
                    continue
                if parent not in self.dimensions:
                    known = {**self.dimensions, **self.fixed}
                    raise source.error(path, str(unknown("name", parent, known)))
                for value in wanted:
                    if not self.dimensions[parent].contains(value):
                        raise source.error(
                            path,
                            f"{parent} is never {show(value)}; its values are "
                            f"{self.dimensions[parent].describe()}",
                        )
        try:
            _ = self._order
        except graphlib.CycleError as error:
            raise _cycle(error, "space", "the conditions", source) from None

    def _check_expressions(self, source: Source) -> None:
        known = {**self.fixed, **self.dimensions, **self.derived}
        places: list[tuple[KeyPath, Expression]] = [
            *((("derived", name), expression) for name, expression in self.derived.items()),
            *((("constraints", i), expression) for i, expression in enumerate(self.constraints)),
        ]
        for path, expression in places:
            for name in sorted(expression.names - known.keys()):
                error = unknown("name", name, known)
                hint = f"or give {name} under fixed" if name.isidentifier() else ""
                raise source.error(path, f"{expression.text!r}: {error} {hint}".rstrip())
        try:
            _ = self._derived_order
        except graphlib.CycleError as error:
            raise _cycle(error, "derived", "the derived values", source) from None

    def _check_start(self, start: Start, source: Source, path: KeyPath) -> None:
        active = set(self.active(start.values))
        for name in start.values:
            if name in self.derived:
                raise source.error((*path, name), f"{name} is derived; leave it out")
            if name in self.dimensions and name not in active:
                when = self.dimensions[name].when
                raise source.error(
                    (*path, name),
                    f"{name} is only there when {_condition_text(when)}; say so in this start",
                )
        try:
            broken = self.violations(self.resolve(start.values))
        except UserError as error:
            raise source.error(path, str(error)) from None
        if broken:
            raise source.error(path, f"breaks the constraint {broken[0]}")


def shipped_spaces() -> list[Path]:
    """The search-space files that ship with rltune."""
    folder = Path(str(importlib.resources.files("rltune.search_spaces")))
    return sorted(folder.glob("*.yaml"))


def _find_file(name: str) -> Path:
    """The file of that name, or the one that ships as ``ppo`` or ``search_spaces/ppo.yaml``."""
    path = Path(name)
    if path.exists():
        return path
    shipped = {file.stem: file for file in shipped_spaces()}
    in_place = str(path.parent) in (".", "search_spaces") and path.suffix in ("", ".yaml")
    if in_place and path.stem in shipped:
        return shipped[path.stem]
    if path.suffix or path.parent != Path("."):
        raise UserError(f"{name}: no such file; rltune spaces lists those that ship")
    raise unknown("search space", name, shipped)


def _holds(when: Mapping[str, Iterable[Any]], known: Mapping[str, Any]) -> bool:
    return all(
        name in known and any(same(known[name], value) for value in wanted)
        for name, wanted in when.items()
    )


def _condition_text(when: Mapping[str, Iterable[Any]]) -> str:
    parts = (f"{name} is {' or '.join(map(show, wanted))}" for name, wanted in when.items())
    return " and ".join(parts)


def _cycle(error: graphlib.CycleError, key: str, what: str, source: Source) -> UserError:
    names = list(reversed(error.args[1]))
    return source.error((key, names[0]), f"{what} go in a circle: {' -> '.join(names)}")


# -- reading the parts of a space


def _mapping(value: object, source: Source, path: KeyPath, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise source.error(path, f"needs {what}; got {show(value)}")
    return value


def _named(value: object, source: Source, key: str, what: str) -> Iterator[tuple[str, Any]]:
    """The pairs of a mapping whose keys are names of hyperparameters."""
    if value is None:
        return
    for name, item in _mapping(value, source, (key,), what).items():
        if not isinstance(name, str) or not name.isidentifier():
            raise source.error((key, str(name)), f"{show(name)} is not a name such as n_steps")
        yield name, item


def _text(value: object, source: Source, path: KeyPath) -> str | None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise source.error(path, f"needs a name; got {show(value)}")
    return value


def _budget(value: Any, source: Source) -> int | None:
    if value is None:
        return None
    if not is_whole(value) or value < 1:
        raise source.error(
            ("budget",), f"needs a number of environment steps such as 1e5; got {show(value)}"
        )
    return int(value)


def _fixed(value: object, source: Source) -> dict[str, Any]:
    result = {}
    for name, item in _named(value, source, "fixed", "names and values such as {n_envs: 8}"):
        result[name] = plain(item)
        if result[name] is INVALID:
            raise source.error(("fixed", name), f"{show(item)} is not a value")
    return result


def _dimensions(value: object, source: Source) -> dict[str, Dimension]:
    what = "names and ranges such as {gamma: {uniform: [0.9, 0.99]}}"
    if value is None:
        raise source.error(("space",), f"needs {what}; got nothing")
    return {
        name: parse_dimension(name, item, source, ("space", name))
        for name, item in _named(value, source, "space", what)
    }


def _expression(value: object, source: Source, path: KeyPath, example: str) -> Expression:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = repr(value)
    if not isinstance(value, str):
        raise source.error(path, f"needs an expression such as {example}; got {show(value)}")
    try:
        return Expression(value)
    except UserError as error:
        raise source.error(path, str(error)) from None


def _derived(value: object, source: Source) -> dict[str, Expression]:
    example = "n_steps * n_envs // batch_size"
    return {
        name: _expression(item, source, ("derived", name), example)
        for name, item in _named(value, source, "derived", f"names and expressions: {example}")
    }


def _constraints(value: object, source: Source) -> tuple[Expression, ...]:
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


def _starts(value: object, source: Source) -> tuple[Start, ...]:
    if value is None:
        return ()
    what = "configurations such as {learning_rate: 1e-3, n_steps: 32}"
    if not isinstance(value, (list, tuple)):
        raise source.error(("start",), f"needs a list of {what}; got {show(value)}")
    return tuple(_start(item, source, ("start", i), what) for i, item in enumerate(value))


def _start(value: object, source: Source, path: KeyPath, what: str) -> Start:
    values = plain(_mapping(value, source, path, what))
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
    return Start(values, name, tuple(envs))
