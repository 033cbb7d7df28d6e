"""The search space: what is searched, what is fixed, what must hold, and where to start.

One language as YAML and as a Python dict; docs/spaces.md shows it on one page. A *configuration*
is a dict of hyperparameters. Reading, changing and checking a space never trains anything.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltune.agents.config import Hyperparameter
from rltune.agents.errors import UserError, unknown
from rltune.space.changes import bind, override, own_parts
from rltune.space.checks import check
from rltune.space.core import SpaceCore, Start
from rltune.space.dimensions import Dimension
from rltune.space.flags import dimension_from_values, parse_override
from rltune.space.reader import KEYS, STARTS, read_parts
from rltune.space.yaml_lines import SourceText, read_yaml

__all__ = [
    "Dimension",
    "Space",
    "Start",
    "dimension_from_values",
    "parse_override",
    "shipped_name",
    "shipped_spaces",
]


class Space(SpaceCore):
    """A search space, read from a file or a dict, for an agent, and as the command line changes it.

    The attributes are those of `SpaceCore`.
    """

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
        return cls._read(data, SourceText(where))

    @classmethod
    def from_hyperparameters(
        cls, hyperparameters: Mapping[str, Hyperparameter], agent: str | None = None
    ) -> Space:
        """The space that an agent's own declarations describe: what has a range is searched."""
        return bind(cls(agent=agent, **own_parts(hyperparameters)), hyperparameters)

    @classmethod
    def _read(cls, data: object, source: SourceText) -> Space:
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
            **{part: [s.to_dict() for s in self.starts if s.part == part] for part in STARTS},
            "script": self.script and self.script.to_dict(),
        }
        return {key: value for key, value in data.items() if value or key == "space"}

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
