"""The page of one trial: its curve, its rungs, its configuration, its cost."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.text import Text
from rltune.common.formats import count, duration, rung_at, score, setting
from rltune.screen.drawing import (
    ACCENT,
    GOOD,
    HALF,
    MARGIN,
    NAME,
    QUIET,
    Section,
    bar,
    between,
    curve,
    fit,
    fitted,
    folded,
    joined,
    spread,
)
from rltune.screen.search_page import OUTCOMES, WIDEST, run_name, why

if TYPE_CHECKING:
    from rltune.screen.trainings import ShownTraining
    from rltune.screen.view import SearchView

HIGHEST = 10  # rows of the curve
AXIS = 9  # columns of its scale


def trial_lines(
    view: SearchView,
    trial: ShownTraining,
    width: int,
    height: int,
    ending: Collection[int | None] = (),
) -> list[Text]:
    """Return the lines of the page; see `SearchScreen.lines` for what it is given."""
    width = min(width, WIDEST)
    body = width - MARGIN
    with view.lock:
        title = _title(view, trial, width, ending)
        cost = Section("Cost", [], [_cost(view, trial, body)])
        files = Section("Files", [Text(trial.checkpoint, QUIET)] if trial.checkpoint else [],
                        apart=False)  # fmt: skip
        rungs = Section("Rungs", _rungs(view, trial))
        config = Section("Config", _config(view, trial, body), rest=True)
        fixed = len(title) + 1 + len(files.rows) + len(config.rows) + len(rungs.rows) + 5
        rows = max(3, min(HIGHEST, height - fixed - 2))
        scores = Section("Score", _curve(view, trial, body, rows))
    giving = [(None, 0), (files, 0), (config, 4), (rungs, 0), (scores, 0), (config, 1)]
    return fitted(fit(title, [scores, rungs, config, cost, files], giving, height), width)


def _title(
    view: SearchView, trial: ShownTraining, width: int, ending: Collection[int | None]
) -> list[Text]:
    role = "test of trial" if trial.role == "test" else "trial"
    left = Text.assemble(("rltune", f"bold {ACCENT}"), (f"  {role} {run_name(view, trial)}", NAME))
    left.append(f"  {view.agent} on {view.env}", QUIET)
    lines = [between(left, Text(view.name, QUIET), width), bar(trial.progress.share, width)]
    if trial.state:
        word, style = OUTCOMES[trial.state]
        state = Text(f"{word} {why(trial)}".rstrip(), style)
    elif trial.number in ending:
        state = Text("ends with its next result", HALF)
    else:
        state = Text("waits", HALF) if trial.paused else Text("running", ACCENT)
        if trial.silent:
            state = Text(f"nothing comes from the environment's {trial.silent}", HALF)
    facts = [state, Text(f"{trial.progress.env_steps:,} of {trial.progress.budget:,} env steps")]
    if not trial.state and (to_go := view.progress.seconds_to_go(trial.progress)) is not None:
        facts.append(Text(f"about {duration(to_go)} left"))
    if trial.state and sum(fact.cell_len + 2 for fact in facts) - 2 > width:
        return [*lines, *folded(Text(), state.plain, width, style).split("\n"), *facts[1:]]
    return [*lines, spread(facts, width)]


def _cost(view: SearchView, trial: ShownTraining, body: int) -> Text:
    progress = trial.progress
    spent = progress.seconds or progress.updated - progress.started
    parts = [Text(f"{duration(spent)} so far" if not trial.state else duration(spent))]
    if progress.rate:
        parts.append(Text(f"{count(progress.rate)} env steps/s"))
    if trial.expected is not None:
        parts.append(Text(f"{duration(trial.expected)} expected for the whole budget", QUIET))
    if not trial.state:
        ago = time.time() - progress.updated
        parts.append(Text(f"last result {duration(ago)} ago", QUIET))
    parts += [Text(f"seed {trial.seed}", QUIET), Text(f"from {trial.origin}", QUIET)]
    return joined(parts, body)


def _rungs(view: SearchView, trial: ShownTraining) -> list[Text]:
    """Return a line per rung: the decision when the trial came to it."""
    lines = []
    for place in sorted(trial.places.values(), key=lambda place: place.rung):
        line = Text(f"{rung_at(place.rung, place.seconds):>11}{score(place.value):>10}")
        rank = "" if place.rank is None else f"{place.rank} of {place.entered}"
        line.append(f"{rank:>12}")
        needs = "none stopped" if place.cutoff is None else f"goes on from {score(place.cutoff)}"
        if place.rung >= trial.progress.budget:
            needs = "finished"
        line.append(f"   {needs}", QUIET)
        if f"rung {place.rung:,}" in trial.reason:
            line.append("   stopped early", HALF)
        lines.append(line)
    return lines


def _config(view: SearchView, trial: ShownTraining, body: int) -> list[Text]:
    """Return the configuration in as many columns as fit: what is searched first, then the rest."""
    searched = view.searched or ()
    names = sorted(trial.config, key=lambda name: name not in searched)
    cells = [(name, setting(trial.config[name])) for name in names]
    if not cells:
        return []
    for columns in range(4, 0, -1):
        rows = math.ceil(len(cells) / columns)
        parts = [cells[i : i + rows] for i in range(0, len(cells), rows)]
        widths = [(max(len(n) for n, _ in p), max(len(v) for _, v in p)) for p in parts]
        if sum(label + value + 5 for label, value in widths) - 3 <= body:
            break
    lines = []
    for row in range(rows):
        line = Text()
        for part, (label, value) in zip(parts, widths, strict=True):
            if row < len(part):
                name, text = part[row]
                line.append(f"{name:<{label}}  ", QUIET)
                line.append(f"{text:<{value}}   ", "" if name in searched else QUIET)
        line.rstrip()
        lines.append(line)
    return lines


def _curve(view: SearchView, trial: ShownTraining, body: int, rows: int) -> list[Text]:
    """Return the curve over the whole budget, with its scale, its rungs and the best trial."""
    known = [value for value in trial.values if value == value]
    budget = trial.progress.budget
    if not known:
        return [Text("no evaluation yet", QUIET)]
    best = view.incumbent[1] if view.incumbent else known[-1]
    low, high = min(*known, best, known[0]), max(*known, best, known[0])
    width = body - AXIS - 1
    drawn = curve(list(trial.points), list(trial.values), budget, width, rows, low, high)
    level = round((high - best) / (high - low) * (rows - 1)) if high > low else 0
    lines = []
    for i, row in enumerate(drawn):
        scale = score(high) if i == 0 else score(low) if i == rows - 1 else ""
        scale = score(best) if view.incumbent and i == level else scale
        style = GOOD if view.incumbent and i == level else QUIET
        line = Text().append(f"{scale:>{AXIS - 1}} ", style)
        if view.incumbent and i == level:  # the best trial, where the curve leaves room
            for character in row:
                line.append(*(("┄", GOOD) if character == " " else (character, ACCENT)))
        else:
            line.append(row, ACCENT)
        lines.append(line)
    axis, labels = ["─"] * width, [" "] * (width + 8)
    # Where rungs count seconds, they have no place on a scale of env steps.
    for rung in [rung.budget for rung in view.rungs if not rung.seconds] or [budget]:
        at = min(width - 1, round((width - 1) * rung / budget))
        axis[at] = "┴"
        text = f"{rung:,}"
        begin = max(0, min(at - len(text) // 2, width - len(text)))
        if all(character == " " for character in labels[max(0, begin - 1) : begin + len(text) + 1]):
            labels[begin : begin + len(text)] = text
    latest = Text().append(f"{score(known[-1]):>{AXIS - 1}} ", NAME)
    return [
        *lines,
        latest.append("".join(axis), QUIET),
        Text(f"{'now':>{AXIS - 1}} " + "".join(labels).rstrip(), QUIET),
    ]
