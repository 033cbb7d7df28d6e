"""Plug-ins: what installed packages add to the registries, by entry points.

A package names its agents in the group ``rltune.agents``, its samplers in ``rltune.samplers``, and
so on. Each registry has a `PluginGroup`; the packages are read when a name is none of ours.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, TypeVar

from rltune.agents.errors import UserError, unknown
from rltune.agents.user_code import import_object

T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """One entry point of an installed package.

    Attributes:
        kind: of the thing, such as "sampler"
        point: its name, and where it is
        refused: why it is not used; empty: it is
    """

    kind: str
    point: EntryPoint
    refused: str = ""

    @property
    def name(self) -> str:
        """The name that a user writes."""
        return self.point.name

    @property
    def package(self) -> str:
        """The name of the package."""
        return self.point.dist.name if self.point.dist else "?"

    @property
    def version(self) -> str:
        """The version of the package."""
        return self.point.dist.version if self.point.dist else "?"

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.package} {self.version}"

    def load(self) -> Any:
        """Import it.

        Raises:
            UserError: it can't be imported.
        """
        try:
            return self.point.load()
        except (Exception, SystemExit) as error:
            said = (str(error).splitlines() or [""])[0]
            raise UserError(
                f"the {self} can't be loaded: {type(error).__name__}{said and f': {said}'}"
            ) from error


class PluginGroup:
    """The plug-ins of one registry.

    Args:
        name: of the group, behind ``rltune.``
        kind: of its things, such as "sampler"
        ours: the names that are taken
    """

    def __init__(self, name: str, kind: str, ours: Iterable[str]) -> None:
        self.name = name
        self.kind = kind
        self.ours = frozenset(ours)

    @functools.cached_property
    def found(self) -> list[Plugin]:
        """All plug-ins, those that are refused included."""
        return list(self._judged())

    @functools.cached_property
    def usable(self) -> Mapping[str, Plugin]:
        """The plug-ins that can be named; a user is told of the others, once."""
        for plugin in self.found:
            if plugin.refused:
                tell(plugin.refused)
        return {plugin.name: plugin for plugin in self.found if not plugin.refused}

    def _judged(self) -> Iterator[Plugin]:
        taken: dict[str, str] = dict.fromkeys(self.ours, "rltune")
        points = installed(f"rltune.{self.name}")
        for point in sorted(points, key=lambda point: (point.name, Plugin("", point).package)):
            plugin = Plugin(self.kind, point)
            if owner := taken.get(point.name.lower()):
                why = f"the {plugin} is not used: {owner} has one of that name"
                plugin = Plugin(self.kind, point, why)
            else:
                taken[point.name.lower()] = plugin.package
            yield plugin

    def load(self, name: str) -> Any:
        """Return what a name stands for: a plug-in, or ``module:Name`` of the user's own.

        Raises:
            UserError: there is none of this name, or it can't be imported.
        """
        if ":" in name:
            return import_object(name, self.kind)
        plugin = self.usable.get(name) or self.usable.get(name.lower())
        if plugin is None:
            raise unknown(self.kind, name, {*self.ours, *self.usable})
        return plugin.load()

    def working(self, load: Callable[[str], T]) -> dict[str, T]:
        """Return what ``load`` makes of each plug-in; a user is told of those that fail, once."""
        made: dict[str, T] = {}
        for name in self.usable:
            try:
                made[name] = load(name)
            except UserError as error:
                tell(str(error))
        return made


@functools.cache
def installed(group: str) -> EntryPoints:
    """Return the entry points of a group; reading those of all packages takes 20 ms."""
    return entry_points(group=group)


@functools.cache
def tell(said: str) -> None:
    """Say a sentence on standard error, once in a process."""
    print(f"rltune: {said}.", file=sys.stderr, flush=True)
