"""Searches from end to end, with real Ray, a real study and a real run directory."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import rltune
import yaml
from rltune.agents.errors import StorageError, UserError
from rltune.cli import main
from rltune.driver import Driver
from wandb_files import offline_runs

HERE = Path(__file__).parent
SPACE: dict[str, Any] = {"space": {"quality": {"uniform": [0.0, 1.0]}}}


@pytest.fixture(scope="module", autouse=True)
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Ray for all searches of this module: starting it costs seconds."""
    from rltune.launch import ray_session

    # Set before Ray starts, so that the workers have it.
    os.environ["TOY_FOLDER"] = str(tmp_path_factory.mktemp("toy"))
    with ray_session():
        yield


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the toy agent importable, here and in the workers."""
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))


def search(folder: Path, space: dict[str, Any] = SPACE, **options: Any) -> rltune.SearchResult:
    values = {"budget": 900, "trials": 6, "wandb": "off", "screen": "none", "name": "run"} | options
    return rltune.Search("toy:ToyAgent", "toy:ToyEnv", space, storage_path=folder, **values).run()


def check_history(frame: pd.DataFrame) -> None:
    """No row is missing, none is doubled."""
    for _, rows in frame.groupby(["trial", "seed"]):
        assert list(rows["iteration"]) == list(range(1, len(rows) + 1))
        assert rows["env_steps"].is_monotonic_increasing


def test_a_search_leaves_what_it_promises(tmp_path: Path) -> None:
    result = search(tmp_path, trials=8)
    trials = result.trials()
    assert len(trials) == 8
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    assert trials.loc[0, "origin"] == "default"
    assert trials.loc[0, "config.quality"] == 0.5
    history = result.history()
    check_history(history)
    assert {"mean_reward", "best_reward", "episode_reward", "step", "time"} <= set(history)
    assert set(history.loc[history.role == "tune", "seed"]) == {0}
    assert set(history.loc[history.role == "test", "seed"]) == {100, 101, 102, 103, 104}
    assert len(result.episodes()) > 0
    best = trials.loc[trials["objective"].idxmax()]
    assert result.best is not None
    assert result.best["quality"] == pytest.approx(best["config.quality"])
    assert result.answer is not None
    assert result.answer["winner"] == best["trial"]
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{result.path}/study.db")
    assert {t.state.name for t in study.trials} <= {"COMPLETE", "PRUNED"}
    command = (result.path / "best" / "command.txt").read_text()
    assert command.startswith("rltune train toy:ToyAgent --env toy:ToyEnv -n 900 --quality ")
    assert (result.path / "best" / "checkpoint.pt").exists()


def test_a_replay_decides_as_the_search_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = search(tmp_path, trials=24, tournament=False, objective="best:2").path
    again = rltune.replay(path)
    trials, history = rltune.open(path).trials(), rltune.open(path).history()
    for trial, rows in history.groupby("trial"):
        pairs = rows["eval_return"].rolling(2, min_periods=1).mean()
        best = max(pairs[1:]) if len(pairs) > 1 else pairs.iloc[0]
        assert trials.loc[trial, "objective"] == pytest.approx(best)
    stopped = trials[trials["state"] == "PRUNED"]
    assert len(stopped) > 5
    assert [fate.trial for fate in again.fates if fate.stopped_at] == list(stopped["trial"])
    assert all(fate.same for fate in again.fates)
    assert again.env_steps == again.recorded_env_steps == trials["budget_reached"].sum()
    complete = trials[trials["state"] == "COMPLETE"]
    assert again.best == complete.loc[complete["objective"].idxmax(), "trial"]

    strict = rltune.replay(path, "asha", {"reduction_factor": 6})
    assert strict.env_steps < again.env_steps
    free = rltune.replay(path, "none")
    assert [fate.trial for fate in free.fates if fate.unknown] == list(stopped["trial"])

    assert main(["replay", str(path), "--scheduler", "none"]) == 0
    text = capsys.readouterr().out
    assert f"decided alike   {24 - len(stopped)} of 24" in text
    assert main(["replay", str(path), "--scheduler", "ahsa"]) == 2
    assert "asha" in capsys.readouterr().err


LUCKY = {"space": {"quality": {"uniform": [0.0, 1.0]}}, "fixed": {"luck": 0.1}}


def test_racing_gives_survivors_further_seeds(tmp_path: Path) -> None:
    path = search(tmp_path, LUCKY, trials=20, tournament=False, seeds="racing").path
    run = rltune.open(path)
    trials, history = run.trials(), run.history()
    check_history(history)
    rungs = {100: [0], 300: [0, 1], 900: [0, 1, 2]}
    for _, trial in trials.iterrows():
        mine = history[history["trial"] == trial["trial"]]
        assert list(trial["seeds"]) == rungs[trial["rung"]]
        reached = mine.groupby("seed")["env_steps"].max()
        assert set(reached) == {trial["rung"]}
        assert trial["env_steps"] == reached.sum()
        ends = [rows["eval_return"].tail(3).mean() for _, rows in mine.groupby("seed")]
        assert list(trial["seed_objectives"]) == pytest.approx(ends)
        assert trial["objective"] == pytest.approx(np.mean(ends))
    assert set(trials["rung"]) == {100, 300, 900}
    complete = trials[trials["state"] == "COMPLETE"]
    assert list(complete["rung"]) == [900] * len(complete)
    again = rltune.replay(path)
    assert all(fate.same for fate in again.fates)


def test_any_metric_may_be_tuned(tmp_path: Path) -> None:
    result = search(tmp_path, trials=2, tournament=False, metric="-loss", objective="last")
    history = result.history().set_index(["trial", "env_steps"])
    for _, trial in result.trials().iterrows():
        assert trial["objective"] == -history.loc[(trial["trial"], 900), "loss"]


def test_fixed_seeds_count_together(tmp_path: Path) -> None:
    result = search(tmp_path, LUCKY, trials=6, tournament=False, seeds=2, first_seed=5)
    for _, trial in result.trials().iterrows():
        assert list(trial["seeds"]) == [5, 6]
        assert trial["objective"] == pytest.approx(np.mean(trial["seed_objectives"]))
    assert result.best is not None
    command = (result.path / "best" / "command.txt").read_text()
    assert "--seed 5" in command


def test_a_search_goes_on_where_another_ended(tmp_path: Path) -> None:
    options = {"budget": 90, "tournament": False, "concurrency": 1}
    first = search(tmp_path, name="first", trials=6, sampler="random", **options)
    best = first.trials().loc[first.trials()["objective"].idxmax()]
    path = search(tmp_path, name="second", trials=8, warm_start=[first.path], **options).path
    assert best["hash"] in set(rltune.open(path).trials()["hash"])

    about = yaml.safe_load((path / "run.yaml").read_text())
    assert about["spec"]["warm_start"] == [str(first.path)]
    [taken] = about["warm_start"]
    assert (taken["run"], taken["trials"], taken["shared"]) == ("first", 6, ["quality"])
    shutil.rmtree(first.path)  # what was taken over lies in the run directory
    table = rltune.resume(path, screen="none", trials=10).trials()
    assert len(table) == 10
    assert table["hash"].is_unique


def test_wandb_has_every_training_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    result = search(tmp_path, trials=5, test_seeds=2, wandb="auto")
    runs = offline_runs(result.path)
    searched = {name: run for name, run in runs.items() if run["run"].job_type != "search"}
    history = result.history()
    assert len(searched) == len(history.groupby(["trial", "seed"]))
    for _, rows in history.groupby(["trial", "seed"]):
        trial, seed, role = rows.iloc[0][["trial", "seed", "role"]]
        run = searched[f"trial-{trial}" if role == "tune" else f"trial-{trial}-seed-{seed}"]
        assert run["run"].run_group == "run"
        assert run["run"].job_type == role
        assert [row["env_steps"] for row in run["history"]] == list(rows["env_steps"])
        assert run["summary"]["state"] in ("COMPLETE", "PRUNED")
        assert run["exit"] == 0
    whole = runs["run"]
    assert whole["exit"] == 0
    assert result.answer is not None
    assert whole["summary"]["best_trial"] == result.answer["winner"]


POPULATION: dict[str, Any] = {
    "agent": "toy:DescentAgent",
    "env": "toy:ToyEnv",
    "space": {"space": {"rate": {"log": [1e-3, 1.0]}}},
    "budget": 300,
    "evaluations": 6,
    "objective": "last",
    "scheduler": "pbt",
    "scheduler_options": {"quantile": 0.4},
    "trials": 5,
    "screen": "none",
    "name": "run",
}


def test_a_population_ends_with_a_schedule_that_can_be_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    result = rltune.Search(storage_path=tmp_path, **POPULATION).run()
    check_history(result.history())
    assert result.answer is not None
    winner = next(
        one for one in result.answer["ranking"] if one["trial"] == result.answer["winner"]
    )
    assert winner["changes"]
    assert "on the way" in " ".join(result.answer["sentences"])
    schedule = yaml.safe_load((result.path / "best" / "schedule.yaml").read_text())
    assert schedule == winner["changes"]
    assert main(["show", str(result.path), "--plain"]) == 0
    assert "best/schedule.yaml" in capsys.readouterr().out

    seed = max(winner["scores"], key=winner["scores"].get)
    command = shlex.split((result.path / "best" / "command.txt").read_text())[1:]
    assert command[-2:] == ["--seed", str(seed)]
    more = ["--storage-path", str(tmp_path), "--name", "again", "--wandb", "off", "--plain"]
    assert main([*command, *more]) == 0
    again = rltune.open(tmp_path / "again").history()
    assert again["eval_return"].iloc[-1] == winner["scores"][seed]
    tested = result.history().query(f"trial == {winner['trial']} and seed == {seed}")
    assert set(again["rate"].dropna()) == set(tested["rate"].dropna())

    # Each member has one run, whatever it took over, with the values that it ended with.
    runs = {name: one for name, one in offline_runs(result.path).items() if "seed" not in name}
    assert len(runs) == 6
    for trial, rows in result.history().query("role == 'tune'").groupby("trial"):
        run = runs[f"trial-{trial}"]
        assert [row["env_steps"] for row in run["history"]] == list(rows["env_steps"])
        assert run["summary"]["state"] == "COMPLETE"
        assert run["exit"] == 0


@pytest.mark.slow
def test_a_killed_population_goes_on(tmp_path: Path) -> None:
    options = {**POPULATION, "wandb": "off", "tournament": False, "budget": 3000}
    whole = rltune.Search(storage_path=tmp_path / "whole", **options).run()
    code = "import rltune\nrltune.Search(storage_path={!r}, **{!r}).run()"
    code = code.format(str(tmp_path), {**options, "screen": "plain"})
    process = subprocess.Popen([sys.executable, "-c", code], cwd=HERE, start_new_session=True)
    while not has_changed(tmp_path / "run"):
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(0.2)
    kill(process)
    result = rltune.resume(tmp_path / "run", screen="none")
    check_history(result.history())
    columns = ["trial", "state", "objective", "schedule"]
    pd.testing.assert_frame_equal(result.trials()[columns], whole.trials()[columns])


def has_changed(run: Path) -> bool:
    """Whether a population has changed its hyperparameters; reads only, as it may be being made."""
    with contextlib.suppress(sqlite3.OperationalError):
        database = sqlite3.connect(f"file:{run}/study.db?mode=ro", uri=True)
        with contextlib.closing(database):
            rows = database.execute("SELECT value_json FROM trial_user_attributes").fetchall()
        return any("schedule" in row[0] for row in rows)
    return False


def test_the_default_wins_when_nothing_beats_it(tmp_path: Path) -> None:
    worse = {"space": {"quality": {"uniform": [0.0, 0.4]}}}
    result = search(tmp_path, worse, trials=4, test_seeds=3)
    assert result.answer is not None
    assert result.answer["beats_default"] is False
    assert result.best is not None
    assert result.best["quality"] == 0.5


def test_failures_end_one_trial_each(tmp_path: Path) -> None:
    modes = ["nan", "raise", "kill", "raise_once", "kill_once"]
    space = {
        **SPACE,
        "fixed": {"at": 40},
        "start": [{"quality": 0.9 + i / 100, "mode": mode} for i, mode in enumerate(modes)],
    }
    result = search(tmp_path, space, trials=8, tournament=False, retries=1)
    trials = result.trials().set_index("trial")
    mode = trials["config.mode"]
    by_mode = {m: trials[mode == m].iloc[0] for m in modes}
    assert by_mode["nan"]["state"] == "FAIL"
    assert "non-finite loss" in by_mode["nan"]["reason"]
    assert by_mode["raise"]["state"] == "FAIL"
    assert by_mode["raise"]["reason"] == "error: RuntimeError: the environment broke"
    assert "Traceback" in by_mode["raise"]["traceback"] or "toy.py" in by_mode["raise"]["traceback"]
    assert by_mode["raise"]["retries"] == 1
    assert by_mode["kill"]["state"] == "FAIL"
    assert by_mode["kill"]["reason"].startswith("worker died")
    for once in ("raise_once", "kill_once"):
        assert by_mode[once]["state"] != "FAIL"
        assert by_mode[once]["retries"] == 1
    assert len(trials) == 8
    check_history(result.history())
    states = {t["state"] for _, t in trials.iterrows()}
    assert "RUNNING" not in states


def test_stop_rules_name_what_ails_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = {
        "frozen": ("PRUNED", "return frozen: -1.0"),
        "collapsed": ("PRUNED", "entropy collapse: -1e+03 < -"),
        "thrown": ("PRUNED", "KL blow-up: 7 > 1 nats an update at "),
        "dead_values": ("PRUNED", "dead value function: explained variance -0.5 at "),
        "exploding": ("FAIL", "diverged: exploding critic_loss, 1e+12 at "),
    }
    start = [{"quality": 0.9, "mode": mode, "at": 15} for mode in reasons]
    more = {"trials": 8, "scheduler": "none", "tournament": False}
    trials = search(tmp_path, {**SPACE, "start": start}, **more).trials()
    for mode, (state, reason) in reasons.items():
        (trial,) = trials[trials["config.mode"] == mode].to_dict("records")
        assert trial["state"] == state
        assert trial["reason"].startswith(reason)
        assert trial["budget_reached"] < 900
        assert (trial["objective"] < 0) == (state == "PRUNED")
    assert set(trials.loc[trials["config.mode"] == "ok", "state"]) == {"COMPLETE"}
    main(["show", str(tmp_path / "run")])
    assert "entropy collapse" in capsys.readouterr().out

    free = search(tmp_path, {**SPACE, "start": start}, **more, name="free", stop_rules=False)
    assert set(free.trials()["state"]) == {"COMPLETE"}


def test_a_resumed_search_stops_a_trial_where_an_uninterrupted_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {**SPACE, "start": [{"quality": 0.9, "mode": "collapsed", "at": 15}]}
    more = {"trials": 2, "scheduler": "none", "tournament": False, "concurrency": 1}
    whole = search(tmp_path, space, **more, name="whole").trials()
    assert whole["reason"][1].startswith("entropy collapse: ")

    judge = Driver._judge

    def stopping(self: Driver, flight: Any, result: Any) -> bool:
        ends = judge(self, flight, result)
        if flight.task["number"] == 1 and result.iteration == 3:  # the second bad row
            self.request_stop()
        return ends

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_judge", stopping)
        cut = search(tmp_path, space, **more, name="cut")
    assert cut.interrupted
    assert list(cut.trials()["state"]) == ["COMPLETE", "RUNNING"]
    resumed = rltune.resume(tmp_path / "cut", screen="none").trials()
    assert list(resumed["reason"]) == list(whole["reason"])


@pytest.mark.slow
def test_an_agent_whose_policy_collapses_is_stopped(tmp_path: Path) -> None:
    small = {"n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 4}
    space = {
        "space": {"learning_rate": {"log": [1e-4, 1e-3]}},
        "fixed": small,
        "start": [{"learning_rate": 1.0}, {"learning_rate": 1e-3}],
    }
    options = {"budget": 9000, "trials": 4, "wandb": "off", "screen": "none"}
    search = rltune.Search(
        "ppo",
        "CartPole-v1",
        space,
        **options,
        name="run",
        scheduler="none",
        tournament=False,
        storage_path=tmp_path,
    )
    trials = search.run().trials()
    broken = trials["config.learning_rate"] == 1.0
    assert trials.loc[broken, "reason"].iloc[0].startswith("entropy collapse: ")
    assert trials.loc[broken, "state"].iloc[0] == "PRUNED"
    assert set(trials.loc[~broken, "state"]) == {"COMPLETE"}


def test_a_disk_that_fills_up_ends_the_search_and_not_its_trials(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    ballast = small_disk / "ballast"

    def fill() -> None:
        while not (small_disk / "run" / "trials.parquet").exists():
            time.sleep(0.05)
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    filler = threading.Thread(target=fill)
    filler.start()
    slow = {**SPACE, "fixed": {"sleep": 0.01}}
    with pytest.raises(StorageError, match=r"full.* go on with: rltune resume .*/run$"):
        search(small_disk, slow, trials=30, tournament=False)
    filler.join()
    ballast.unlink()
    result = rltune.resume(small_disk / "run", screen="none", trials=12)
    trials = result.trials()
    assert sorted(trials["trial"]) == list(range(12))
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    assert trials["retries"].sum() == 0
    check_history(result.history())


def test_the_time_limit_is_kept(tmp_path: Path) -> None:
    slow = {**SPACE, "fixed": {"sleep": 0.01}}
    started = time.time()
    result = search(tmp_path, slow, trials=None, time_limit=20, budget=2000, test_seeds=2)
    elapsed = time.time() - started
    assert elapsed <= 21
    assert elapsed > 10  # the time is used
    assert result.answer is not None
    assert set(result.trials()["state"]) <= {"COMPLETE", "PRUNED"}


def test_what_a_time_limit_cut_goes_on_when_there_is_time_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {**SPACE, "fixed": {"sleep": 0.01}}
    up: list[bool] = []

    def is_up(driver: Driver) -> bool:
        """The search's time, by progress: a busy machine shall not change what is tested."""
        if any(flight.env_steps >= 200 for flight in driver.flights.values()):
            up.append(True)
        return bool(up)

    monkeypatch.setattr(Driver, "_search_time_is_up", is_up)
    cut = search(tmp_path, slow, trials=2, time_limit=600, tournament=False)
    monkeypatch.undo()
    trials, before = cut.trials(), cut.history()
    ended = trials[trials["state"] != "WAITING"]
    assert len(ended)
    assert set(ended["state"]) == {"PRUNED"}
    assert all(reason.startswith("time limit at") for reason in ended["reason"])
    assert cut.best is None
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))
    result = rltune.resume(cut.path, time_limit=900, screen="none")
    trials, history = result.trials(), result.history()
    assert list(trials["state"]) == ["COMPLETE"] * 2
    assert list(trials["reason"]) == [""] * 2
    check_history(history)
    assert (history.groupby("trial")["iteration"].max() == 9).all()
    # What was done is there as it was: nothing began anew.
    kept = before.merge(history, on=["trial", "seed", "iteration", "timestamp"])
    assert len(kept) == len(before) > 0
    assert result.best is not None


def test_mistakes_are_found_before_anything_is_written(tmp_path: Path) -> None:
    for change, word in (
        ({"trials": 0}, "--trials"),
        ({"sampler": "tpee"}, "tpe"),
        ({"sampler": "cmaes"}, "at least two numeric dimensions"),
        ({"scheduler": "ahsa"}, "asha"),
        ({"budget": 0}, "--budget"),
        ({"seeds": 3, "first_seed": 98}, "overlap"),
        ({"first_seed": 109}, "overlap"),  # a test seed, should others be spared
        ({"name": "../out"}, "name"),
        ({"time_limit": "soon"}, "soon"),
        ({"nonsense": 1}, "nonsense"),
        ({"space": {"space": {"qualty": {"uniform": [0, 1]}}}}, "quality"),
    ):
        with pytest.raises(UserError, match=word):
            search(tmp_path, **change)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    search(tmp_path, trials=2, tournament=False)
    with pytest.raises(UserError, match="resume"):
        search(tmp_path, trials=2)


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import rltune
rltune.Search("toy:ToyAgent", "toy:ToyEnv", {space!r}, budget=900, trials=10, wandb="off",
              storage_path={folder!r}, name="run", screen="plain", test_seeds=2).run()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    space = {**SPACE, "fixed": {"sleep": 0.01}}
    code = SCRIPT.format(here=str(HERE), space=space, folder=str(folder))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize(
    "events", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 4]
)
def test_a_killed_search_goes_on(tmp_path: Path, events: int) -> None:
    process = start(tmp_path)
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += "trial" in line and ("finished" in line or "stopped" in line)
        if seen >= events and (events or (tmp_path / "run" / "study.db").exists()):
            break
    time.sleep(0.4)
    kill(process)
    before = rltune.open(tmp_path / "run").history()
    result = rltune.resume(tmp_path / "run", screen="none")
    history = result.history()
    check_history(history)
    trials = result.trials()
    assert list(trials["trial"]) == list(range(10))
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    # What was there before the kill is there after it.
    keys = ["trial", "seed", "iteration", "env_steps", "eval_return"]
    merged = before[keys].merge(history[keys], on=["trial", "seed", "iteration"], how="left")
    assert np.allclose(merged["env_steps_x"], merged["env_steps_y"])
    assert np.allclose(merged["eval_return_x"], merged["eval_return_y"], equal_nan=True)
    tests = history[history.role == "test"].groupby(["trial", "seed"]).size()
    assert (tests == 9).all()


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    code = [sys.executable, "-m", "rltune", "run", "toy:ToyAgent", "--env", "toy:ToyEnv"]
    code += ["--quality", "0.0", "1.0", "--sleep", "0.01", "--budget", "900", "--trials", "10"]
    code += ["--storage-path", str(tmp_path), "--name", "run", "--wandb", "off", "--plain"]
    process = subprocess.Popen(
        code, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "trial" in line and "finished" in line:
            break
    process.send_signal(signal.SIGINT)
    output = process.stdout.read()
    assert process.wait(timeout=30) == 130
    assert f"rltune resume {tmp_path / 'run'}" in output
    assert "Traceback" not in output
    result = rltune.resume(tmp_path / "run", screen="none", tournament=False)
    assert len(result.trials()) == 10
    check_history(result.history())


def test_run_yaml_tells_everything(tmp_path: Path) -> None:
    result = search(tmp_path, trials=2, tournament=False, seed=3)
    content = yaml.safe_load((result.path / "run.yaml").read_text())
    assert content["kind"] == "search"
    assert content["spec"]["seed"] == 3
    assert content["spec"]["space"]["space"] == {"quality": {"uniform": [0.0, 1.0]}}
    assert {"rltune", "ray", "optuna"} <= set(content["versions"])


@pytest.mark.slow
def test_a_trial_that_eats_the_memory_ends_alone(tmp_path: Path) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    memory = {line.split(":")[0]: int(line.split()[1]) for line in lines}  # in KiB
    used = 1 - memory["MemAvailable"] / memory["MemTotal"]
    space = {**SPACE, "fixed": {"at": 40}, "start": [{"quality": 0.9, "mode": "hog"}]}
    code = SCRIPT.format(here=str(HERE), space=space, folder=str(tmp_path))
    code = code.replace("trials=10", "trials=4, tournament=False, retries=0, concurrency=1")
    environment = {
        **os.environ,
        "TOY_FOLDER": str(tmp_path),
        # Ray's memory monitor shall act when a few GB more are in use than now.
        "RAY_memory_usage_threshold": f"{used + 3e6 / memory['MemTotal']:.4f}",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trials = rltune.open(tmp_path / "run").trials()
    failed = trials[trials["state"] == "FAIL"]
    assert list(failed["config.mode"]) == ["hog"]
    assert failed["reason"].iloc[0].startswith("out of memory")
    assert len(trials) == 4
