"""The search space: what is searched, what is fixed, what must hold, and where to start.

One language as YAML and as a Python dict; docs/spaces.md shows it on one page. A *configuration*
is a dict of hyperparameters. Reading, changing and checking a space never trains anything.
"""

from __future__ import annotations

import graphlib
import importlib.resources
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.config import Hyperparameter
from rltune.agents.errors import UserError, unknown
from rltune.dimensions import Dimension, same
from rltune.expressions import Expression
from rltune.scales import environments
from rltune.space_changes import bind, override, own_parts
from rltune.space_checks import check
from rltune.space_flags import dimension_from_values, parse_override
from rltune.space_reader import KEYS, Start, read_parts
from rltune.yaml_lines import Source, read_yaml

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Dimension",
    "Space",
    "Start",
    "dimension_from_values",
    "parse_override",
    "shipped_name",
    "shipped_spaces",
]

MAX_REJECTIONS = 10_000  # draws without a valid configuration before the constraints are to blame


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
    source: Source = field(default_factory=Source, compare=False, repr=False)

    # -- reading and writing

    @classmethod
    def load(cls, path: str | Path) -> Space:
        """Read a YAML file, or the space that ships under a name such as ``ppo``.

        Raises:
            UserError: ``file:line: key: what is wrong and what to write instead``.
        """
        return cls._read(*read_yaml(_find_file(str(path))))

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
    def from_hyperparameters(
        cls, hyperparameters: Mapping[str, Hyperparameter], agent: str | None = None
    ) -> Space:
        """The space that an agent's own declarations describe: what has a range is searched."""
        return bind(cls(agent=agent, **own_parts(hyperparameters)), hyperparameters)

    @classmethod
    def _read(cls, data: object, source: Source) -> Space:
        space = cls(**read_parts(data, source))
        check(space)
        return space

    def to_dict(self) -> dict[str, Any]:
        """Return plain types in the language of the YAML files; `from_dict` reads them back."""
        data: dict[str, Any] = {
            "agent": self.agent,
            "env": self.env,
            "budget": self.budget,
            "fixed": dict(self.fixed),
            "space": {name: dimension.to_dict() for name, dimension in self.dimensions.items()},
            "derived": {name: expression.text for name, expression in self.derived.items()},
            "constraints": [constraint.text for constraint in self.constraints],
            "start": [start.to_dict() for start in self.starts],
        }
        return {key: value for key, value in data.items() if value or key == "space"}

    # -- configurations

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

    def starts_for(self, env: str | None) -> list[Start]:
        """The starts that are meant for an environment, or for one of several."""
        wanted = set(environments(env)) if env else set()
        return [one for one in self.starts if not one.env or wanted.intersection(one.env)]

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

    # -- an agent, and the command line

    def checked_against(self, hyperparameters: Mapping[str, Hyperparameter]) -> Space:
        """Return the space in an agent's own names and types; aliases (``lr``) are replaced.

        Derived values that are no hyperparameters are put into the expressions that use them.

        Raises:
            UserError: an unknown hyperparameter, a wrong type, a value that is not allowed.
        """
        return bind(self, hyperparameters)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Space:
        """Return the space with other dimensions and fixed values, by our own names.

        A `Dimension`, or a dict that describes one, is searched; it keeps the condition that its
        name had. Any other value is fixed, for the starts too; starts that then break a constraint
        are dropped, as is all that hangs on a condition that can't come true any more.
        """
        return override(self, overrides)


def shipped_spaces() -> dict[str, Path]:
    """The search-space files that ship with rltune, by name."""
    folder = Path(str(importlib.resources.files("rltune.search_spaces")))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"), key=lambda file: file.stem)}


def shipped_name(agent: str) -> str:
    """The name under which an agent's general space ships, if one does: ``rllib-ppo``."""
    return agent.lower().replace(":", "-")


def _find_file(name: str) -> Path:
    """The file of that name, or the one that ships as ``ppo`` or ``search_spaces/ppo.yaml``."""
    path = Path(name)
    if path.exists():
        return path
    shipped = shipped_spaces()
    in_place = path.parent.name in ("", "search_spaces") and path.suffix in ("", ".yaml")
    if in_place and path.stem in shipped:
        return shipped[path.stem]
    if path.suffix or path.parent != Path("."):
        raise UserError(f"{name}: no such file; rltune spaces lists those that ship")
    raise unknown("search space", name, shipped)


def _holds(dimension: Dimension, known: Mapping[str, Any]) -> bool:
    """Whether the dimension's condition holds."""
    return not dimension.when or all(
        name in known and any(same(known[name], value) for value in wanted)
        for name, wanted in dimension.when.items()
    )
