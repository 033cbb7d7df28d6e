"""Stops that a person asks for: what is recorded, and that nothing else changes with them."""

from __future__ import annotations

import contextlib

import pytest
import rltune
from rltune.cli import main
from rltune.cluster import session
from rltune.cluster.capacity import Room
from rltune.execution import tune
from rltune.execution.messages import PAYLOAD, TASK
from rltune.execution.trainable import AgentTrainable
from rltune.runs import stop_requests
from rltune.runs.directory import RunDir
from rltune.runs.stop_requests import StopRequests
from rltune.samplers.proposer import open_study
from rltune.samplers.views import for_complete, for_tpe
from rltune.study.reasons import BY_HAND
from searching import POPULATION, check_history, search


@pytest.fixture
def stepping(toy, monkeypatch):
    """Run jobs here, one step of each in turn; `asks` is called after each result."""
    monkeypatch.setattr(stop_requests, "EVERY", 0.0)
    nothing = contextlib.nullcontext(lambda call: None)
    monkeypatch.setattr(session, "ray_session", lambda *args, **kwargs: contextlib.nullcontext())
    monkeypatch.setattr(session, "started_ahead", lambda *args, **kwargs: nothing)
    monkeypatch.setattr(Room, "__init__", lambda self, resources: None)
    monkeypatch.setattr(Room, "slots", lambda self: 2)
    asks = []

    def run_here(driver, *args, **kwargs):
        jobs = {}
        while not driver.should_stop():
            while not driver.exhausted() and (task := driver.next_job()):
                jobs[task["job"]] = AgentTrainable({TASK: task})
            if not jobs:
                break
            name, job = next(iter(jobs.items()))
            jobs[name] = jobs.pop(name)  # to the end of the queue
            result = job.step()[PAYLOAD]
            if driver.on_result(name, result):
                jobs.pop(name).cleanup()
            for ask in asks:
                ask(driver, job.task["number"], result)
        for job in jobs.values():
            job.cleanup()

    monkeypatch.setattr(tune, "run_jobs", run_here)
    return asks


def stop_when(number, iteration):
    """Ask for the end of a trial when it has had so many results."""

    def ask(driver, trial, result):
        if (trial, result.iteration) == (number, iteration):
            driver.requests.ask(number)

    return ask


def test_a_stopped_trial_keeps_its_values_and_no_other_decision_changes(stepping, tmp_path):
    whole = search(tmp_path / "whole", trials=8, tournament=False).trials()
    stepping.append(stop_when(1, 6))
    result = search(tmp_path, trials=8, tournament=False)
    trials = result.trials()
    stopped = trials.iloc[1]
    assert (stopped["state"], stopped["reason"]) == (
        "PRUNED",
        f"{BY_HAND}: stopped at 600 env_steps",
    )
    history = result.history()
    mine = history[history["trial"] == 1]
    assert mine["env_steps"].max() == stopped["budget_reached"] == 600
    assert stopped["rung"] == 600  # its last value, and where it has it
    assert whole["state"].iloc[1] == "COMPLETE"
    # The sampler learns something else from here on; those in flight are judged as before.
    assert list(trials["state"].drop(1))[:2] == list(whole["state"].drop(1))[:2]
    check_history(history)
    assert not list((result.path / "requests").iterdir())
    replayed = rltune.replay(result.path)
    assert all(fate.same for fate in replayed.fates)
    at_rungs = {rung.budget: rung.entered for rung in replayed.rungs}
    assert at_rungs[100] == 8
    assert at_rungs[900] == (trials["state"] == "COMPLETE").sum()


def test_a_resume_does_not_run_it_again_and_rebuilds_the_rungs(stepping, tmp_path):
    tables = []
    stepping += [lambda driver, *_: tables.append(driver.parts.scheduler.table()), stop_when(1, 6)]
    search(tmp_path, trials=5, tournament=False)
    ends, before = rltune.open(tmp_path / "run").trials(), tables[-1]
    stepping.pop()
    tables.clear()
    (tmp_path / "run" / "requests" / "stop").touch()  # what an earlier process was asked
    (tmp_path / "run" / "requests" / "stop-5").touch()
    result = rltune.resume(tmp_path / "run", screen="none", trials=7)
    after = result.trials()
    columns = ["state", "reason", "objective", "budget_reached"]
    assert after[columns].head(5).equals(ends[columns])
    assert len(after) == 7
    assert not result.interrupted
    assert not after["reason"].str.startswith(BY_HAND).iloc[5:].any()
    # The first rung has a new trial by now, the others are as they were.
    assert tables[0][1:] == before[1:]
    assert (result.history()["trial"] == 1).sum() == 6


def test_all_seeds_of_a_trial_stop_and_one_that_waits_too(stepping, tmp_path):
    def ask(driver, number, result):
        trial = driver.running.trials.get(1)
        runs = trial.seeds.runs if trial else {}
        begun = {seed for seed in runs if runs[seed].env_steps}
        waiting = [seed for seed in begun if trial.seeds.waits(seed)]
        if len(begun) == 2 and len(waiting) == 1 and not asked:
            asked.append(waiting)
            driver.requests.ask(1)

    asked = []
    stepping.append(ask)
    result = search(tmp_path, trials=4, seeds=2, tournament=False)
    trials = result.trials()
    assert asked  # one of its seeds was waiting at a rung for the other
    assert trials["state"].iloc[1] == "PRUNED"
    assert trials["reason"].iloc[1].startswith(f"{BY_HAND}: stopped at ")
    assert list(trials["seeds"].iloc[1]) == [0, 1]
    assert len(trials) == 4
    assert all(fate.same for fate in rltune.replay(result.path).fates)


def test_a_member_of_a_population_that_waits_can_be_stopped(stepping, tmp_path):
    def ask(driver, trial, result):
        resting = [t.number for t in driver.running.trials.values() if driver.judge.waits(t)]
        if 4 in resting and not asked:
            asked.append(4)
            driver.requests.ask(4)

    asked = []
    stepping.append(ask)
    result = rltune.Search(**POPULATION, storage_path=tmp_path, wandb="off", tournament=False).run()
    trials = result.trials()
    assert asked
    assert trials["reason"].iloc[4].startswith(BY_HAND)
    assert list(trials["state"].iloc[:4]) == ["COMPLETE"] * 4


def test_a_search_that_is_asked_to_stop_can_be_resumed(stepping, tmp_path):
    stepping.append(lambda driver, trial, result: trial == 2 and driver.requests.ask())
    first = search(tmp_path, trials=6, tournament=False)
    assert first.interrupted
    assert len(first.trials()) < 6
    stepping.clear()
    second = rltune.resume(first.path, screen="none")
    assert not second.interrupted
    assert len(second.trials()) == 6
    check_history(second.history())


def test_nobody_is_stopped_who_does_not_run(stepping, tmp_path):
    told = []

    def ask(driver, trial, result):
        if trial == 1 and not told:
            driver.requests.ask(77)
            driver.parts.view.listener = told.append

    stepping.append(ask)
    result = search(tmp_path, trials=3, tournament=False)
    assert "trial 77 is not under way and was not stopped by hand" in told
    assert (result.trials()["state"] == "COMPLETE").all()


def test_no_value_is_invented_for_the_samplers(stepping, tmp_path):
    stepping.append(stop_when(1, 6))
    path = search(tmp_path, trials=4, tournament=False).path
    run = RunDir.open(path)
    space = rltune.Space.from_dict(run.spec["space"])
    study = open_study(run.study_path, space)
    trials = study._database.trials
    seen = {trial.number for trial in for_complete(trials, (), [False])}
    assert seen == {0, 2, 3}  # to those that know complete trials only, it is not there
    mine = next(trial for trial in for_tpe(trials, [False]) if trial.number == 1)
    assert max(mine.intermediate_values) == 600  # TPE knows up to where its value goes
    assert mine.value == mine.intermediate_values[600]
    study.close()


def test_the_command_asks_only_a_search_that_runs(stepping, tmp_path, capsys):
    def ask(driver, trial, result):
        if trial == 1 and result.iteration == 4:
            codes.append(main(["stop", str(driver.parts.run.path), "--trial", "1"]))
            assert main(["stop", str(driver.parts.run.path), "--trial", "77"]) == 2
        if trial == 2 and len(codes) == 1:
            driver.parts.recorder.write_trials_table(force=True)
            codes.append(main(["stop", str(driver.parts.run.path), "--trial", "1"]))

    codes = []
    stepping.append(ask)
    result = search(tmp_path, trials=3, tournament=False)
    assert codes == [0, 2]
    said = capsys.readouterr()
    assert "Asked to stop trial 1" in said.out
    assert "--trial 77: it is not there, at least not yet; only one that runs" in said.err
    assert "--trial 1: it is PRUNED; only one that runs can be stopped" in said.err
    assert result.trials()["reason"].iloc[1].startswith(BY_HAND)
    assert main(["stop", str(result.path)]) == 2
    assert "is not running" in capsys.readouterr().err


def test_requests_are_files_and_others_are_left_alone(tmp_path):
    requests = StopRequests(tmp_path)
    requests.forget()
    assert requests.pending() == []
    (tmp_path / "requests").mkdir()
    for name in ("notes.txt", "stop-x", "stop-", "stopped"):
        (tmp_path / "requests" / name).touch()
    requests.ask(3)
    requests.ask(12)
    requests.ask()
    requests._due = 0
    assert requests.pending()[-1] is None
    requests._due = 0
    assert set(requests.pending()) == {3, 12, None}
    assert requests.pending() == []  # not so soon again
    requests.done(3)
    requests.forget()
    assert len(list((tmp_path / "requests").iterdir())) == 4


def test_a_training_is_no_search(tmp_path, capsys):
    RunDir.create(tmp_path / "run", {}, kind="train")
    assert main(["stop", str(tmp_path / "run")]) == 2
    assert "is a training" in capsys.readouterr().err
