"""Settings of a trainer file: read as what they should be, and what they become."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rltune.agents.errors import UserError
from rltune.space.yaml_lines import SourceText

Settings = dict[str, Any]


@dataclass
class Translation:
    """A behavior in rltune's words.

    Attributes:
        behavior: its name
        agent: "ppo" or "sac"
        budget: env steps of the training
        config: hyperparameters
        notes: a sentence for each thing that has no counterpart, or not the same meaning
    """

    behavior: str
    agent: str
    budget: int
    config: Settings = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Reader:
    """Hands out settings as what they should be; those that nobody asked for are ``left``."""

    def __init__(
        self, settings: Settings, defaults: Settings, source: SourceText, place: tuple[str, ...]
    ) -> None:
        self._settings, self._defaults = settings, defaults
        self._source, self._place = source, place
        self._read: set[str] = set()

    @property
    def left(self) -> set[str]:
        """The settings that nobody asked for."""
        return set(self._settings) - self._read

    def has(self, key: str) -> bool:
        """Tell whether the file has a setting."""
        return key in self._settings

    def otherwise(self, **defaults: Any) -> None:
        """Set what holds where a setting is missing."""
        self._defaults = {**self._defaults, **defaults}

    def within(self, settings: Mapping[str, Any], defaults: Settings) -> Reader:
        """Return a reader of a section; what is wrong there is said at the behavior."""
        return Reader(dict(settings), defaults, self._source, self._place)

    def value(self, key: str) -> Any:
        """Return a setting, or its default."""
        self._read.add(key)
        return self._settings.get(key, self._defaults.get(key))

    def number(self, key: str, least: float = 0.0) -> float:
        """Return a setting that is a number, also one that is written as a text: "5.0e5"."""
        value = self.value(key)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool) or not (math.isfinite(number) and number >= least):
            raise self.error(key, f"needs a number from {least:g} up; got {value!r:.60}")
        return number

    def whole(self, key: str, least: int = 0) -> int:
        """Return a setting that is a whole number."""
        number = self.number(key, least)
        if not number.is_integer():
            raise self.error(key, f"needs a whole number; got {number:g}")
        return int(number)

    def section(self, key: str) -> Mapping[str, Any]:
        """Return the settings within a section; none where there is no such section."""
        value = self.value(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(key, "needs settings by name")
        return value

    def decaying(self, key: str, schedule: str) -> float | str:
        """Return a number, or a schedule that falls from it to 0 as ML-Agents' `linear` does."""
        number, how = self.number(key), self.value(schedule)
        if how not in ("linear", "constant"):
            raise self.error(schedule, f"needs linear or constant; got {how!r:.60}")
        return f"lin_{number:g}" if how == "linear" else number

    def error(self, key: str, said: str) -> UserError:
        """Return an error that says where the behavior stands."""
        return self._source.error(self._place, f"{key} {said}")
