"""A trial for which the time is too short is not started."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune.answer.model import Circumstances
from rltune.answer.sentences import search_warnings
from rltune.execution.messages import Result
from rltune.planning.prices import Prices
from rltune.planning.progress import SearchProgress
from rltune.runs.directory import RunDir
from rltune.runs.history import HistoryWriter
from rltune.samplers.proposer import MAX_REFUSALS, open_study
from rltune.schedulers.registry import make_scheduler
from rltune.search.driver import Driver
from rltune.space.space import Space
from rltune.study.records import StartConfig
from serial import make_parts

SPACE = Space.from_dict({"n_epochs": {"int": [1, 20]}, "lr": {"log": [1e-5, 1e-2]}})
DEFAULT = StartConfig("default", {"n_epochs": 20, "lr": 1e-3})


def known(first_rung: int = 1000) -> Prices:
    """Prices of a search whose steps cost a millisecond per epoch."""
    prices = Prices(SPACE, 9000, first_rung)
    for number, n_epochs in enumerate((1, 5, 10, 20)):
        prices.observe(number, {"n_epochs": n_epochs, "lr": 1e-3}, 9.0 * n_epochs, 9000)
    return prices


def test_prices_are_learned_from_what_trials_have_cost() -> None:
    prices = known()
    assert prices.seconds({"n_epochs": 15, "lr": 1e-4}) == pytest.approx(135, rel=0.2)
    assert prices.seconds({"n_epochs": 15, "lr": 1e-4}, 1000) == pytest.approx(15, rel=0.2)
    prices.observe(7, {"n_epochs": 15, "lr": 1e-4}, 27.0, 9000)  # much cheaper than foreseen
    assert prices.seconds({"n_epochs": 15, "lr": 1e-4}) < 100


def test_a_trial_that_ran_its_budget_says_what_training_it_again_takes() -> None:
    prices = known()
    prices.observe(7, {"n_epochs": 15, "lr": 1e-4}, 27.0, 9000)
    assert prices.of_retraining(7, {"n_epochs": 15, "lr": 1e-4}) == pytest.approx(27)
    prices.observe(7, {"n_epochs": 15, "lr": 1e-4}, 3.0, 1000)  # not all of it
    foreseen = prices.seconds({"n_epochs": 15, "lr": 1e-4})
    assert prices.of_retraining(7, {"n_epochs": 15, "lr": 1e-4}) == foreseen
    assert Prices(SPACE, 9000, 1000).of_retraining(7, DEFAULT.config) is None


def test_nothing_is_refused_before_there_are_prices_or_without_a_limit() -> None:
    prices = Prices(SPACE, 9000, 1000)
    prices.observe(0, DEFAULT.config, 1e6, 9000)
    prices.observe(1, DEFAULT.config, 0.0, 0)  # nothing came of it yet
    assert prices.seconds(DEFAULT.config) is None
    assert prices.affordable(DEFAULT.config, 1.0)
    assert known().affordable(DEFAULT.config, math.inf)


def test_a_study_proposes_what_there_is_time_for(tmp_path: Path) -> None:
    prices = known()
    study = open_study(tmp_path / "study.db", SPACE, sampler="random", starts=[DEFAULT])
    first = study.ask(lambda config: prices.affordable(config, 5.0))
    assert first is not None
    assert first.config == DEFAULT.config  # a start always runs
    found = [study.ask(lambda config: prices.affordable(config, 5.0)) for _ in range(5)]
    assert all(entry is not None and entry.config["n_epochs"] <= 6 for entry in found)
    assert prices.refused > 0
    assert len(study.trials()) == 6  # what was refused left no trace


def test_a_study_gives_up_when_all_is_too_dear(tmp_path: Path) -> None:
    asked: list[Any] = []
    study = open_study(tmp_path / "study.db", SPACE)
    assert study.ask(lambda config: bool(asked.append(config))) is None
    assert len(asked) == MAX_REFUSALS
    assert study.trials() == []


def test_a_grid_goes_on_where_time_was_short(tmp_path: Path) -> None:
    study = open_study(tmp_path / "study.db", SPACE, sampler="grid")
    refused: list[dict[str, Any]] = []
    assert study.ask(lambda config: bool(refused.append(config))) is None
    again = study.ask()
    assert again is not None
    assert [again.config] == refused


def test_the_answer_says_what_was_not_started() -> None:
    one, three = (search_warnings(Circumstances(not_started=n))[0] for n in (1, 3))
    assert one.startswith("1 proposal was not started: it would")
    assert three == (
        "3 proposals were not started: each would have taken longer than the time left."
    )
    assert not any("not started" in line for line in search_warnings(Circumstances()))


def test_the_driver_starts_no_trial_that_it_has_no_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the space needs 1,000 s to its first rung, and some 560 s are left."""
    monkeypatch.chdir(Path(__file__).parents[1])
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    space = {"space": {"quality": {"uniform": [0, 1]}, "sleep": {"choice": [0.01, 1.0]}}}
    search = rltune.Search(
        "toy:ToyAgent", "toy:ToyEnv", space, budget=900, trials=30, time_limit=3600, wandb="off",
        report=False, tournament=False, sampler="random", storage_path=tmp_path, name="run",
    )  # fmt: skip
    spec = search.spec
    run = RunDir.create(search.path, spec.to_dict())
    study = open_study(run.study_path, search.space, sampler="random", starts=search.starts)
    scheduler = make_scheduler(spec.scheduler, spec.budget, spec.scheduler_options)
    progress = SearchProgress(spec.budget, spec.trials, started=time.time() - 3000)
    history = HistoryWriter(run.path)
    driver = Driver(make_parts(spec, run, study, scheduler, history, progress))
    started = []
    while (task := driver.next_job()) is not None:
        started.append(task["config"]["sleep"])
        price = 10 * started[-1] if len(started) > 1 else 0.1  # the default sleeps 0 seconds
        for i, point in enumerate(spec.points):
            row = {"env_steps": point, "time": price * point}
            finished = point == spec.budget
            if driver.on_result(task["job"], Result(i + 1, row, [], 1.0, 1.0, finished)):
                break
    history.close()
    assert len(started) == 30  # cheap ones went on to be proposed
    assert driver.prices.refused > 5
    assert 1.0 not in started[9:]  # its price is known by then
    assert driver.parts.progress.seconds_left() == 0
