"""The keys of the live screen, and a terminal that is given back however the process ends."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest
from rich.console import Console
from rltune.schedulers.asha import ASHA
from rltune.schedulers.base import Place, Rung
from rltune.screen import LiveScreen
from rltune.screen.drawing import curve, steps
from rltune.screen.load import LITTLE_DISK, LoadMeter
from rltune.screen.pages import Pages
from rltune.screen.terminal import Keyboard, keys
from told_view import told_view

CONFIG = {f"option_{i}": i for i in range(30)} | {"learning_rate": 0.001}


def busy_view(running=3, seeds=1, name="run"):
    view = told_view(50_000, name=name, searched=["learning_rate"], trials=40, seeds=seeds)
    for number in range(running + 3):
        view.trial_started(
            number, config=CONFIG, checkpoint=f"trials/{number}/checkpoint.pt", expected=90.0
        )
        for k in range(1, 11):
            view.trial_progress(number, 1000 * k, 20.0 * k, seconds=2.0 * k)
        view.judged(number, [Place(5556, 98.1, 2, 7, 76.5)])
    view.trial_ended(running, "COMPLETE", "", 200.0)
    view.trial_ended(running + 1, "PRUNED", "stopped at rung 5,556: 12 < 98", 12.0)
    view.trial_ended(running + 2, "FAIL", "diverged: non-finite loss")
    view.set_incumbent(running, 200.0, CONFIG)
    view.set_rungs([Rung(5556, 13, 5, 98.1), Rung(16667, 6, 1, None), Rung(50000, 5, 0, None)])
    return view


def pages(view=None, stop=None):
    shown = Pages(view or busy_view(), None, stop)
    shown.keys = True
    return shown


def drawn(shown, width=110, height=40):
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(shown)
    return console.file.getvalue().splitlines()


def cursor(shown, **size):
    """The trial that the cursor stands before."""
    at = [text for text in drawn(shown, **size) if "▸" in text]
    assert len(at) <= 1
    return re.search(r"▸ (?:trial )?(\d+)", at[0]).group(1) if at else None


# What the keys do


def test_keys_and_sequences_of_a_terminal():
    assert keys("jk\r\x1b[A\x1bOB\x1b\x7fq") == [
        "j",
        "k",
        "enter",
        "up",
        "down",
        "back",
        "back",
        "q",
    ]
    assert keys("\x1b[1;5C\x1b[15~s") == ["s"]  # other keys are nothing, and leave nothing behind
    assert keys("\x1b[") == []


def test_the_cursor_goes_through_what_runs_and_what_has_ended():
    shown = pages()
    assert cursor(shown) is None
    seen = []
    for _ in range(7):
        shown.press("down")
        seen.append(cursor(shown))
    assert seen == ["0", "1", "2", "4", "3", "5", "5"]  # the failed one last
    shown.press("k")
    assert cursor(shown) == "3"
    shown.press("g")
    assert cursor(shown) == "0"
    shown.press("back")
    assert cursor(shown) is None


def test_the_cursor_stays_with_a_trial_that_ends_and_in_sight_of_a_low_terminal():
    view = busy_view(running=40)
    shown = pages(view)
    for _ in range(30):
        shown.press("j")
    assert cursor(shown, width=80, height=24) == "29"
    view.trial_ended(29, "PRUNED", "stopped at rung 5,556: 12 < 98")
    assert cursor(shown, width=80, height=24) == "29"
    assert cursor(shown, width=60, height=16) == "29"


def test_the_page_of_a_trial_tells_everything_that_is_known():
    shown = pages()
    shown.press("j")
    shown.press("enter")
    lines = drawn(shown)
    page = "\n".join(lines)
    assert "trial 0" in lines[0]
    assert "10,000 of 50,000 env steps" in lines[2]
    assert "about 1:20 left" in lines[2]  # 40,000 at 500 a second
    assert re.search(r"5,556 +98.1 +2 of 7 +goes on from 76.5", page)
    assert "learning_rate  0.001" in page
    assert all(f"option_{i} " in page for i in range(30))
    assert "trials/0/checkpoint.pt" in page
    assert "1:30 expected for the whole budget" in page
    assert "0:20 so far" in page
    assert "seed 0" in page
    shown.press("j")
    assert "trial 1" in drawn(shown)[0]
    shown.press("back")
    assert "Running" in "\n".join(drawn(shown))
    shown.press("G")
    shown.press("enter")
    assert "failed diverged: non-finite loss" in "\n".join(drawn(shown))


def test_the_page_of_a_trial_tells_rungs_in_seconds():
    view = busy_view()
    view.judged(0, [Place(16667, 110.0, 1, 6, None, 30.0)])
    view.set_rungs([Rung(16667, 6, 1, None, 30.0), Rung(50000, 5, 0, None, 90.0)])
    shown = pages(view)
    shown.press("j")
    shown.press("enter")
    page = "\n".join(drawn(shown))
    assert re.search(r"30 s +110.0 +1 of 6 +none stopped", page)
    assert "16,667" not in page  # which is no place on a curve over env_steps
    assert "50,000" in page


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (132, 40), (200, 60), (40, 10)])
@pytest.mark.parametrize("typed", ["", "j", "j\r", "?", "js", "q"])
@pytest.mark.parametrize("running", [1, 64])
def test_every_page_keeps_within_the_terminal_and_names_the_keys(width, height, typed, running):
    shown = pages(busy_view(running), stop=lambda trial: None)
    for key in keys(typed):
        shown.press(key)
    lines = drawn(shown, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < height
    questions = {
        "js": "Stop trial 0? It keeps its values and is not run again. y yes, any other key: no",
        "q": "Stop the search? Nothing is lost, rltune resume goes on with it. "
        "y yes, any other key: no",
    }
    bottom = " ".join(" ".join(lines[-4:]).split())
    if typed in questions:
        assert bottom.endswith(questions[typed])
    else:
        assert ("Esc" if typed == "?" else "j k") in lines[-1]


def test_enter_opens_the_selected_trial_also_when_it_has_dropped_off_the_list():
    asked = []
    view = busy_view()
    shown = pages(view, stop=asked.append)
    shown.press("j")
    assert cursor(shown) == "0"
    view.trial_ended(0, "PRUNED", "stopped at rung 5,556: 12 < 98")
    for number in range(100, 100 + view.last.maxlen):
        view.trial_started(number)
        view.trial_ended(number, "COMPLETE", "", 1.0)
    assert cursor(shown) is None
    assert "stop it" not in drawn(shown)[-1]
    shown.press("s")
    assert "Trial 0 has ended." in drawn(shown)[-1]
    shown.press("enter")
    page = drawn(shown)
    assert "trial 0" in page[0]
    assert "stopped early at rung 5,556: 12 < 98" in page[2]


def test_only_what_runs_is_offered_to_be_stopped():
    shown = pages(stop=lambda trial: None)
    assert "s stop it" in drawn(shown)[-1]
    shown.press("j")
    for key, offered in (("enter", True), ("G", False), ("back", False), ("g", True)):
        shown.press(key)
        assert ("s stop it" in drawn(shown)[-1]) is offered


@pytest.mark.parametrize("width", [40, 80])
def test_reasons_and_notes_are_told_to_their_end(width):
    reason = (
        "KL blow-up: 0.26 > 0.1 nats an update at 12,288 env_steps, which is far too much of it"
    )
    view = busy_view(running=0)
    view.message("no time to train all finalists again; left out: trial 3, trial 12 and trial 17")
    for number, state in ((7, "PRUNED"), (8, "FAIL")):
        view.trial_started(number)
        view.trial_ended(number, state, reason)
    shown = pages(view)

    def said():
        return " ".join(" ".join(drawn(shown, width, 60)).split())

    assert said().count(reason) == 2
    assert "left out: trial 3, trial 12 and trial 17" in said()
    shown.press("j")
    assert cursor(shown, width=width, height=60) == "7"
    shown.press("enter")
    assert f"stopped early {reason}" in said()


def test_a_stop_is_confirmed_and_only_then_asked_for():
    asked = []
    shown = pages(stop=asked.append)
    for key in "sn":  # nothing is selected
        shown.press(key)
    shown.press("j")
    shown.press("s")
    assert "Stop trial 0?" in drawn(shown)[-1]
    shown.press("j")  # no
    assert cursor(shown) == "0"
    assert asked == []
    shown.press("s")
    shown.press("y")
    assert asked == [0]
    assert "Trial 0 is being stopped." in drawn(shown)[-1]
    assert "ends" in next(text for text in drawn(shown) if "▸" in text)
    shown.press("q")
    shown.press("y")
    assert asked == [0, None]


def test_what_cannot_be_stopped_says_why():
    asked = []
    view = busy_view()
    view.trial_started(1, seed=100, role="test")
    shown = pages(view, stop=asked.append)
    shown.press("s")
    assert "Select a trial first" in drawn(shown)[-1]
    shown.press("G")
    shown.press("s")
    assert "has ended" in drawn(shown)[-1]
    shown.selected = (1, 100)
    shown.press("s")
    assert "test training" in drawn(shown)[-1]
    shown.press("y")
    assert asked == []


def test_without_somebody_to_ask_no_key_stops_anything():
    shown = pages(stop=None)
    for key in "jsyqy":
        shown.press(key)
    assert shown.question is None
    assert "stop" not in drawn(shown)[-1]


def test_a_request_that_cannot_be_written_is_told():
    def full(trial):
        raise OSError(28, "No space left on device")

    shown = pages(stop=full)
    for key in "jsy":
        shown.press(key)
    assert "No space left" in drawn(shown)[-1]
    assert shown.ending == set()


# What is drawn


def test_a_curve_has_its_values_in_their_places():
    rows = curve([0, 50, 100], [0, 8, 16], 100, 3, 2, 0, 16)
    assert rows == [" ▁█", "▁██"]
    assert curve([50], [1.0], 100, 4, 1, 1, 1) == ["    "]  # nothing is known on either side
    assert curve([], [], 100, 4, 2, 0, 1) == ["    ", "    "]


def test_the_best_value_so_far_holds_until_there_is_a_better_one():
    held = steps([4.0, 5.0], [1.0, 2.0], 0.0, 10.0, 5)
    assert [str(step) for step in held] == ["nan", "1.0", "2.0", "2.0", "2.0"]
    assert [str(entry) for entry in steps([], [], 0.0, 10.0, 2)] == ["nan", "nan"]


def test_places_are_those_of_the_moment_of_the_decision():
    scheduler = ASHA([100, 300], min_population=2)
    view = busy_view()
    for trial, value in enumerate([10.0, 30.0, 20.0]):
        scheduler.decide(trial, 100, value)
        assert view.judged(trial, scheduler.places(trial))
        assert not view.judged(trial, scheduler.places(trial))
    places = [view.running[trial, 0].places[100] for trial in range(3)]
    assert [(place.rank, place.entered, place.cutoff) for place in places] == [
        *((1, 1, None), (1, 2, 30.0), (2, 3, 30.0)),
    ]
    assert scheduler.places(0)[0].rank == 3  # by now
    assert scheduler.places(9) == []


def test_a_full_disk_and_gpus_are_told_where_there_are_any(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '43, 2048, 81920'\necho '[N/A], 1, 2'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 0.5e9}))
    meter = LoadMeter(tmp_path)
    meter.every = 0.0
    until = time.monotonic() + 5
    while not (load := meter.read()) or not load.gpus:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert load.gpus == ((0.43, 2048 * 2**20, 81920 * 2**20),)
    assert load.disk_left == 0.5e9 < LITTLE_DISK
    shown = Pages(busy_view(), meter)
    page = "\n".join(drawn(shown))
    assert "GPU 43%, 2.1 of 86 GB" in page
    assert "only 0.5 GB left on the disk" in page


# A real terminal

PROGRAM = """
import sys, time
from rltune.screen import LiveScreen
from rltune.planning.progress import SearchProgress
from rltune.screen.view import SearchView
view = SearchView("x", "ppo", "CartPole-v1", SearchProgress(1000, trials=4))
stopped = []
with LiveScreen(view, stop=stopped.append):
    view.trial_started(view.progress.training_started(7), config={"gamma": 0.99})
    view.progress.training_progress(7, 0, 500, 1.0)
    view.trial_progress(7, 42.5)
    for _ in range(1200):
        time.sleep(0.05)
        if 7 in stopped and "crash" in sys.argv:
            raise RuntimeError("boom")
        if None in stopped:
            break
print("the end", stopped)
"""


# Starts PROGRAM as a shell with job control does; after Ctrl-Z it goes on with the next line typed.
SHELL = """
import os, signal, sys
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    while os.tcgetpgrp(0) != os.getpgrp():
        pass
    os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
os.setpgid(child, child)
while True:
    os.tcsetpgrp(0, child)
    os.kill(-child, signal.SIGCONT)
    _, status = os.waitpid(child, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status) % 256)
    print("suspended", flush=True)
    input()
"""


class Terminal:
    """A pseudo-terminal with PROGRAM in the foreground, as a shell would start it."""

    def __init__(self, *arguments):
        self.parent, self.child = pty.openpty()
        fcntl.ioctl(self.child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(self.child)
        variables = {**os.environ, "TERM": "xterm-256color", "PYTHON_COLORS": "0"}
        for name in ("COLUMNS", "LINES"):
            variables.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SHELL, PROGRAM, *arguments],
            stdin=self.child,
            stdout=self.child,
            stderr=self.child,
            env=variables,
            preexec_fn=self._control,
        )
        self.written = ""

    @staticmethod
    def _control():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def wait_for(self, text, seconds=20):
        """Read until the text comes, and forget all up to there."""
        until = time.monotonic() + seconds
        while text not in self.written:
            assert time.monotonic() < until, self.written[-2000:]
            if select.select([self.parent], [], [], 0.05)[0]:
                self.written += os.read(self.parent, 65536).decode(errors="replace")
        before, _, self.written = self.written.partition(text)
        return before

    def type(self, text):
        os.write(self.parent, text.encode())

    def end(self):
        """Return the exit status, having looked at the terminal that is left behind."""
        until = time.monotonic() + 20
        while self.process.poll() is None:
            assert time.monotonic() < until
            if select.select([self.parent], [], [], 0.05)[0]:
                self.written += os.read(self.parent, 65536).decode(errors="replace")
        while select.select([self.parent], [], [], 0.1)[0]:
            self.written += os.read(self.parent, 65536).decode(errors="replace")
        assert termios.tcgetattr(self.child) == self.before
        assert "\x1b[?25h" in self.written
        os.close(self.parent)
        os.close(self.child)
        return self.process.returncode


def is_cbreak(terminal):
    return not termios.tcgetattr(terminal.child)[3] & (termios.ICANON | termios.ECHO)


def test_a_trial_and_the_search_are_stopped_from_the_keyboard():
    terminal = Terminal()
    terminal.wait_for("42.5")
    terminal.wait_for("details")
    assert is_cbreak(terminal)
    terminal.type("\x1b[B")
    terminal.wait_for("▸")
    terminal.type("\r")
    terminal.wait_for("gamma")
    terminal.type("s")
    terminal.wait_for("Stop trial 7?")
    terminal.type("y")
    terminal.wait_for("Trial 7 is being stopped.")
    terminal.type("q")
    terminal.wait_for("Stop the search?")
    terminal.type("y")
    terminal.wait_for("the end [7, None]")
    terminal.written += "\x1b[?25h"
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [("crash", 1, "RuntimeError: boom"), ("ctrl-c", 254, "KeyboardInterrupt"), ("term", 143, "")],
)
def test_the_terminal_is_given_back(how, status, said):
    terminal = Terminal(how)
    terminal.wait_for("42.5")
    terminal.wait_for("details")
    assert is_cbreak(terminal)
    if how == "crash":
        terminal.type("jsy")
    elif how == "ctrl-c":
        terminal.type("\x03")
    else:
        terminal.process.terminate()
    assert terminal.end() == status
    assert said in terminal.written


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again():
    terminal = Terminal()
    terminal.wait_for("42.5")
    terminal.wait_for("details")
    terminal.type("\x1a")
    assert "\x1b[?25h" in terminal.wait_for("suspended")
    assert termios.tcgetattr(terminal.child) == terminal.before
    terminal.type("j\n")  # this is the shell's
    assert "▸" not in terminal.wait_for("details")
    assert is_cbreak(terminal)
    terminal.type("j")
    terminal.wait_for("▸")
    terminal.type("qy")
    terminal.wait_for("the end")
    terminal.written += "\x1b[?25h"
    assert terminal.end() == 0


def test_no_keys_without_a_terminal_or_outside_of_the_main_thread(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    keyboard = Keyboard()
    keyboard.open()
    assert not keyboard.active
    over = threading.Event()
    over.set()
    assert keyboard.read(5.0, over) == []
    keyboard.close()
    parent, child = pty.openpty()
    before = termios.tcgetattr(child)
    monkeypatch.setattr(sys, "stdin", os.fdopen(child))
    keyboard = Keyboard()
    thread = threading.Thread(target=keyboard.open)
    thread.start()
    thread.join()
    assert not keyboard.active
    assert termios.tcgetattr(child) == before
    os.close(parent)


def test_plain_lines_take_no_keys(monkeypatch):
    taken = []
    monkeypatch.setattr(Keyboard, "open", lambda self: taken.append(1))
    with LiveScreen(busy_view(), "plain", Console(file=io.StringIO())):
        pass
    with LiveScreen(busy_view(), "none", Console(file=io.StringIO())):
        pass
    assert taken == []
