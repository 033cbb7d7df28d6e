"""Callbacks of a search: each event once and in order, ends that they ask for, their mistakes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune.agents.errors import UserError
from searching import search

pytestmark = pytest.mark.usefixtures("no_ray")
SMALL: dict[str, Any] = {"trials": 3, "scheduler": "none", "finalists": 1, "test_seeds": 1}


class Witness(rltune.Callback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def on_search_start(self, search: Any) -> None:
        self.heard.append(("start", search))

    def on_trial_start(self, trial: Any) -> str | None:
        self.heard.append(("trial", trial))
        return None

    def on_report(self, trial: Any, row: Any) -> str | None:
        self.heard.append(("row", (trial, dict(row))))
        return None

    def on_trial_end(self, trial: Any) -> str | None:
        self.heard.append(("ended", trial))
        return None

    def on_new_incumbent(self, trial: Any) -> str | None:
        self.heard.append(("incumbent", trial))
        return None

    def on_answer(self, answer: Any) -> None:
        self.heard.append(("answer", answer))

    def on_search_end(self, search: Any) -> None:
        self.heard.append(("end", search))

    def of(self, event: str) -> list[Any]:
        return [about for name, about in self.heard if name == event]

    @property
    def events(self) -> list[str]:
        return [name for name, _ in self.heard]


def test_each_event_comes_once_and_in_order(tmp_path: Path) -> None:
    witness = Witness()
    result = search(tmp_path, **SMALL, callbacks=[witness])
    assert witness.events[0] == "start"
    assert witness.events[-2:] == ["answer", "end"]
    trials = result.trials()
    for number in range(3):
        own = [
            name
            for name, about in witness.heard
            if number == getattr(about[0] if name == "row" else about, "number", None)
        ]
        rows = [row for trial, row in witness.of("row") if trial.number == number]
        assert own[: len(rows) + 2] == ["trial", *["row"] * len(rows), "ended"]
        written = result.history().query("trial == @number and role == 'tune'")
        assert [row["env_steps"] for row in rows] == list(written["env_steps"])
    ended = {trial.number: trial for trial in witness.of("ended")}
    assert {n: t.value for n, t in ended.items()} == dict(enumerate(trials["objective"]))
    assert {(t.state, t.env_steps) for t in ended.values()} == {("COMPLETE", 900)}
    best: list[float] = [trial.value for trial in witness.of("incumbent")]
    assert best == sorted(set(best))
    assert best[-1] == trials["objective"].max()
    (start,) = witness.of("start")
    assert (start.path, start.resumed, start.spec["trials"]) == (result.path, False, 3)
    assert witness.of("answer")[0]["best_config"] == result.best


class Stopper(Witness):
    """Ends a trial before it begins, another at its first row, and the search after a third."""

    def on_trial_start(self, trial: Any) -> str | None:
        super().on_trial_start(trial)
        return self.STOP if trial.number == 1 else None

    def on_report(self, trial: Any, row: Any) -> str | None:
        super().on_report(trial, row)
        return self.STOP if trial.number == 2 else None

    def on_trial_end(self, trial: Any) -> str | None:
        super().on_trial_end(trial)
        return self.STOP if trial.number == 3 else None


def test_a_callback_ends_trials_and_the_search(tmp_path: Path) -> None:
    stopper = Stopper()
    result = search(tmp_path, **{**SMALL, "trials": 20}, callbacks=[stopper])
    trials = result.trials()
    assert list(trials["state"]) == ["COMPLETE", "PRUNED", "PRUNED", "COMPLETE"]
    assert trials["reason"][1] == "by a callback: stopped before its first result"
    assert trials["reason"][2].startswith("by a callback: stopped at 100 env_steps")
    assert Counter(stopper.events)["ended"] == 4
    assert [trial.number for trial, _ in stopper.of("row")].count(2) == 1
    assert result.best is not None
    assert stopper.events[-2:] == ["answer", "end"]
    # A resume may be asked for what is left; it says so.
    witness = Witness()
    rltune.resume(result.path, trials=5, screen="none", callbacks=[witness])
    assert witness.of("start")[0].resumed
    assert [trial.number for trial in witness.of("trial")] == [4]


def test_a_search_may_end_before_it_has_begun(tmp_path: Path) -> None:
    class Never(rltune.Callback):
        def on_search_start(self, search: Any) -> str | None:
            return self.STOP

    result = search(tmp_path, **SMALL, callbacks=Never)
    assert set(result.history()["role"]) == {"test"}  # of the defaults
    assert result.answer is not None
    assert "the search had nothing to choose from" in result.answer["warnings"][0]


class Clumsy(rltune.Callback):
    """Fails with every row."""

    def on_report(self, trial: Any, row: Any) -> str | None:
        raise ZeroDivisionError(f"trial {trial.number}")


def test_a_mistake_is_told_once_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = search(tmp_path, **{**SMALL, "screen": "plain"}, callbacks=[Clumsy])
    assert list(result.trials()["state"]) == ["COMPLETE"] * 3
    shown = capsys.readouterr()
    said = "Clumsy.on_report has failed with ZeroDivisionError: trial 0; going on (see callbacks"
    assert (shown.out + shown.err).count(said) == 1
    log = (result.path / "callbacks.log").read_text()
    assert log.count("Traceback") == 1
    assert "in on_report" in log


def test_a_mistake_ends_the_search_where_that_is_wanted(tmp_path: Path) -> None:
    class Strict(Clumsy, Witness):
        raises = True

    strict = Strict()
    with pytest.raises(ZeroDivisionError, match="trial 0"):
        search(tmp_path, **SMALL, callbacks=[strict])
    assert strict.events == ["start", "trial", "end"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere:Mine", "callback 'nowhere:Mine': there is no module 'nowhere'"),
        ("toy:ToyEnv", "callback 'toy:ToyEnv' is no subclass of rltune.Callback"),
        (3, "callback 3 is no subclass of rltune.Callback"),
    ],
)
def test_what_is_no_callback_is_refused(tmp_path: Path, given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        search(tmp_path, callbacks=[given])
    assert not (tmp_path / "run").exists()
