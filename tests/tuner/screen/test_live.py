"""The live screen: what a reader must find at each size, and that nothing breaks the terminal."""

from __future__ import annotations

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
from rltune.common.formats import (
    count,
    duration,
    interval,
    interval_title,
    points,
    score,
    setting,
)
from rltune.schedulers.base import Rung
from rltune.screen import LiveScreen, SearchScreen, live
from rltune.screen.drawing import BARS, sparkline
from rltune.screen.load import LoadMeter
from told_view import told_view

CONFIG = {"learning_rate": 0.00103234, "gamma": 0.99973, "n_steps": 32, "net_arch": [64, 64]}


def new_view(**more):
    options = {"trials": 40, "time_limit": 7200, **more}
    return told_view(50_000, name="ppo-CartPole-v1-1121", **options)


def busy_view(running=2, **more):
    view = new_view(**more)
    view.progress.started -= 751
    view.progress.restore({"COMPLETE": 4, "PRUNED": 6, "RUNNING": 1})
    for number in range(20, 20 + running):
        view.trial_started(number)
        for k in range(1, 11):
            view.trial_progress(number, 1000 * k, 20.0 * k)
    view.set_incumbent(7, 498.2, CONFIG)
    view.set_rungs([Rung(5556, 13, 5, 98.1), Rung(16667, 6, 1, None), Rung(50000, 5, 0, None)])
    view.trial_started(12)
    view.trial_ended(12, "COMPLETE", "", 480.0)
    view.trial_started(9)
    view.trial_ended(9, "FAIL", "non-finite policy_loss\nat 12,288 env_steps")
    view.message("trial 12: worker died; trying again")
    return view


def drawn(view, width=80, height=24):
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(SearchScreen(view))
    return console.file.getvalue().splitlines()


def line(lines, start):
    return " ".join(next(text for text in lines if text.startswith(start)).split())


def test_a_reader_finds_everything_in_80_by_24():
    lines = drawn(busy_view())
    assert lines[0].startswith("rltune  ppo on CartPole-v1")
    assert lines[0].endswith("ppo-CartPole-v1-1121")
    assert "12 of 40 trials" in lines[2]
    assert "12:31 elapsed" in lines[2]
    assert "left" in lines[2]
    assert "limit 2:00:00" in lines[2]
    assert line(lines, "Trials") == "Trials 2 running 5 finished 6 stopped early 1 failed 26 to go"
    assert "20,000 in all" in line(lines, "Speed")
    assert line(lines, "Best") == "Best 498.2 trial 7 on its tuning seed"
    assert "learning_rate 0.001032   gamma 0.99973   n_steps 32" in "\n".join(lines)
    running = next(text for text in lines if text.split()[:1] == ["20"])
    assert "10,000" in running
    assert "200.0" in running
    assert "▁" in running
    rungs = [text.split() for text in lines if "5,556" in text or "16,667" in text]
    assert rungs[0] == ["5,556", "13", "5", "98.1", "━━━━━╌╌╌"]
    assert rungs[1] == ["16,667", "6", "1", "any", "━━━╌", "←", "20,", "21"]
    assert line(lines, "Failed") == "Failed trial 9 non-finite policy_loss at 12,288 env_steps"


def test_rungs_in_seconds_say_so():
    view = busy_view()
    view.set_rungs([
        Rung(5556, 13, 5, 98.1, 10.0), Rung(16667, 6, 1, None, 30.0), Rung(50000, 5, 0, None, 90.0)
    ])  # fmt: skip
    for number, seconds in ((20, 12.0), (21, 31.0)):  # at the same env_steps
        view.trial_progress(number, 10_000, seconds=seconds)
    lines = drawn(view)
    head = next(i for i, text in enumerate(lines) if "goes on from" in text)
    assert lines[head].split()[:3] == ["Rungs", "time", "reached"]
    assert [text.split()[:3] for text in lines[head + 1 : head + 4]] == [
        ["10", "s", "13"], ["30", "s", "6"], ["90", "s", "5"],
    ]  # fmt: skip
    assert lines[head + 2].endswith("← 20")
    assert lines[head + 3].endswith("← 21")
    assert "5,556" not in "".join(lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [8, 12, 24, 40])
@pytest.mark.parametrize("running", [0, 2, 64])
def test_every_size_keeps_within_the_terminal_and_tells_the_main_thing(width, height, running):
    lines = drawn(busy_view(running), width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < height  # one line is the cursor's
    page = "\n".join(lines)
    assert "12 of 40 trials" in page
    assert "498.2" in page
    if running == 64:
        assert ("20 " in page) or height < 12


def test_a_low_terminal_says_how_many_it_leaves_out():
    lines = drawn(busy_view(64), 80, 30)
    left_out = next(text for text in lines if "more" in text)
    shown = sum(bool(re.match(r"(Running)? +\d\d +[━─]", text)) for text in lines)
    assert int(left_out.split()[1]) == 64 - shown


def test_the_tournament_shows_the_standing_of_the_finalists():
    view = busy_view(0)
    view.begin_tournament({0: "the defaults", 7: "trial 7"}, 10, {7: {100: 400.0}})
    view.trial_started(0, "default", seed=100, role="test")
    view.trial_progress(0, 25_000, 450.0, seed=100)
    view.trial_started(7, seed=101, role="test")
    view.trial_ended(7, "FAIL", "diverged", float("nan"), seed=101)
    lines = drawn(view)
    assert "2 of 10 test trainings" in lines[2]
    assert any("0 / seed 100" in text and "25,000" in text for text in lines)
    standing = next(text for text in lines if text.strip().startswith("trial 7  "))
    assert standing.split()[2:] == ["2", "diverged", "400.0", "diverged"]
    assert not any(text.startswith("Rungs") for text in lines)
    view.trial_ended(0, "COMPLETE", "", 450.0, seed=100)
    assert view.progress.states["COMPLETE"] == 5  # test trainings are no trials


def test_before_anything_has_happened():
    page = "\n".join(drawn(new_view(trials=None, time_limit=None)))
    assert "starting" in page
    assert "no trial has run its whole budget yet" in page


def test_markup_and_control_characters_of_others_are_only_text():
    view = new_view()
    view.trial_started(1)
    view.trial_ended(1, "FAIL", "[bold]ValueError[/] [/nonsense]\r\n\tx")
    assert "trial 1  [bold]ValueError[/] [/nonsense] x" in "\n".join(drawn(view))


def test_sparkline_has_a_common_scale_and_a_width():
    assert sparkline([0, 50, 100], 10, 0, 100) == "▁▅█"
    assert sparkline([5, 5], 10, 5, 5) == "██"
    assert len(sparkline(range(1000), 20, 0, 999)) == 20
    assert sparkline([float("nan"), 1.0], 10, 0, 1) == BARS[-1]
    assert sparkline([], 10, 0, 1) == ""


def test_numbers_are_written_for_people():
    assert [score(x) for x in (498.234, 9.8765, 0.0, -1234.5, None, float("nan"))] == [
        *("498.2", "9.88", "0.0", "-1,234", "-", "-"),
    ]
    infinite = float("inf")
    assert interval(9.8765, 498.234) == "9.88 to 498.2"
    assert interval(-infinite, 498.234) == "diverged to 498.2"
    assert interval(-infinite, infinite) == ""
    assert points([480.0, 490.0]) == "480.0, 490.0"
    assert points([500.0] * 5) == "all 500.0"
    assert points([-infinite, -infinite]) == "all diverged"
    assert points([500.0]) == "500.0"
    assert interval_title([(-infinite, infinite), (1.0, 2.0)]) == "95 % interval"
    assert interval_title([(-infinite, infinite)]) == "scores"
    assert [duration(x) for x in (9, 751, 7500, None)] == ["0:09", "12:31", "2:05:00", "-"]
    assert [count(x) for x in (999.6, 1_250_000, 2e9)] == ["1,000", "1.25 M", "2.00 G"]
    assert setting(0.99973123) == "0.9997312"  # four digits of 1 - x
    assert [setting(x) for x in (True, None, [64, 64], "lin_1e-3")] == [
        *("true", "none", "64,64", "lin_1e-3"),
    ]


def test_the_view_may_be_changed_while_it_is_drawn():
    view, stop, errors = busy_view(), threading.Event(), []

    def change():
        try:
            number = 100
            while not stop.is_set():
                number += 1
                view.trial_started(number)
                view.trial_progress(number, 500, 1.0)
                view.trial_ended(number, "PRUNED", "stopped")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            assert drawn(view)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


# Plain lines


class Lines(io.StringIO):
    def lines(self):
        return self.getvalue().splitlines()


def test_plain_lines_where_there_is_no_terminal():
    out, view = Lines(), new_view()
    with LiveScreen(view, console=Console(file=out)) as screen:
        assert screen.mode == "plain"
        view.trial_started(1)
        view.trial_progress(1, 50_000, 480.0)
        view.trial_ended(1, "COMPLETE", "", 480.0)
        view.set_incumbent(1, 480.0, CONFIG)
        view.set_incumbent(1, 480.0, CONFIG)
        view.trial_started(2)
        view.trial_ended(2, "PRUNED", "stopped at rung 5,556: 20 < 98", 20.0)
        view.trial_started(3)
        view.trial_ended(3, "FAIL", "worker killed")
        view.message("trial 4: trying again")
    assert [re.sub(r"^\[0:00\] ", "", text) for text in out.lines()] == [
        "ppo-CartPole-v1-1121: ppo on CartPole-v1, 40 trials, 50,000 env steps a trial, "
        "limit 2:00:00",
        "trial 1 finished with 480.0 (50,000 env steps, 0:00)",
        "trial 1 is the best so far with 480.0",
        "trial 2 stopped at rung 5,556: 20 < 98 (0 env steps, 0:00)",
        "trial 3 failed, worker killed (0 env steps, 0:00)",
        "trial 4: trying again",
    ]
    assert "\x1b" not in out.getvalue()


def test_a_heartbeat_only_when_nothing_else_was_said(monkeypatch):
    monkeypatch.setattr(live, "HEARTBEAT", 0.7)
    out, view = Lines(), busy_view()
    with LiveScreen(view, "plain", Console(file=out)):
        time.sleep(1.2)
    lines = out.lines()
    assert len(lines) == 2
    assert "12 of 40 trials done, 2 running, best 498.2 (trial 7)" in lines[1]


def test_no_screen_at_all():
    out, view = Lines(), busy_view()
    with LiveScreen(view, "none", Console(file=out)):
        view.message("nobody hears this")
    assert out.getvalue() == ""


# The live screen in a real terminal

PROGRAM = """
import sys, time
from rltune.screen import LiveScreen
from rltune.planning.progress import SearchProgress
from rltune.screen.view import SearchView
view = SearchView("x", "ppo", "CartPole-v1", SearchProgress(1000, trials=4))
with LiveScreen(view):
    view.trial_started(view.progress.training_started(1))
    view.progress.training_progress(1, 0, 500, 1.0)
    view.trial_progress(1, 42.5)
    time.sleep(1.0)
    if "break" in sys.argv:
        view.running[1, 0].values = None
        time.sleep(1.0)
        view.message("still here")
    if "crash" in sys.argv:
        raise RuntimeError("boom")
print("the end")
"""
CURSOR_OFF, CURSOR_ON = "\x1b[?25l", "\x1b[?25h"


def in_terminal(*arguments, columns=80, rows=24, resize=None, **environment):
    """Run PROGRAM in a pseudo-terminal and return (exit code, all that it wrote)."""
    parent, child = pty.openpty()
    set_size(child, rows, columns)
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    variables = {k: v for k, v in variables.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=child,
        stdout=child,
        stderr=child,
        env=variables,
        close_fds=True,
    )
    written = b""
    resized = False
    while process.poll() is None or select.select([parent], [], [], 0.1)[0]:
        if select.select([parent], [], [], 0.1)[0]:
            written += os.read(parent, 65536)
        if resize and not resized and b"42.5" in written:
            set_size(child, *resize)
            resized = True
    os.close(child)
    os.close(parent)
    return process.returncode, written.decode()


def set_size(terminal, rows, columns):
    import fcntl

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_the_screen_lives_and_leaves_the_terminal_as_it_was():
    code, written = in_terminal()
    assert code == 0
    assert "42.5" in written
    assert written.count(CURSOR_OFF) == written.count(CURSOR_ON) == 1
    assert written.index(CURSOR_OFF) < written.index(CURSOR_ON) < written.index("the end")
    assert "\x1b[?1049h" not in written  # the scroll-back stays


def test_an_exception_gives_the_cursor_back_and_is_seen():
    code, written = in_terminal("crash", PYTHON_COLORS="0")  # 3.13 colours tracebacks
    assert code == 1
    assert written.rindex(CURSOR_ON) < written.rindex("RuntimeError: boom")


def test_no_color_is_honoured():
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert coloured.search(in_terminal()[1])
    assert not coloured.search(in_terminal(NO_COLOR="1")[1])


def test_a_resized_terminal_begins_on_an_empty_screen():
    _, written = in_terminal(resize=(20, 60))
    clear = written.index("\x1b[2J")
    assert "42.5" in written[clear:]
    rule = re.findall(r"[━─]{20,}", re.sub(r"\x1b\[[0-9;]*m", "", written[clear:]))
    assert max(map(len, rule)) == 60


def test_a_screen_that_fails_does_not_end_the_search():
    code, written = in_terminal("break")
    assert code == 0
    assert "the live screen failed" in written
    assert "still here" in written
    assert "the end" in written


def test_a_dumb_terminal_gets_plain_lines():
    _, written = in_terminal(TERM="dumb")
    assert "[0:00] x: ppo on CartPole-v1" in written
    assert CURSOR_OFF not in written


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_the_load_counts_children_too():
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        meter = LoadMeter()
        meter.every = 0.2
        meter.read()
        time.sleep(1.0)
        load = meter.read()
    finally:
        child.kill()
        child.wait()
    assert 0.02 < load.cores < 2
    assert 0.005e9 < load.memory < 10e9


def test_a_training_whose_environment_does_not_answer_says_so():
    view = busy_view()
    view.trial_silent(20, "reset()")
    running = next(text for text in drawn(view, 120, 40) if text.split()[:1] == ["20"])
    assert "reset()" in running
    view.trial_progress(20, 11_000, 1.0)
    assert "reset()" not in "\n".join(drawn(view, 120, 40))
