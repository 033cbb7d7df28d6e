"""Searches that are killed, starved, out of time, or that have trials that fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rltune
from ray.exceptions import AuthenticationError
from rltune.agents.errors import ClusterError, StorageError, UserError
from rltune.cli import main
from rltune.search.ending import Ending
from rltune.search.judging import Judge
from searching import HERE, POPULATION, SPACE, check_history, search

pytestmark = pytest.mark.usefixtures("toy_ray", "toy")


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


def test_failures_end_one_trial_each(tmp_path: Path) -> None:
    modes = ["nan", "raise", "kill", "raise_once", "kill_once", "mistake"]
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
    assert by_mode["mistake"]["state"] == "FAIL"
    assert by_mode["mistake"]["reason"] == "error: no such thing; write another"
    assert "Traceback" in by_mode["mistake"]["traceback"]
    assert by_mode["mistake"]["retries"] == 0  # only the user can mend it
    for once in ("raise_once", "kill_once"):
        assert by_mode[once]["state"] != "FAIL"
        assert by_mode[once]["retries"] == 1
    assert len(trials) == 8
    check_history(result.history())
    states = {t["state"] for _, t in trials.iterrows()}
    assert "RUNNING" not in states


def test_what_never_works_ends_the_search(tmp_path: Path) -> None:
    said = r"trials 0 and 1 ended before any result with KeyError: 'position' \(toy.py, line \d+\)"
    with pytest.raises(UserError, match=said):
        search(tmp_path, env="toy:BrokenEnv", trials=30, retries=0)
    trials = rltune.open(tmp_path / "run").trials()
    assert trials["state"].tolist()[:2] == ["FAIL", "FAIL"]
    assert len(trials) < 5


def test_a_deleted_search_advises_no_resume_and_leaves_its_name_free(tmp_path: Path) -> None:
    def delete() -> None:
        while not list((tmp_path / "run").glob("trials/*/*.pt")):
            time.sleep(0.05)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)  # what was written meanwhile

    thread = threading.Thread(target=delete, daemon=True)
    thread.start()
    said = r"run was deleted while the search ran: .* Start it anew\."
    with pytest.raises(StorageError, match=said) as caught:
        search(tmp_path, trials=None, time_limit=120)
    assert "resume" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_workers_that_hang_are_killed_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A simulator that waits for ever, as many do, costs neither the search nor its slot."""
    monkeypatch.setattr("rltune.search.liveness.HANGS_AFTER", 20.0)  # more than a worker's start
    monkeypatch.setattr("rltune.search.liveness.HANGS_FACTOR", 1.5)
    start = [{"quality": 0.9, "mode": "hang_once"}, {"quality": 0.8, "mode": "hang"}]
    space = {**SPACE, "fixed": {"at": 40}, "start": start}
    result = search(tmp_path, space, trials=5, tournament=False, retries=1, screen="plain")
    trials = result.trials().set_index("config.mode")
    assert trials.loc["hang_once", "state"] != "FAIL"
    assert trials.loc["hang_once", "retries"] == 1
    assert trials.loc["hang", "state"] == "FAIL"
    assert trials.loc["hang", "reason"].startswith("hung: nothing came of it for 0:")
    assert len(trials) == 5
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED", "FAIL"}
    check_history(result.history())
    assert "trial 1: hung: nothing came of it" in capsys.readouterr().out


@pytest.mark.slow
def test_a_worker_that_hangs_does_not_hold_up_the_time_limit(tmp_path: Path) -> None:
    started = time.time()
    space = {**SPACE, "fixed": {"at": 40}, "start": [{"mode": "hang"}] * 2}
    result = search(tmp_path, space, trials=None, time_limit=20, tournament=False)
    assert 10 < time.time() - started < 30  # both workers hang
    states = result.trials().groupby("config.mode")["state"].agg(set)
    assert states["hang"] == {"PRUNED"}
    assert "COMPLETE" in states.drop("hang").iloc[0]


@pytest.mark.parametrize(
    "where", ["ray.tune.impl.tuner_internal.TunerInternal.fit", "rltune.search.driver.Driver.obey"]
)
def test_a_lost_cluster_is_a_sentence(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray aborts the driver, or raises first, after the head's control process has died."""

    def lost_there(caller: Any) -> None:
        raise AuthenticationError("WrongClusterID: the head has restarted. Ensure that ...")

    monkeypatch.setattr(where, lost_there)
    lost = "the cluster is lost .WrongClusterID: the head has restarted.. When it is back, go on "
    with pytest.raises(ClusterError, match=f"{lost}with: rltune resume {tmp_path}/run"):
        search(tmp_path)


def test_a_metric_that_nobody_reports_ends_the_search_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--env", "toy:ToyEnv", "--storage-path", str(tmp_path), "--name", "run"]
    how = ["--trials", "50", "--budget", "900", "--plain", "--wandb", "off", "--sleep", "0"]
    code = main(["run", "toy:ToyAgent", *where, *how, "--metric", "success_rate"])
    said = capsys.readouterr().err
    assert code == 2
    assert "--metric: no metric 'success_rate' was reported; there are " in said
    assert "eval_length, eval_return" in said
    assert "Traceback" not in said
    assert len(rltune.open(tmp_path / "run").trials()) < 10


@pytest.mark.usefixtures("no_ray")
def test_stop_rules_name_what_ails_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = {
        "frozen": ("PRUNED", "return frozen: -"),
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


@pytest.mark.usefixtures("no_ray")
def test_a_resumed_search_stops_a_trial_where_an_uninterrupted_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {**SPACE, "start": [{"quality": 0.9, "mode": "collapsed", "at": 15}]}
    more = {"trials": 2, "scheduler": "none", "tournament": False, "concurrency": 1}
    whole = search(tmp_path, space, **more, name="whole").trials()
    assert whole["reason"][1].startswith("entropy collapse: ")

    judge = Judge.judge

    def stopping(self: Judge, job: Any, result: Any) -> bool:
        ends = judge(self, job, result)
        if job.number == 1 and result.iteration == 3:  # the second bad row
            self.ending.request_stop()
        return ends

    with monkeypatch.context() as patch:
        patch.setattr(Judge, "judge", stopping)
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
    options = {"budget": 9000, "trials": 4, "wandb": "off", "report": False, "screen": "none"}
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
    # Which rule sees it first depends on the processor's rounding.
    reason = trials.loc[broken, "reason"].iloc[0]
    assert reason.startswith(("entropy collapse: ", "KL blow-up: "))
    assert trials.loc[broken, "state"].iloc[0] == "PRUNED"
    assert set(trials.loc[~broken, "state"]) == {"COMPLETE"}


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_time_limit_is_kept(tmp_path: Path) -> None:
    slow = {**SPACE, "fixed": {"sleep": 0.01}}
    started = time.time()
    result = search(tmp_path, slow, trials=None, time_limit=20, budget=2000, test_seeds=2)
    elapsed = time.time() - started
    assert elapsed <= 21
    assert elapsed > 10  # the time is used
    assert result.answer is not None
    assert set(result.trials()["state"]) <= {"COMPLETE", "PRUNED"}


@pytest.mark.usefixtures("no_ray")
@pytest.mark.slow
def test_a_limit_that_is_too_short_for_a_tournament_goes_to_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"trials": None, "time_limit": 15, "budget": 8000}  # 16 s
    started = time.time()
    result = search(tmp_path, agent="toy:SlowAgent", screen="plain", **options)
    said = capsys.readouterr().out
    assert "0:15 is too short to train finalists again" in said
    history, answer = result.history(), result.answer
    assert set(history["role"]) == {"tune"}
    assert history["timestamp"].max() > started + 9  # where a tournament would have begun
    check_history(history)
    assert answer is not None
    assert answer["winner"] is None
    assert "there is no answer" in answer["sentences"][0]


@pytest.mark.usefixtures("no_ray")
def test_what_a_time_limit_cut_goes_on_when_there_is_time_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {**SPACE, "fixed": {"sleep": 0.01}}
    up: list[bool] = []

    def is_up(ending: Ending) -> bool:
        """The search's time, by progress: a busy machine shall not change what is tested."""
        if any(job.env_steps >= 200 for job in ending.running.jobs.values()):
            up.append(True)
        return bool(up)

    monkeypatch.setattr(Ending, "search_time_is_up", is_up)
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


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import rltune
rltune.Search("toy:ToyAgent", "toy:ToyEnv", {space!r}, budget=900, trials=6, wandb="off",
              storage_path={folder!r}, report=False, name="run", screen="plain", test_seeds=2).run()
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
    "events", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 3]
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
    assert list(trials["trial"]) == list(range(6))
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    # What was there before the kill is there after it.
    keys = ["trial", "seed", "iteration", "env_steps", "eval_return"]
    merged = before[keys].merge(history[keys], on=["trial", "seed", "iteration"], how="left")
    assert np.allclose(merged["env_steps_x"], merged["env_steps_y"])
    assert np.allclose(merged["eval_return_x"], merged["eval_return_y"], equal_nan=True)
    tests = history[history.role == "test"].groupby(["trial", "seed"]).size()
    assert (tests == 9).all()


def to_all(process: subprocess.Popen[str]) -> None:
    """As Slurm, systemd and timeout do it: Ray's processes get it, too."""
    os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(lambda process: process.send_signal(signal.SIGINT), id="ctrl-c"),
        pytest.param(to_all, id="SIGTERM to all", marks=pytest.mark.slow),
    ],
)
def test_a_stop_is_clean_and_says_how_to_go_on(
    stop: Callable[[subprocess.Popen[str]], None], tmp_path: Path
) -> None:
    code = [sys.executable, "-m", "rltune", "run", "toy:ToyAgent", "--env", "toy:ToyEnv"]
    code += ["--quality", "0.0", "1.0", "--sleep", "0.01", "--budget", "900", "--trials", "5"]
    code += ["--storage-path", str(tmp_path), "--name", "run", "--wandb", "off", "--plain"]
    code += ["--no-report"]
    process = subprocess.Popen(
        code, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if "trial" in line and "finished" in line:
            break
    stop(process)
    assert process.wait(timeout=40) == 130
    output = process.stdout.read()
    assert f"rltune resume {tmp_path / 'run'}" in output
    assert "Traceback" not in output
    result = rltune.resume(tmp_path / "run", screen="none", tournament=False)
    assert len(result.trials()) == 5
    check_history(result.history())


@pytest.mark.slow
def test_a_trial_that_eats_the_memory_ends_alone(tmp_path: Path) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    memory = {line.split(":")[0]: int(line.split()[1]) for line in lines}  # in KiB
    used = 1 - memory["MemAvailable"] / memory["MemTotal"]
    space = {**SPACE, "fixed": {"at": 40}, "start": [{"quality": 0.9, "mode": "hog"}]}
    code = SCRIPT.format(here=str(HERE), space=space, folder=str(tmp_path))
    code = code.replace("trials=6", "trials=4, tournament=False, retries=0, concurrency=1")
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
