"""Rungs in seconds: trials are compared when they have taken equally long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune.analysis.summary import Summary
from rltune.common.formats import rung_at
from rltune.objectives.seeds import make_plan
from rltune.reporting.figures import stopping
from rltune.runs.search_spec import SearchSpec
from rltune.samplers.proposer import open_study
from rltune.schedulers.registry import make_scheduler
from rltune.schedulers.resource import Resource
from searching import search

# Each of 90 updates takes a hundredth of a second or nothing; the slow ones are better.
SPACE: dict[str, Any] = {
    "space": {"sleep": {"choice": [0.0, 0.01]}, "at": {"int": [1, 1000]}},
    "derived": {"quality": "0.5 + 40 * sleep"},
}


def test_a_trial_is_as_far_as_its_seconds_are() -> None:
    resource = Resource(900, 10.0)
    resource.note(0, 0, 100, 5.0)
    assert resource.at(0, 100) == 450
    resource.note(0, 1, 100, 7.0)
    assert resource.at(0, 100) == 540  # the mean of its seeds
    assert resource.reports({0: {100: 1.5}, 1: {100: 2.5}}) == {0: {540: 1.5}, 1: {100: 2.5}}
    plain = Resource(900)
    plain.note(0, 0, 100, 5.0)
    assert plain.at(0, 100) == 100


@pytest.mark.parametrize("name", ["asha", "hyperband", "median"])
def test_who_has_used_up_its_seconds_is_stopped(name: str) -> None:
    scheduler = make_scheduler(name, 900, {"seconds": 90})
    assert scheduler.decide(0, 899, 1.0) == "continue"
    assert scheduler.decide(0, 900, 1.0) == "stop"
    assert scheduler.reason(0) == "stopped: its 90 seconds are used up"


def test_the_reason_tells_the_seconds() -> None:
    asha = make_scheduler("asha", 900, {"seconds": 90, "min_population": 2})
    assert asha.decide(0, 120, 2.0) == "continue"
    assert asha.decide(1, 100, 1.0) == "stop"
    assert asha.reason(1).startswith("stopped at rung 100 (10 s): 1 < 2")


def test_a_rung_says_after_how_many_seconds_it_compares() -> None:
    for name in ("asha", "hyperband", "median"):
        scheduler = make_scheduler(name, 900, {"seconds": 3600})
        scheduler.decide(0, 900, 1.0)
        rungs = scheduler.table()
        assert [rung.seconds for rung in rungs] == [4.0 * rung.budget for rung in rungs]
        assert scheduler.places(0)[-1].seconds == 3600
    assert {rung.seconds for rung in make_scheduler("asha", 900, {}).table()} == {None}
    assert [rung_at(100, 400.0), rung_at(100, 0.0556), rung_at(100, 1234.5)] == [
        "400 s", "0.0556 s", "1,234 s",
    ]  # fmt: skip
    assert rung_at(5556, None) == "5,556"


def test_only_the_seeds_of_every_trial_count() -> None:
    resource = Resource(900, 9.0, make_plan("racing", range(100, 901, 100), [100, 300, 900]))
    for seed, seconds in enumerate([4.0, 8.0]):
        resource.note(0, seed, 300, seconds)
    assert resource.at(0, 300) == 400


@pytest.mark.parametrize("seeds", [1, pytest.param("racing", marks=pytest.mark.slow)])
def test_a_search_replays_and_goes_on_as_it_was_judged(
    tmp_path: Path, no_ray: None, seeds: int | str
) -> None:
    options = {"seconds": 0.4, "min_population": 3}
    result = search(
        tmp_path, SPACE, trials=16, seeds=seeds, scheduler_options=options, tournament=False
    )
    trials = result.trials()
    slow, quick = trials[trials["config.sleep"] > 0], trials[trials["config.sleep"] == 0]
    # In env_steps the slow ones win, and take 0.9 s each.
    assert len(slow) > 2
    assert set(slow["state"]) == {"PRUNED"}
    assert all(reason.startswith("stopped") for reason in slow["reason"])
    assert "COMPLETE" in set(quick["state"])

    again = rltune.replay(result.path)
    assert all(fate.same for fate in again.fates)
    free = rltune.replay(result.path, "asha", {"min_population": 3})
    assert not all(fate.same for fate in free.fates)  # in env_steps

    run = rltune.open(result.path)
    spec = SearchSpec.from_dict(run.spec)
    study = open_study(result.path / "study.db", rltune.Space.from_dict(spec.space))
    restored = make_scheduler(spec.scheduler, spec.budget, spec.scheduler_options)
    resource = Resource.of(spec, read_history=run.history)
    restored.restore(resource.reports(study.reports()), study.stopped())
    assert tuple(restored.table()) == again.rungs

    stopped = trials[trials["state"] == "PRUNED"]
    summary = Summary(run)
    assert summary.stops == stopped.groupby("budget_reached").size().to_dict()
    chart = stopping(summary)
    assert chart is not None
    assert "as long as" in chart.says
    assert "rungs" not in chart.says


def test_nobody_takes_more_than_its_seconds(tmp_path: Path, no_ray: None) -> None:
    options = {"seconds": 0.5, "min_population": 100}
    trials = search(tmp_path, SPACE, trials=8, scheduler_options=options, tournament=False).trials()
    slow = trials[trials["config.sleep"] > 0]
    assert set(slow["reason"]) == {"stopped: its 0.5 seconds are used up"}
    assert slow["budget_reached"].max() <= 500
    assert slow["seconds"].min() >= 0.49  # of two clocks


def test_several_objectives_count_env_steps(tmp_path: Path, no_ray: None) -> None:
    with pytest.raises(rltune.UserError, match="remove seconds"):
        search(tmp_path, against="seconds", scheduler_options={"seconds": 5})
