"""The page of the whole search: what runs, how fast, the best trial, and the rungs."""

from __future__ import annotations

import time
from collections.abc import Collection

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from rltune.common.formats import count, duration, plural, rung_at, score, settings
from rltune.planning.progress import TrainingProgress
from rltune.schedulers.base import Rung
from rltune.screen.drawing import (
    ACCENT,
    BAD,
    GOOD,
    HALF,
    MARGIN,
    NAME,
    QUIET,
    Section,
    bar,
    between,
    concatenated,
    fit,
    fitted,
    folded,
    joined,
    rendered,
    shares,
    sparkline,
    spread,
    steps,
    wrapped,
)
from rltune.screen.load import LoadMeter
from rltune.screen.trainings import ShownTraining
from rltune.screen.view import SearchView

WIDEST = 132  # a screen wider than this only pulls apart what belongs together
SETTINGS_ROWS = 3
FAILURES = 3
OUTCOMES = {
    "COMPLETE": ("finished", GOOD),
    "PRUNED": ("stopped early", HALF),
    "FAIL": ("failed", BAD),
}

Key = tuple[int, int]  # trial and seed


class SearchScreen:
    """Draws a `SearchView` for the width and height that there is."""

    def __init__(self, view: SearchView, meter: LoadMeter | None = None) -> None:
        self.view = view
        self.meter = meter

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = (options.height or console.size.height) - 1
        yield from rendered(self.lines(options.max_width, height), console)

    def lines(
        self,
        width: int,
        height: int,
        selected: Key | None = None,
        ending: Collection[int | None] = (),
    ) -> list[Text]:
        """Return the lines of the page; what matters least gives way when there is no room.

        Args:
            width, height: that there are, in characters
            selected: trial and seed that the cursor is on
            ending: trials that a person has stopped, and that still run
        """
        width = min(width, WIDEST)
        body = width - MARGIN
        view = self.view
        with view.lock:
            best = Section("Best", [], [self._best(body)], apart=False)
            config = Section("", self._settings(body), apart=False)
            running = self._running(body, selected, ending)
            testing = view.phase == "tournament"
            rungs = self._tests(body) if testing else self._rungs(body)
            ended = self._ended(body, selected)
            failed = self._failed(body, selected)
            messages = [folded(Text(), _one_line(message), body) for message in view.messages]
            notes = Section("Notes", messages[-3:][::-1])
            speed = Section("Speed", [], [self._speed(body)], apart=False)
            trials = Section("Trials", [], [self._trials(body)])
            uses = Section("Uses", self._uses(body), apart=False)
            title = self._title(width)
        giving = [
            *((ended, 3), (notes, 2), (failed, 2), (ended, 1), (notes, 1), (failed, 1)),
            *((config, 1), (ended, 0), (running, 4), (None, 0), (notes, 0), (uses, 0)),
            *((failed, 0), (rungs, 0), (config, 0), (running, 1)),
        ]
        sections = [trials, speed, uses, best, config, running, rungs, ended, failed, notes]
        return fitted(fit(title, sections, giving, height), width)

    def _title(self, width: int) -> list[Text]:
        view = self.view
        left = Text.assemble(
            ("rltune", f"bold {ACCENT}"), ("  ", ""), (f"{view.agent} on {view.env}", NAME)
        )
        done = view.progress.share()
        lines = [between(left, Text(view.name, QUIET), width), bar(done or 0.0, width)]
        facts = [self._headline(), Text(f"{duration(view.progress.elapsed)} elapsed")]
        if (
            view.phase not in ("stopping", "done")
            and (remaining := view.progress.seconds_left()) is not None
        ):
            facts.append(Text(f"about {duration(remaining)} left"))
        if view.progress.time_limit:
            facts.append(Text(f"limit {duration(view.progress.time_limit)}", QUIET))
        return [*lines, spread(facts, width)]

    def _headline(self) -> Text:
        phase, progress = self.view.phase, self.view.progress
        if phase == "tournament":
            return Text(f"{progress.tests_done} of {progress.test_runs} test trainings")
        if phase in ("starting", "stopping"):
            return Text(f"{phase} ...", HALF)
        planned = f" of {progress.trials}" if progress.trials else ""
        return Text(f"{progress.ended}{planned} trials")

    def _trials(self, body: int) -> Text:
        view, progress = self.view, self.view.progress
        tuning = sum(t.role == "tune" and not t.paused for t in view.running.values())
        parts = [(progress.states[state], word, style) for state, (word, style) in OUTCOMES.items()]
        if view.phase != "tournament":
            parts.insert(0, (tuning, "running", ACCENT))
            if progress.trials:
                to_go = max(0, progress.trials - progress.ended - tuning)
                parts.append((to_go, "to go", ""))
        texts = [
            Text.assemble(
                (f"{number:,}", style if number else QUIET), (f" {word}", "" if number else QUIET)
            )
            for number, word, style in parts
        ]
        return joined(texts, body)

    def _speed(self, body: int) -> Text:
        rate, speeds = self.view.progress.rate(), self.view.progress.speeds()
        parts = [
            Text(f"{count(rate) if rate else '-'} env steps/s"),
            Text(f"{count(self.view.progress.env_steps)} in all"),
        ]
        if len(speeds) > 1:
            drawn = sparkline(speeds, 30, 0.0, max(speeds) or 1.0)
            minutes = Text(" last minutes", QUIET)
            parts.append(concatenated([Text(drawn, ACCENT), minutes]))
        return joined(parts, body)

    def _uses(self, body: int) -> list[Text]:
        meter = self.meter
        load = meter.read() if meter is not None else None
        if meter is None or load is None:
            return []
        total = f" of {meter.cores}" if meter.cores else ""
        of = f" of {meter.memory / 1e9:,.0f}" if meter.memory else ""
        parts = [
            Text(f"{load.cores:.1f}{total} cores"),
            Text(f"{load.memory / 1e9:.1f}{of} GB"),
        ]
        if load.disk_left is not None:
            parts.insert(0, Text(f"only {load.disk_left / 1e9:.1f} GB left on the disk", BAD))
        if load.gpus:
            busy = sum(gpu[0] for gpu in load.gpus) / len(load.gpus)
            used, memory = (sum(gpu[i] for gpu in load.gpus) / 1e9 for i in (1, 2))
            name = "GPU" if len(load.gpus) == 1 else f"{len(load.gpus)} GPUs"
            parts.append(Text(f"{name} {busy:.0%}, {used:.1f} of {memory:,.0f} GB"))
        at_once = sum(not training.paused for training in self.view.running.values())
        slots = plural(self.view.progress.slots, "training")
        parts.append(Text(f"{at_once} of {slots} at once", QUIET))
        return [joined(parts, body)]

    def _best(self, body: int) -> Text:
        view = self.view
        if view.incumbent is None:
            return Text("no trial has run its whole budget yet", QUIET)
        trial, value, _ = view.incumbent
        parts = [
            Text(score(value), f"bold {GOOD}"),
            Text(f"trial {trial}"),
            Text("on its tuning seed" + "s" * (view.progress.seeds > 1), QUIET),
        ]
        if len(view.bests) > 1:
            times, values = zip(*view.bests, strict=True)
            held = steps(times, values, view.progress.started, time.time(), 30)
            drawn = sparkline(held, 30, min(values), max(values)).rjust(30)
            parts.append(concatenated([Text(drawn, GOOD), Text(" so far", QUIET)]))
        return joined(parts, body)

    def _settings(self, body: int) -> list[Text]:
        if self.view.incumbent is None:
            return []
        described = settings(self.view.incumbent[2], self.view.searched)
        return [Text(text, QUIET) for text in wrapped(described, body, SETTINGS_ROWS)]

    def _running(self, body: int, selected: Key | None, ending: Collection[int | None]) -> Section:
        trials = running(self.view)
        if not trials:
            return Section("Running", [])
        names = [run_name(self.view, trial) for trial in trials]
        column = max(5, *map(len, names))
        room = body - column - 10  # the score takes ten columns
        with_steps = room >= 12 + 6
        room -= 12 * with_steps
        with_rate = room >= 9 + 12
        room -= 9 * with_rate
        with_left = room >= 9 + 40
        room -= 9 * with_left
        curve = min(40, room - 14) if room >= 14 + 8 else 0
        width = max(0, min(30, room - 2 - (curve + 2 if curve else 0)))
        values = [value for trial in trials for value in trial.values if value == value]
        if self.view.incumbent:
            values.append(self.view.incumbent[1])
        low, high = (min(values), max(values)) if values else (0.0, 1.0)

        def row(name: str, done: Text, env_steps: str, rate: str, left: str, latest: str) -> Text:
            line = Text(f"{name:<{column}}  ").append_text(done)
            line.append(f"{env_steps:>12}" if with_steps else "")
            quiet = f"{rate:>9}" if with_rate else ""
            line.append(quiet + (f"{left:>9}" if with_left else ""), QUIET)
            return line.append(f"{latest:>10}")

        head = row("trial", Text(" " * width), "env steps", "per s", "left", "score")
        head.append("  so far" if curve else "").stylize(QUIET)
        lines = []
        for trial, name in zip(trials, names, strict=True):
            progress = trial.progress
            rate = count(progress.rate) if progress.rate else "-"
            rate = "waits" if trial.paused else trial.silent or rate
            rate = "ends" if trial.number in ending else rate
            left = duration(self.view.progress.seconds_to_go(progress)) if with_left else ""
            latest = score(trial.values[-1] if trial.values else None)
            done = bar(progress.share, width)
            line = row(name, done, f"{progress.env_steps:,}", rate, left, latest)
            if curve:
                line.append("  " + sparkline(trial.values, curve, low, high), ACCENT)
            lines.append(line)
        return Section(
            "Running",
            lines,
            [head],
            selected=_index(trials, selected),
            rest=True,
        )

    def _rungs(self, body: int) -> Section:
        rungs = self.view.rungs
        room = body - 48
        width = min(24, room - 14) if room >= 14 + 8 else 0
        most = max((rung.entered for rung in rungs), default=0) or 1
        unit = "time" if rungs and rungs[-1].seconds else "env steps"
        head = f"{unit:>11}{'reached':>10}{'stopped':>10}{'goes on from':>15}"
        lines = []
        for i, rung in enumerate(rungs):
            last = rung is rungs[-1]
            goes_on = (
                "finished" if last else score(rung.cutoff) if rung.cutoff is not None else "any"
            )
            line = Text(f"{rung_at(rung.budget, rung.seconds):>11}{rung.entered:>10,}")
            line.append(
                f"{'' if last else f'{rung.stopped:,}':>10}", HALF if rung.stopped else QUIET
            )
            line.append(f"{goes_on:>15}", QUIET if last or rung.cutoff is None else "")
            passed = (rung.entered - rung.stopped) / most
            drawn = shares([(passed, "━", GOOD), (rung.stopped / most, "╌", HALF)], width)
            drawn.pad_right(width - drawn.cell_len)
            line.append("  ").append_text(drawn)
            here = self._near(rungs[i - 1] if i else None, rung, last)
            line.append(f"  {here}" if here else "", ACCENT)
            line.rstrip()
            lines.append(line)
        return Section("Rungs", lines, [Text(head, QUIET)] if lines else [])

    def _near(self, before: Rung | None, rung: Rung, last: bool) -> str:
        """Say which running trials are on their way from the rung before to this one."""

        def place(where: TrainingProgress | Rung) -> float:
            if rung.seconds is None:
                return where.budget if isinstance(where, Rung) else where.env_steps
            return where.seconds or 0.0

        trials = [(t, place(t.progress)) for t in running(self.view) if t.role == "tune"]
        begin, end = 0.0 if before is None else place(before), place(rung)
        on_way = [
            str(trial.number)
            for trial, at in trials
            if not trial.paused and begin <= at and (at < end or last)
        ]
        waiting = sum(t.paused and begin < at and (at <= end or last) for t, at in trials)
        texts = [f"← {', '.join(dict.fromkeys(on_way))}"] if on_way else []
        if waiting:
            texts.append(f"{waiting} {'waits' if waiting == 1 else 'wait'}")
        return ", ".join(texts)

    def _tests(self, body: int) -> Section:
        labels = self.view.labels
        if not labels:
            return Section("Tests", [])
        column = max(map(len, labels.values()))
        means = {
            trial: sum(scores.values()) / len(scores)
            for trial, scores in self.view.test_scores.items()
            if scores
        }
        lines = []
        for trial in sorted(labels, key=lambda number: -means.get(number, float("-inf"))):
            scores = self.view.test_scores.get(trial, {})
            line = Text(
                f"{labels[trial]:<{column}}{len(scores):>8}{score(means.get(trial)):>10}   "
            )
            line.append("  ".join(score(value) for value in scores.values()), QUIET)
            lines.append(line)
        return Section(
            "Tests", lines, [Text(f"{'':<{column}}{'seeds':>8}{'mean':>10}   scores", QUIET)]
        )

    def _ended(self, body: int, selected: Key | None) -> Section:
        trials = ended(self.view)
        column = max([5, *(len(run_name(self.view, trial)) for trial in trials)])
        lines = []
        for trial in trials:
            word, style = OUTCOMES[trial.state]
            line = Text(f"{run_name(self.view, trial):<{column}}  ")
            line.append(f"{word:<13}", style)
            line.append(f"{score(trial.values[-1] if trial.values else None):>8}  ")
            said = why(trial) or f"{trial.progress.env_steps:,} env steps"
            lines.append(folded(line, said, body, QUIET))
        return Section("Ended", lines, selected=_index(trials, selected))

    def _failed(self, body: int, selected: Key | None) -> Section:
        shown = list(self.view.failures)[: -FAILURES - 1 : -1]
        lines = [
            folded(Text.assemble((f"trial {number}  ", BAD)), _one_line(text), body)
            for number, text in shown
        ]
        on = next((t.number for t in failed(self.view) if t.key == selected), None)
        place = next((i for i, (number, _) in enumerate(shown) if number == on), None)
        return Section("Failed", lines, selected=place)


def running(view: SearchView) -> list[ShownTraining]:
    """Return the running trainings in the order of the page."""
    return sorted(view.running.values(), key=lambda training: training.key)


def ended(view: SearchView) -> list[ShownTraining]:
    """Return the last trainings that have ended and not failed, the latest first."""
    return [trial for trial in reversed(view.last) if trial.state != "FAIL"]


def failed(view: SearchView) -> list[ShownTraining]:
    """Return those that have failed, one a trial, the latest first, as far as the page has them."""
    trials = {trial.number: trial for trial in view.last if trial.state == "FAIL"}
    return list(reversed(trials.values()))[:FAILURES]


def selectable(view: SearchView) -> list[ShownTraining]:
    """Return the trainings that can be selected, in the order of the page."""
    return [*running(view), *ended(view), *failed(view)]


def run_name(view: SearchView, trial: ShownTraining) -> str:
    """Return the name of a training on the page: its trial, and its seed where that differs."""
    if trial.role == "test" or view.progress.seeds > 1:
        return f"{trial.number} / seed {trial.seed}"
    return str(trial.number)


def why(trial: ShownTraining) -> str:
    """Return the reason of a training's end, without the word for its state."""
    word = OUTCOMES[trial.state][0].split()[0]  # a reason says "stopped at rung 5,556: ..."
    return _one_line(trial.reason).removeprefix(word).lstrip()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _index(trials: list[ShownTraining], selected: Key | None) -> int | None:
    return next((i for i, trial in enumerate(trials) if trial.key == selected), None)
