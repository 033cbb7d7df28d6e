"""The search space as data: dimensions, fixed and derived values, constraints, and starts."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError
from rltune.space.dimensions import Dimension, same
from rltune.space.expressions import Expression
from rltune.space.script import ScriptSection
from rltune.space.yaml_lines import KeyPath, SourceText

if TYPE_CHECKING:
    import numpy as np

MAX_REJECTIONS = 10_000  # draws without a valid configuration before the constraints are to blame


@dataclass(frozen=True)
class Start:
    """A configuration to try first.

    Attributes:
        values: they may leave the searched ranges
        name: of known-good settings, to train with them; empty: none
        env: the environments that it is meant for; empty: any
        part: of the space that it stands in: "start" has known-good settings, with which a search
            compares what it finds; "portfolio" has what is often good elsewhere
        place: where it stands, for errors
    """

    values: dict[str, Any]
    name: str = ""
    env: tuple[str, ...] = ()
    part: str = "start"
    place: KeyPath = field(default=(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it in the language of the search-space files."""
        head: dict[str, Any] = {"name": self.name} if self.name else {}
        if self.env:
            head["env"] = self.env[0] if len(self.env) == 1 else list(self.env)
        return {**head, **self.values}


@dataclass(frozen=True)
class SpaceCore:
    """A search space. Immutable; what changes it returns a new one.

    Attributes:
        agent: name of the agent that it is for, or None
        env: its environment, or None
        budget: env steps of a whole budget, or None
        fixed: values that every configuration has
        dimensions: what is searched, by name, in the order of the file
        derived: values computed from others
        constraints: what a configuration must satisfy
        starts: configurations to try first: known-good ones, then the portfolio
        script: how a script of the user's own is told and read; None: it says nothing
        source: where it was read from, for errors
    """

    agent: str | None = None
    env: str | None = None
    budget: int | None = None
    fixed: dict[str, Any] = field(default_factory=dict)
    dimensions: dict[str, Dimension] = field(default_factory=dict)
    derived: dict[str, Expression] = field(default_factory=dict)
    constraints: tuple[Expression, ...] = ()
    starts: tuple[Start, ...] = ()
    script: ScriptSection | None = None
    source: SourceText = field(default_factory=SourceText, compare=False, repr=False)

    def active(self, values: Mapping[str, Any]) -> list[str]:
        """The searched names that a configuration with these values has, in the file's order."""
        known = {**self.fixed, **values}
        for name in self.order:
            if not _holds(self.dimensions[name], known):
                known.pop(name, None)
        return [name for name, d in self.dimensions.items() if _holds(d, known)]

    def suggest(self, draw: Callable[[Dimension], Any]) -> dict[str, Any]:
        """Ask ``draw`` for the value of every active dimension, parents before children."""
        known = dict(self.fixed)
        for name in self.order:
            if _holds(self.dimensions[name], known):
                known[name] = draw(self.dimensions[name])
        return {name: known[name] for name in self.dimensions if name in known}

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw values of the active dimensions that satisfy every constraint.

        Raises:
            UserError: the constraints leave (almost) nothing.
        """
        for _ in range(MAX_REJECTIONS):
            values = self.suggest(lambda dimension: dimension.sample(rng))
            try:
                broken = self.violations(self.resolve(values))
                failed = None
            except UserError as error:  # such as a division by zero
                failed = error
                continue
            if not broken:
                return values
        raise failed or self.source.error(
            ("constraints",),
            f"none of {MAX_REJECTIONS:,} samples satisfies them (the last one broke {broken[0]}); "
            "widen the ranges or loosen the constraint",
        )

    def resolve(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration: fixed values, the given ones and derived ones.

        The given values win over fixed ones; those of inactive dimensions are left out.

        Raises:
            UserError: a derived value cannot be computed, such as a division by zero.
        """
        active = self.active(values)
        chosen = {n: v for n, v in values.items() if n not in self.dimensions or n in active}
        return self._with_derived({**self.fixed, **chosen})

    def violations(self, config: Mapping[str, Any]) -> list[str]:
        """The constraints that a configuration breaks, with the values, for messages.

        A constraint over a name that the configuration lacks (an inactive dimension) holds.
        """
        known = self._with_derived(config)
        return [
            constraint.with_values(known)
            for constraint in self.constraints
            if constraint.names <= known.keys() and not self.evaluate(constraint, known)
        ]

    def contains(self, values: Mapping[str, Any]) -> bool:
        """Whether exactly the active dimensions have a value, each in its range."""
        active = self.active(values)
        return set(values) == set(active) and all(
            self.dimensions[name].contains(values[name]) for name in active
        )

    def starts_for(self, env: str | None, part: str = "start") -> list[Start]:
        """The starts of a part that are meant for an environment, or for one of several."""
        wanted = set(environments(env)) if env else set()
        return [
            start
            for start in self.starts
            if start.part == part and (not start.env or wanted.intersection(start.env))
        ]

    def _with_derived(self, config: Mapping[str, Any]) -> dict[str, Any]:
        known = dict(config)
        for name in self.derived_order:
            if self.derived[name].names <= known.keys():
                known[name] = self.evaluate(self.derived[name], known)
        return known

    def evaluate(self, expression: Expression, known: Mapping[str, Any]) -> Any:
        """Return its value. UserError, with its place: it has none."""
        try:
            return expression.evaluate(known)
        except UserError as error:
            raise self.source.error(expression.place, str(error)) from None

    @cached_property
    def order(self) -> list[str]:
        """The names of the dimensions, those that conditions ask for first."""
        graph = {n: [p for p in d.when if p in self.dimensions] for n, d in self.dimensions.items()}
        return list(graphlib.TopologicalSorter(graph).static_order())

    @cached_property
    def derived_order(self) -> list[str]:
        """The names of the derived values, each after those that it is computed from."""
        graph = {
            n: sorted(p for p in e.names if p in self.derived) for n, e in self.derived.items()
        }
        return list(graphlib.TopologicalSorter(graph).static_order())


def _holds(dimension: Dimension, known: Mapping[str, Any]) -> bool:
    """Whether the dimension's condition holds."""
    return not dimension.when or all(
        name in known and any(same(known[name], value) for value in wanted)
        for name, wanted in dimension.when.items()
    )
