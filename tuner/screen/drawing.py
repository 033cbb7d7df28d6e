"""Drawing for the pages of the screen: curves, bars, and lines that give way."""

from __future__ import annotations

import bisect
import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

MARGIN = 10  # columns of the section names
BARS = "▁▂▃▄▅▆▇█"
LEAST_FOLDED = 20  # columns in which a sentence can be read
CURSOR = "▸ "  # before the selected line, in the margin

NAME, QUIET, GOOD, BAD, HALF, ACCENT = "bold", "dim", "green", "red", "yellow", "cyan"


def sparkline(values: Sequence[float], width: int, low: float, high: float) -> str:
    """Draw the finite values between ``low`` and ``high`` in at most ``width`` characters."""
    finite = [value for value in values if value == value]
    if len(finite) > width:  # the mean of each of ``width`` equal pieces
        edges = [round(i * len(finite) / width) for i in range(width + 1)]
        finite = [sum(finite[a:b]) / (b - a) for a, b in itertools.pairwise(edges) if b > a]
    span = high - low
    places = [(value - low) / span if span > 0 else 1.0 for value in finite]
    return "".join(BARS[min(7, max(0, int(place * 8)))] for place in places)


def steps(
    times: Sequence[float], values: Sequence[float], since: float, until: float, width: int
) -> list[float]:
    """Return the value that held at each of ``width`` equal steps; NaN before the first one."""
    at = [since + (until - since) * (i + 1) / width for i in range(width)]
    places = [bisect.bisect_right(times, time) - 1 for time in at]
    return [values[place] if place >= 0 else math.nan for place in places]


def curve(
    points: Sequence[float],
    values: Sequence[float],
    until: float,
    width: int,
    height: int,
    low: float,
    high: float,
) -> list[str]:
    """Draw values over their points (ascending, from 0 to ``until``), the top row first.

    Between two points the curve is a straight line; beyond the last one there is none.
    """
    known = [(p, v) for p, v in zip(points, values, strict=True) if v == v]
    columns = [0] * width
    for column in range(width):
        value = _between_points(known, until * column / max(1, width - 1))
        if value is not None:
            place = (value - low) / (high - low) if high > low else 1.0
            columns[column] = 1 + round(max(0.0, min(1.0, place)) * (8 * height - 1))
    return [
        "".join(" " if eighths <= 0 else BARS[min(7, eighths - 1)] for eighths in row)
        for row in ([column - 8 * below for column in columns] for below in reversed(range(height)))
    ]


def _between_points(known: Sequence[tuple[float, float]], at: float) -> float | None:
    """Return the value of the curve there; None: it has not begun, or has ended."""
    after = next((i for i, (point, _) in enumerate(known) if point >= at), None)
    if after is None or (after == 0 and known[0][0] > at):
        return None
    (b, value) = known[after]
    (a, before) = known[max(0, after - 1)]
    return value if b == a else before + (value - before) * (at - a) / (b - a)


def bar(progress: float, width: int, style: str = ACCENT) -> Text:
    """Draw a thin progress bar."""
    filled = round(max(0.0, min(1.0, progress)) * width)
    return Text.assemble(("━" * filled, style), ("─" * (width - filled), QUIET))


def shares(parts: Sequence[tuple[float, str, str]], width: int) -> Text:
    """Draw (part of 1, character, style) beside each other; a part that is there is to be seen."""
    line = Text()
    for part, character, style in parts:
        room = width - line.cell_len
        line.append(character * min(room, max(round(part * width), part > 0)), style)
    return line


@dataclass
class Section:
    """Lines under a name in the margin.

    Attributes:
        name: in the margin of its first line
        rows: those that may give way, the last ones first; one may have several lines
        head: those before them, which stay as long as there are rows
        selected: index of the row that the cursor is on, and that stays; None: it is elsewhere
        rest: whether a line says how many rows have given way
        apart: whether an empty line comes before it, where there is room
    """

    name: str
    rows: list[Text]
    head: list[Text] = field(default_factory=list)
    selected: int | None = None
    rest: bool = False
    apart: bool = True

    def __post_init__(self) -> None:
        self.shown = len(self.rows)

    @property
    def height(self) -> int:
        """The lines that it has by now; none when no row is left."""
        if self.rows and not self.shown:
            return 0
        return len(self.head) + sum(map(_lines_of, self._kept())) + self._says_rest

    @property
    def _says_rest(self) -> bool:
        return self.rest and self.shown < len(self.rows)

    def lines(self) -> list[Text]:
        """Return the lines with the margin."""
        if not self.height:
            return []
        body, cursor = list(self.head), None
        for place, row in enumerate(self._kept(), self._first):
            if place == self.selected:
                cursor = len(body)
            body += row.split("\n")
        if self._says_rest:
            body.append(Text(f"and {len(self.rows) - self.shown} more", QUIET))
        return [
            Text().append(self._margin(i, i == cursor), NAME).append_text(line)
            for i, line in enumerate(body)
        ]

    def shrink(self, rows: int, by: int) -> None:
        """Give up to ``by`` lines away, but so many rows."""
        kept = max(rows, 1 if self.selected is not None else 0)
        wanted = self.height - by
        while self.shown > kept and self.height > wanted:
            self.shown -= 1

    @property
    def _first(self) -> int:
        """The first row that is shown."""
        return 0 if self.selected is None else max(0, self.selected - self.shown + 1)

    def _kept(self) -> list[Text]:
        return self.rows[self._first : self._first + self.shown]

    def _margin(self, line: int, selected: bool) -> str:
        cursor = CURSOR if selected else ""
        return f"{self.name if line == 0 else '':<{MARGIN - len(cursor)}}{cursor}"


def fit(
    title: list[Text],
    sections: Sequence[Section],
    giving: Sequence[tuple[Section | None, int]],
    height: int,
) -> list[Text]:
    """Return as many lines as there is room for.

    Args:
        title: stays
        sections: below it, in this order
        giving: what gives way, the least important first: sections, down to so many rows; None:
            the empty lines between the sections
        height: lines that there are
    """
    apart = True

    def too_many() -> int:
        used = sum(s.height + (apart and s.apart) for s in sections if s.height)
        return len(title) + used - height

    for section, rows in giving:
        if (by := too_many()) <= 0:
            break
        if section is None:
            apart = False
        else:
            section.shrink(rows, by)
    lines = list(title)
    for section in sections:
        if section.height:
            lines += [Text()] * (apart and section.apart)
            lines += section.lines()
    return lines[:height]


def _lines_of(row: Text) -> int:
    return row.plain.count("\n") + 1


def fitted(lines: Sequence[Text], width: int) -> list[Text]:
    """Cut lines off where the terminal ends."""
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return list(lines)


def rendered(lines: Iterable[Text], console: Console) -> Iterator[Segment]:
    """Return the lines as they go to the terminal; they fit, so nothing is wrapped again."""
    for line in lines:
        yield from line.render(console, end="\n")


def concatenated(parts: Iterable[Text], style: str = "") -> Text:
    """Put texts behind each other."""
    line = Text(style=style)
    for part in parts:
        line.append_text(part)
    return line


def joined(parts: Iterable[Text], width: int) -> Text:
    """Put texts on a line, three blanks apart; the last ones give way when not all fit."""
    first, *others = parts
    line = first
    for part in others:
        if line.cell_len + 3 + part.cell_len > width:
            break
        line = concatenated([line, Text("   "), part])
    return line


def between(left: Text, right: Text, width: int) -> Text:
    """Put a text at each end of a line; the right one gives way when both do not fit."""
    gap = width - left.cell_len - right.cell_len
    return concatenated([left, Text(" " * gap), right]) if gap >= 2 else left


def spread(parts: Sequence[Text], width: int) -> Text:
    """Spread texts evenly over a line; the last ones give way when not all fit."""
    while len(parts) > 1 and sum(part.cell_len + 2 for part in parts) - 2 > width:
        parts = parts[:-1]
    if len(parts) == 1:
        return parts[0]
    gap, extra = divmod(width - sum(part.cell_len for part in parts), len(parts) - 1)
    line = Text()
    for i, part in enumerate(parts[:-1]):
        line.append_text(part).append(" " * (gap + (i < extra)))
    return line.append_text(parts[-1])


def folded(left: Text, words: str, width: int, style: str = "") -> Text:
    """Put words behind a text, on as many lines as they need."""
    indent = left.cell_len
    if width - indent < LEAST_FOLDED and words:  # hardly a word a line: begin on the next one
        left, indent = left.append("\n  "), 2
    lines = textwrap.wrap(words, max(1, width - indent))
    return left.append(("\n" + " " * indent).join(lines), style)


def wrapped(words: Iterable[str], width: int, rows: int) -> list[str]:
    """Put words on at most ``rows`` lines; an ellipsis stands for what is left out."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]}   {word}" if lines[-1] else word
        if len(longer) <= width:
            lines[-1] = longer
        elif len(lines) < rows:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} ..." if len(lines[-1]) + 4 <= width else lines[-1]
            break
    return [line for line in lines if line]
