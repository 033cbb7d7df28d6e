"""Pages and keys: the page that is shown, the selection on it, and what a key does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from rltune.screen.drawing import (
    ACCENT,
    HALF,
    QUIET,
    concatenated,
    fitted,
    folded,
    joined,
    rendered,
)
from rltune.screen.help_page import help_lines
from rltune.screen.load import LoadMeter
from rltune.screen.search_page import Key, SearchScreen, selectable
from rltune.screen.trainings import ShownTraining
from rltune.screen.trial_page import trial_lines
from rltune.screen.view import SearchView

AskToStop = Callable[[int | None], None]  # takes a trial; None: the search

NOTICE_SECONDS = 5.0
MOVES = {"j": 1, "down": 1, "k": -1, "up": -1}
ENDS = {"g": 0, "first": 0, "G": -1, "last": -1}
HINTS = {
    "search": (("j k", "select"), ("Enter", "details"), ("s", "stop it"), ("q", "stop the search"),
               ("?", "help")),
    "trial": (("Esc", "back"), ("j k", "next"), ("s", "stop it"), ("q", "stop the search"),
              ("?", "help")),
    "help": (("Esc", "back"),),
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """The question that "y" answers: whether to stop a trial, or the search (None)."""

    trial: int | None

    @property
    def text(self) -> str:
        """The question, in words."""
        if self.trial is None:
            return "Stop the search? Nothing is lost, rltune resume goes on with it."
        return f"Stop trial {self.trial}? It keeps its values and is not run again."


class Pages:
    """The pages of the terminal; all of it belongs to the thread of the screen.

    Args:
        view: the search
        meter: of this machine
        stop: asks for the end of a trial, or of the search
    """

    def __init__(
        self, view: SearchView, meter: LoadMeter | None = None, stop: AskToStop | None = None
    ):
        self.view = view
        self.stop = stop
        self.keys = False  # whether there are any
        self.page = "search"
        self.selected: Key | None = None
        self._opened: ShownTraining | None = None  # the selected one, as it was last seen
        self.question: Question | None = None
        self.notice = ""
        self._noticed = 0.0
        self.ending: set[int | None] = set()
        self._search = SearchScreen(view, meter)
        self._before_help = "search"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = (options.height or console.size.height) - 1
        yield from rendered(self.lines(options.max_width, height), console)

    def lines(self, width: int, height: int) -> list[Text]:
        """Return the lines of the page, the last one about the keys where there are some."""
        low = height < 12
        trial = self.training()
        bottom = self._bottom(width, trial) if self.keys else []
        room = height - len(bottom) - (bool(bottom) and not low)
        if self.page == "help":
            lines = help_lines(width, room)
        elif self.page == "trial" and trial is not None:
            lines = trial_lines(self.view, trial, width, room, self.ending)
        else:
            lines = self._search.lines(width, room, self.selected, self.ending)
        if self.keys:
            lines += [Text()] * (not low) + fitted(bottom, width)
        return lines

    def training(self) -> ShownTraining | None:
        """Return the selected training, also when it has left the page; None: there is none."""
        with self.view.lock:
            listed = next((t for t in selectable(self.view) if t.key == self.selected), None)
        if listed is not None or self._opened is None or self._opened.key != self.selected:
            self._opened = listed
        return self._opened

    def press(self, key: str) -> None:
        """Do what the key says."""
        self._say("")
        if self.question is not None:
            if key in ("y", "Y"):
                self._ask(self.question.trial)
            self.question = None
        elif self.page == "help":
            if key in ("back", "enter", "?", "q"):
                self.page = self._before_help
        elif key in MOVES or key in ENDS:
            self._select(key)
        elif key == "enter":
            self._open()
        elif key == "back":
            if self.page == "search":
                self.selected = None
            self.page = "search"
        elif key == "?":
            self._before_help, self.page = self.page, "help"
        elif key in ("s", "q") and self.stop is not None:
            self._question(key)

    def _select(self, key: str) -> None:
        with self.view.lock:
            keys = [trial.key for trial in selectable(self.view)]
        if not keys:
            return
        if key in ENDS:
            self.selected = keys[ENDS[key]]
        elif self.selected in keys:
            place = keys.index(self.selected) + MOVES[key]
            self.selected = keys[max(0, min(place, len(keys) - 1))]
        else:
            self.selected = keys[0]

    def _open(self) -> None:
        if self.page == "trial":
            self.page = "search"
            return
        if self.training() is None:
            self._select("first")
        if self.training() is not None:
            self.page = "trial"

    def _question(self, key: str) -> None:
        """Ask, if there is something to stop."""
        if key == "q":
            self.question = Question(None)
            return
        trial = self.training()
        if trial is None:
            self._say("Select a trial first: j, k or the arrows.")
        elif trial.state:
            self._say(f"Trial {trial.number} has ended.")
        elif trial.role == "test":
            self._say("A test training can't be stopped alone: the answer rests on all of them.")
        else:
            self.question = Question(trial.number)

    def _ask(self, trial: int | None) -> None:
        assert self.stop is not None
        try:
            self.stop(trial)
        except OSError as error:
            self._say(f"That can't be asked for: {error}.")
            return
        self.ending.add(trial)
        what = "The search" if trial is None else f"Trial {trial}"
        self._say(f"{what} is being stopped.")

    def _say(self, notice: str) -> None:
        self.notice, self._noticed = notice, time.monotonic()

    def _bottom(self, width: int, trial: ShownTraining | None) -> list[Text]:
        """Return the lines that name the keys, ask, or say what came of a key."""
        if self.question is not None:
            said, style = self.question.text, f"bold {HALF}"
            keys = Text.assemble(("y", style), ("  yes, any other key: no", HALF))
        elif self.notice and time.monotonic() - self._noticed < NOTICE_SECONDS:
            said, style, keys = self.notice, HALF, Text()
        else:
            idle = "" if self.stop is not None else "sq"
            if trial is not None and trial.state:
                idle += "s"
            hints = [
                Text.assemble((key, ACCENT), (f" {what}", QUIET))
                for key, what in HINTS[self.page]
                if key not in idle
            ]
            return [joined(hints, width)]
        if len(said) + 3 + keys.cell_len <= width:
            return [concatenated([Text(said, style), Text("   "), keys])]
        return [*folded(Text(), said, width, style).split("\n"), *([keys] if keys else [])]
