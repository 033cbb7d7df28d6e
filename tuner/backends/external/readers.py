"""Readers of a script's results, as it writes them: event files, CSV, JSON lines, its output."""

from __future__ import annotations

import csv
import json
import math
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rltune.backends.external.events import EventFile
from rltune.backends.external.trial import TAKEN, Report
from rltune.space.script import STDOUT, ScriptSection

EVENTS = "*tfevents*"
MONITOR = {"r", "l", "t"}  # columns of Stable-Baselines3's Monitor: return, length, seconds
MOST_NAMES = 20  # in a message


class Reader(ABC):
    """Reads reports; the value is the mean of the last ones.

    Args:
        section: how the script is read
        metric: the name of the value
        folder: of the trial
        output: the file with the script's output
    """

    def __init__(self, section: ScriptSection, metric: str, folder: Path, output: Path) -> None:
        self.section, self.metric, self.folder, self.output = section, metric, folder, output
        self.seen: set[str] = set()  # names of numbers
        self._recent: deque[float] = deque(maxlen=section.average)

    def poll(self) -> list[Report]:
        """Return the reports that have come since the last call, by their env steps."""
        found = sorted(self._new(), key=lambda item: item[0])
        return [Report(step, self._averaged(value), metrics) for step, value, metrics in found]

    @abstractmethod
    def _new(self) -> Iterator[tuple[int, float, dict[str, float]]]:
        """Yield env steps, value and further numbers."""

    def missing(self) -> str:
        """Return the words on why there is no value."""
        known = ", ".join(sorted(self.seen)[:MOST_NAMES])
        return f"it wrote no {self.metric!r}; there are {known}" if known else "it wrote none"

    def _averaged(self, value: float) -> float:
        self._recent.append(value)
        return math.fsum(self._recent) / len(self._recent)

    def _files(self, pattern: str) -> list[Path]:
        """Return the files of a pattern below the folder, at any depth."""
        if pattern == STDOUT:
            return [self.output]
        return sorted(path for path in self.folder.rglob(pattern) if path.is_file())


class EventReader(Reader):
    """TensorBoard's event files; the metric is a tag."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: dict[Path, EventFile] = {}
        self._others: dict[str, float] = {}

    def _new(self) -> Iterator[tuple[int, float, dict[str, float]]]:
        for path in self._files(self.section.pattern or EVENTS):
            file = self._open.setdefault(path, EventFile(path))
            for step, tag, value in file.scalars():
                self.seen.add(tag)
                if tag == self.metric:
                    yield step, value, dict(self._others)
                elif tag not in TAKEN:
                    self._others[tag] = value


class LineReader(Reader):
    """Files of lines, which are read as soon as they are whole."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._read: dict[Path, int] = {}  # bytes
        self._begun: dict[Path, int] = {}  # lines

    def _lines(self, pattern: str) -> Iterator[tuple[Path, str]]:
        for path in self._files(pattern):
            start = self._read.get(path, 0)
            if path.stat().st_size < start:  # written anew
                start = self._begun[path] = 0
            with open(path, "rb") as file:
                file.seek(start)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = start + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                self._begun[path] = self._begun.get(path, 0) + 1
                yield path, line

    def _report(self, row: dict[str, Any]) -> tuple[int, float, dict[str, float]] | None:
        """Return the report in a row of names and values; None: it has none."""
        numbers: dict[str, float] = {}
        for name, value in row.items():
            try:
                numbers[name] = float(value)
            except (TypeError, ValueError):
                continue
        self.seen |= numbers.keys()
        step, value = numbers.pop(self.section.step, None), numbers.pop(self.metric, None)
        if step is None or value is None or not math.isfinite(step):
            return None
        others = {name: number for name, number in numbers.items() if name not in TAKEN}
        return int(step), value, others


class CsvReader(LineReader):
    """CSV files with a header, such as progress.csv; or those of Stable-Baselines3's Monitor."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._columns: dict[Path, list[str]] = {}
        self._monitored = 0  # env steps

    def _new(self) -> Iterator[tuple[int, float, dict[str, float]]]:
        for path, line in self._lines(self.section.pattern):
            cells = next(csv.reader([line]), [])
            if not cells or line.startswith("#"):
                continue
            columns = self._columns.get(path)
            if columns is None or cells == columns or self._begun[path] == 1:
                self._columns[path] = cells
                continue
            row = dict(zip(columns, cells, strict=False))
            if columns[:3] == ["r", "l", "t"]:
                yield from self._episode(row)
            elif (found := self._report(row)) is not None:
                yield found

    def _episode(self, row: dict[str, str]) -> Iterator[tuple[int, float, dict[str, float]]]:
        """Yield the report of an episode; the env steps are those of all files."""
        self._monitored += int(float(row["l"]))
        self.seen |= row.keys()
        name = "r" if self.metric in ("", "eval_return") else self.metric
        if name in row:
            yield self._monitored, float(row[name]), {}


class JsonReader(LineReader):
    """JSON lines, on the script's output or in a file; other lines are passed over."""

    def _new(self) -> Iterator[tuple[int, float, dict[str, float]]]:
        for _, line in self._lines(self.section.pattern or STDOUT):
            if not line.lstrip().startswith("{"):
                continue
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if (found := self._report(row)) is not None:
                yield found


class PatternReader(LineReader):
    """A regular expression that is searched in each line of the script's output."""

    def _new(self) -> Iterator[tuple[int, float, dict[str, float]]]:
        expression = re.compile(self.section.pattern)
        for _, line in self._lines(STDOUT):
            match = expression.search(line)
            if match is None or match["step"] is None or match["value"] is None:
                continue
            try:
                yield int(float(match["step"])), float(match["value"]), {}
            except (ValueError, OverflowError):
                continue

    def missing(self) -> str:
        """Return the words on why there is no value."""
        return f"no line of its output matches {self.section.pattern!r} with two numbers"


READERS: dict[str, type[Reader]] = {
    "tensorboard": EventReader,
    "csv": CsvReader,
    "json": JsonReader,
    "regex": PatternReader,
}
