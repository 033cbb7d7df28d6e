"""The live terminal screen of a search, and the plain lines that stand in for it elsewhere."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text
from rltune.formats import count, duration, plural, score, settings
from rltune.search_view import RunningTrial, SearchView

__all__ = ["LiveScreen", "SearchScreen", "SearchView", "restore_cursor"]

REFRESH = 0.25  # seconds between two frames
HEARTBEAT = 30.0  # seconds between two plain lines when nothing happens
MARGIN = 10  # columns of the section names
WIDEST = 132  # a screen wider than this only pulls apart what belongs together
BARS = "▁▂▃▄▅▆▇█"

NAME, QUIET, GOOD, BAD, HALF, ACCENT = "bold", "dim", "green", "red", "yellow", "cyan"


def sparkline(values: Sequence[float], width: int, low: float, high: float) -> str:
    """Draw the values between ``low`` and ``high`` in at most ``width`` characters."""
    finite = [value for value in values if value == value]
    if len(finite) > width:  # the mean of each of ``width`` equal pieces
        edges = [round(i * len(finite) / width) for i in range(width + 1)]
        finite = [sum(finite[a:b]) / (b - a) for a, b in itertools.pairwise(edges) if b > a]
    span = high - low
    places = [(value - low) / span if span > 0 else 1.0 for value in finite]
    return "".join(BARS[min(7, max(0, int(place * 8)))] for place in places)


def bar(progress: float, width: int, style: str = ACCENT) -> Text:
    """Draw a thin progress bar."""
    filled = round(max(0.0, min(1.0, progress)) * width)
    return Text.assemble(("━" * filled, style), ("─" * (width - filled), QUIET))


class SearchScreen:
    """Draws a `SearchView` for the width and height that there is."""

    def __init__(self, view: SearchView, load: ProcessLoad | None = None) -> None:
        self.view = view
        self.load = load

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST)
        height = (options.height or console.size.height) - 1
        with self.view.lock:
            frame = self._frame(width, height)
        yield Group(*frame)

    def _frame(self, width: int, height: int) -> list[Text]:
        """Return the lines of a frame; what matters least gives way when there is no room."""
        running = len(self.view.running)
        for news in (3, 2, 1, 0):
            lines = self._lines(width, settings_rows=3, running=running, news=news)
            if len(lines) <= height:
                return lines
        fewer = running - (len(lines) - height) - 1  # one line tells how many are left out
        if fewer > 0:
            return self._lines(width, settings_rows=3, running=fewer, news=0)
        return self._lines(width, settings_rows=1, running=1, news=0)[:height]

    def _lines(self, width: int, settings_rows: int, running: int, news: int) -> list[Text]:
        body = width - MARGIN
        testing = self.view.phase == "tournament"
        sections = [
            ("Trials", self._trials(body)),
            ("Speed", self._speed(body)),
            ("Best", self._best(body, settings_rows)),
            ("Running", self._running(body, running)),
            ("Tests", self._tests()) if testing else ("Rungs", self._rungs()),
            ("Failed", self._failures()[-news:] if news else []),
            ("Notes", self._notes()[-news:] if news else []),
        ]
        lines = self._title(width)
        for name, section in sections:
            if section and name not in ("Speed", "Best"):
                lines.append(Text())
            for i, line in enumerate(section):
                margin = Text(f"{name if i == 0 else '':<{MARGIN}}", NAME)
                lines.append(_concatenated([margin, line]))
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
        return lines

    def _title(self, width: int) -> list[Text]:
        view = self.view
        left = Text.assemble(
            ("rltune", f"bold {ACCENT}"), ("  ", ""), (f"{view.agent} on {view.env}", NAME)
        )
        done = view.progress()
        lines = [_between(left, Text(view.name, QUIET), width), bar(done or 0.0, width)]
        facts = [self._headline(), Text(f"{duration(view.elapsed)} elapsed")]
        if (
            view.phase not in ("stopping", "done")
            and (remaining := view.seconds_left()) is not None
        ):
            facts.append(Text(f"about {duration(remaining)} left"))
        if view.time_limit:
            facts.append(Text(f"limit {duration(view.time_limit)}", QUIET))
        return [*lines, _spread(facts, width)]

    def _headline(self) -> Text:
        view = self.view
        if view.phase == "tournament":
            return Text(f"{view.tests_done} of {view.test_runs} test trainings")
        if view.phase in ("starting", "stopping"):
            return Text(f"{view.phase} ...", HALF)
        return Text(
            f"{view.ended} of {view.trials} trials" if view.trials else f"{view.ended} trials"
        )

    def _trials(self, body: int) -> list[Text]:
        view = self.view
        tuning = sum(one.role == "tune" and not one.paused for one in view.running.values())
        parts = [
            (view.states["COMPLETE"], "finished", GOOD),
            (view.states["PRUNED"], "stopped", HALF),
            (view.states["FAIL"], "failed", BAD),
        ]
        if view.phase != "tournament":
            parts.insert(0, (tuning, "running", ACCENT))
            if view.trials:
                parts.append((max(0, view.trials - view.ended - tuning), "to go", ""))
        texts = [
            Text.assemble(
                (f"{number:,}", style if number else QUIET), (f" {word}", "" if number else QUIET)
            )
            for number, word, style in parts
        ]
        return [_joined(texts, body)]

    def _speed(self, body: int) -> list[Text]:
        rate = self.view.rate()
        parts = [
            f"{count(rate) if rate else '-'} env-steps/s",
            f"{count(self.view.env_steps)} in all",
        ]
        if self.load is not None and (used := self.load.read()) is not None:
            parts += [f"{used[0]:.1f} cores", f"{used[1]:.1f} GB"]
        return [_joined(map(Text, parts), body)]

    def _best(self, body: int, rows: int) -> list[Text]:
        incumbent = self.view.incumbent
        if incumbent is None:
            return [Text("no trial has run its whole budget yet", QUIET)]
        trial, value, config = incumbent
        parts = [
            Text(score(value), f"bold {GOOD}"),
            Text(f"trial {trial}"),
            Text("on its tuning seed" + "s" * (self.view.seeds > 1), QUIET),
        ]
        described = _wrapped(settings(config, self.view.searched), body, rows)
        return [_joined(parts, body), *(Text(text, QUIET) for text in described)]

    def _running(self, body: int, rows: int) -> list[Text]:
        trials = sorted(self.view.running.values(), key=lambda one: (one.number, one.seed))
        if not trials:
            return []
        names = [self._run_name(trial) for trial in trials]
        column = max(5, *map(len, names))
        room = body - column - 10  # the score takes ten columns
        steps = room >= 12 + 6
        room -= 12 * steps
        rate = room >= 9 + 12
        room -= 9 * rate
        curve = min(40, room - 14) if room >= 14 + 8 else 0
        width = max(0, min(30, room - 2 - (curve + 2 if curve else 0)))
        values = [value for trial in trials for value in trial.values if value == value]
        if self.view.incumbent:
            values.append(self.view.incumbent[1])
        low, high = (min(values), max(values)) if values else (0.0, 1.0)

        def row(name: str, steps_text: str, rate_text: str, score_text: str) -> list[Text]:
            return [
                Text(f"{name:<{column}}  "),
                Text(f"{steps_text:>12}" if steps else ""),
                Text((f"{rate_text:>9}" if rate else ""), QUIET),
                Text(f"{score_text:>10}"),
            ]

        head = row("trial", "env-steps", "per s", "score")
        head.insert(1, Text(" " * width))
        lines = [_concatenated([*head, Text("  so far" if curve else "")], QUIET)]
        for trial, name in list(zip(trials, names, strict=True))[:rows]:
            per_second = "waits" if trial.paused else count(trial.rate) if trial.rate else "-"
            latest = score(trial.values[-1] if trial.values else None)
            parts = row(name, f"{trial.env_steps:,}", per_second, latest)
            parts.insert(1, bar(trial.progress, width))
            if curve:
                parts.append(Text("  " + sparkline(trial.values, curve, low, high), ACCENT))
            lines.append(_concatenated(parts))
        if len(trials) > rows:
            lines.append(Text(f"and {len(trials) - rows} more", QUIET))
        return lines

    def _run_name(self, trial: RunningTrial) -> str:
        if trial.role == "test" or self.view.seeds > 1:
            return f"{trial.number} / seed {trial.seed}"
        return str(trial.number)

    def _rungs(self) -> list[Text]:
        rungs = self.view.rungs
        if not rungs:
            return []
        lines = [
            Text(f"{'env-steps':>11}{'reached':>10}{'stopped':>10}{'goes on from':>15}", QUIET)
        ]
        for rung in rungs:
            last = rung is rungs[-1]
            goes_on = (
                "finished" if last else score(rung.cutoff) if rung.cutoff is not None else "any"
            )
            line = Text(f"{rung.budget:>11,}{rung.entered:>10,}")
            line.append(
                f"{'' if last else f'{rung.stopped:,}':>10}", HALF if rung.stopped else QUIET
            )
            line.append(f"{goes_on:>13}", QUIET if last or rung.cutoff is None else "")
            lines.append(line)
        return lines

    def _tests(self) -> list[Text]:
        labels = self.view.labels
        if not labels:
            return []
        column = max(map(len, labels.values()))
        means = {
            trial: sum(scores.values()) / len(scores)
            for trial, scores in self.view.test_scores.items()
            if scores
        }
        lines = [Text(f"{'':<{column}}{'seeds':>8}{'mean':>10}   scores", QUIET)]
        for trial in sorted(labels, key=lambda one: -means.get(one, float("-inf"))):
            scores = self.view.test_scores.get(trial, {})
            line = Text(
                f"{labels[trial]:<{column}}{len(scores):>8}{score(means.get(trial)):>10}   "
            )
            line.append("  ".join(score(one) for one in scores.values()), QUIET)
            lines.append(line)
        return lines

    def _failures(self) -> list[Text]:
        return [
            Text.assemble((f"trial {number}  ", BAD), " ".join(text.split()))
            for number, text in self.view.failures
        ]

    def _notes(self) -> list[Text]:
        return [Text(" ".join(message.split())) for message in self.view.messages]


class ProcessLoad:
    """CPU and memory of this process and its descendants, from /proc where there is one."""

    EVERY = 2.0

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}
        self._time = 0.0
        self._last: tuple[float, float] | None = None

    def read(self) -> tuple[float, float] | None:
        """Return (cores in use, GB of memory), measured anew every two seconds."""
        now = time.time()
        if now - self._time >= self.EVERY:
            try:
                ticks, pages = self._measure()
            except OSError:
                return None
            used = sum(value - self._ticks.get(pid, value) for pid, value in ticks.items())
            cores = used / os.sysconf("SC_CLK_TCK") / (now - self._time)
            if self._ticks:
                self._last = cores, pages * os.sysconf("SC_PAGE_SIZE") / 1e9
            self._ticks, self._time = ticks, now
        return self._last

    def _measure(self) -> tuple[dict[int, int], int]:
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    # The name in brackets may hold spaces: count from the bracket's end.
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                parents[int(entry.name)] = int(fields[1])
                ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
        family = {os.getpid()}
        while grown := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= grown
        pages = 0
        for pid in family:
            try:
                _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
            except OSError:
                continue
            pages += int(resident) - int(shared)
        return {pid: ticks[pid] for pid in family if pid in ticks}, pages


class LiveScreen:
    """Shows a view while the block runs: live in a terminal, as plain lines anywhere else.

    ``mode`` is "auto", "live", "plain" or "none". The terminal's cursor comes back however the
    block ends, and nothing that goes wrong with the screen ends the search.
    """

    def __init__(
        self, view: SearchView, mode: str = "auto", console: Console | None = None
    ) -> None:
        self.view = view
        self.console = console or Console()
        if mode == "auto":
            mode = (
                "live"
                if self.console.is_terminal and not self.console.is_dumb_terminal
                else "plain"
            )
        self.mode = mode
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._live: Live | None = None
        self._load = ProcessLoad()
        self._last_line = time.time()

    def __enter__(self) -> LiveScreen:
        if self.mode == "none":
            return self
        if self.mode == "plain":
            self._start_plain()
        else:
            self._start_live()
        target = self._watch_plain if self.mode == "plain" else self._watch_live
        self._thread = threading.Thread(target=target, name="rltune-screen", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.view.listener = None
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self._stop_live()

    # Plain lines

    def _start_plain(self) -> None:
        view = self.view
        budget = f"{count(view.budget)} env-steps a trial"
        planned = plural(view.trials, "trial") if view.trials else "as many trials as fit"
        limit = f", limit {duration(view.time_limit)}" if view.time_limit else ""
        self._print(f"{view.name}: {view.agent} on {view.env}, {planned}, {budget}{limit}")
        view.listener = self._print

    def _watch_plain(self) -> None:
        while not self._over.wait(0.5):
            if time.time() - self._last_line >= HEARTBEAT:
                self._print(self.view.heartbeat())

    def _print(self, line: str) -> None:
        self._last_line = time.time()
        print(f"[{duration(self.view.elapsed)}] {line}", file=self.console.file, flush=True)

    # The live screen

    def _start_live(self) -> None:
        screen = SearchScreen(self.view, self._load)
        # Refreshed by a thread of our own, which also notices that the terminal was resized.
        self._live = Live(screen, console=self.console, auto_refresh=False, transient=True)
        self._live.start(refresh=True)

    def _stop_live(self) -> None:
        """Take the frame off the terminal and give the cursor back, whatever state it is in."""
        if self._live is not None:
            self._live.update("")  # `stop` draws once more, which may be what has failed
            self._live.stop()
            self._live = None

    def _watch_live(self) -> None:
        size = self.console.size
        while not self._over.wait(REFRESH):
            assert self._live is not None
            try:
                if self.console.size != size:
                    # The terminal has wrapped the old frame anew: begin on an empty screen.
                    size = self.console.size
                    self._stop_live()
                    self.console.clear()
                    self._start_live()
                else:
                    self._live.refresh()
            except Exception as error:
                self._stop_live()
                self._start_plain()
                self._print(f"the live screen failed ({error!r}); plain lines from here on")
                return self._watch_plain()
        return None


def restore_cursor() -> None:
    """Show the terminal's cursor again, for an exit that runs no ``finally``."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[?25h")
        sys.stdout.flush()


def _concatenated(parts: Iterable[Text], style: str = "") -> Text:
    line = Text(style=style)
    for part in parts:
        line.append_text(part)
    return line


def _joined(parts: Iterable[Text], width: int) -> Text:
    """Put texts on a line, three blanks apart; the last ones give way when not all fit."""
    first, *others = parts
    line = first
    for part in others:
        if line.cell_len + 3 + part.cell_len > width:
            break
        line = _concatenated([line, Text("   "), part])
    return line


def _between(left: Text, right: Text, width: int) -> Text:
    """Put a text at each end of a line; the right one gives way when both do not fit."""
    gap = width - left.cell_len - right.cell_len
    return _concatenated([left, Text(" " * gap), right]) if gap >= 2 else left


def _spread(parts: Sequence[Text], width: int) -> Text:
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


def _wrapped(words: Iterable[str], width: int, rows: int) -> list[str]:
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
