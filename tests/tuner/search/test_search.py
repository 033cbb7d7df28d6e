"""Searches from end to end, with real Ray, a real study and a real run directory."""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import rltune
import yaml
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.execution.messages import Result
from rltune.planning.bounds import most_env_steps
from rltune.search.jobs import RunningJob
from searching import POPULATION, SPACE, check_history, search
from serial import Serial
from wandb_files import offline_runs

pytestmark = pytest.mark.usefixtures("toy_ray", "toy")


def test_what_only_some_searches_need_does_not_hold_up_their_start() -> None:
    code = "import sys, rltune.search.driver, rltune.samplers.earlier_runs, rltune.execution.tune\n"
    code += "late = {'scipy.stats', 'scipy.optimize', 'rltune.analysis.importance.importances'}\n"
    code += "print(late & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n", done.stderr


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

    assert main(["replay", str(path)]) == 0
    text = capsys.readouterr().out
    proposals = (trials["origin"] == "sampler").sum()
    assert f"proposed alike  {proposals} of {proposals}" in text
    assert main(["replay", str(path), "--scheduler", "none"]) == 0
    text = capsys.readouterr().out
    assert f"decided alike   {24 - len(stopped)} of 24" in text
    assert main(["replay", str(path), "--scheduler", "ahsa"]) == 2
    assert "asha" in capsys.readouterr().err


@pytest.mark.usefixtures("no_ray")
def test_equal_values_are_decided_and_replayed(tmp_path: Path) -> None:
    space = {"space": {"sleep": {"uniform": [0.0, 1e-6]}}, "fixed": {"quality": 0.5}}
    path = search(tmp_path, space, trials=20, tournament=False, eval_episodes=3).path
    trials = rltune.open(path).trials()
    assert trials.loc[trials["state"] == "COMPLETE", "objective"].nunique() == 1
    stopped = trials[trials["state"] == "PRUNED"]
    assert 8 <= len(stopped) <= 16
    assert stopped["reason"].str.contains("like the best third").all()
    assert all(fate.same for fate in rltune.replay(path).fates)
    search_again = rltune.resume(path, trials=40, screen="none")
    assert len(search_again.trials()) == 40
    assert all(fate.same for fate in rltune.replay(path).fates)


@pytest.mark.usefixtures("no_ray")
def test_a_search_takes_no_more_than_it_says(tmp_path: Path) -> None:
    space = {
        "space": {"n_steps": {"choice": [48, 64]}, "n_envs": {"choice": [2, 3]}},
        "fixed": {"n_epochs": 1, "net_arch": [4]},
    }
    options: dict[str, Any] = {"scheduler": "none", "finalists": 1, "test_seeds": 1}
    kind = {"agent": "ppo", "env": "Acrobot-v1", "budget": 200, "trials": 3, "evaluations": 1}
    planned = rltune.Search("ppo", "Acrobot-v1", space, budget=200, trials=3, **options)
    most = most_env_steps(planned.spec, planned.space, planned.starts)
    result = search(tmp_path, space, **kind, **options, eval_episodes=1)
    history = result.history()
    ends = history.groupby(["trial", "seed"])["env_steps"].max()
    assert most == 5 * 201
    assert set(ends) <= {200, 201}
    assert ends.sum() <= most


LUCKY = {"space": {"quality": {"uniform": [0.0, 1.0]}}, "fixed": {"luck": 0.1}}


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_racing_gives_the_best_further_seeds(tmp_path: Path) -> None:
    path = search(tmp_path, LUCKY, trials=30, tournament=False, seeds="racing").path
    run = rltune.open(path)
    trials, history = run.trials(), run.history()
    check_history(history)
    counts: list[int] = []
    for _, trial in trials.iterrows():
        mine = history[history["trial"] == trial["trial"]]
        if trial["rung"] == 900:
            counts.append(len(trial["seeds"]))
            assert list(trial["seeds"]) in ([0], [0, 1, 2])
        else:
            assert list(trial["seeds"]) == [0]
        reached = mine.groupby("seed")["env_steps"].max()
        assert set(reached) == {trial["rung"]}
        assert trial["env_steps"] == reached.sum()
        ends = [rows["eval_return"].tail(3).mean() for _, rows in mine.groupby("seed")]
        assert list(trial["seed_objectives"]) == pytest.approx(ends)
        assert trial["objective"] == pytest.approx(np.mean(ends))
    assert set(trials["rung"]) == {100, 300, 900}
    assert set(counts) == {1, 3}
    assert set(trials["config.luck"]) == {0.1}, "what is fixed holds for the defaults, too"
    complete = trials[trials["state"] == "COMPLETE"]
    assert list(complete["rung"]) == [900] * len(complete)
    again = rltune.replay(path)
    assert all(fate.same for fate in again.fates)


def test_a_trial_that_races_when_the_time_is_up_counts_with_the_seeds_it_has(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"space": LUCKY, "budget": 900, "trials": 12, "seeds": "racing:4"}
    whole = Serial(tmp_path / "whole", 1, agent="toy:ToyAgent", env="toy:ToyEnv", **options)
    # Results so far, a trial with two of four seeds, the mean of all their evaluations.
    racing: list[tuple[int, int, float]] = []
    judge, results = whole.driver.judge.judge, itertools.count(1)

    def watch(job: RunningJob, result: Result) -> bool:
        n, runs = next(results), whole.driver.running.trials[job.number].seeds.runs
        ends = judge(job, result)
        means = [run.objective_mean or 0.0 for run in runs.values() if run.done]
        if len(means) == 2:
            racing.append((n, job.number, float(np.mean(means))))
        return ends

    whole.driver.judge.judge = watch  # type: ignore[method-assign]
    whole.go_on()
    n, number, mean = racing[0]
    expected = whole.study.trials()[number].attrs["seed_objectives"]
    assert len(expected) == 4

    folder = tmp_path / "cut"
    Serial(folder, 1, agent="toy:ToyAgent", env="toy:ToyEnv", **options).go_on(n + 1)
    cut = Serial(folder, 1)
    cut.driver.finish()
    trial = cut.study.trials()[number]
    assert trial.state == "COMPLETE"
    assert [cut.history.last_iteration(number, seed) for seed in range(4)] == [9, 9, 1, 0]
    assert trial.attrs["seeds"] == [0, 1]
    assert trial.attrs["seed_objectives"] == expected[:2]
    assert trial.value == pytest.approx(np.mean(expected[:2]))
    assert trial.attrs["objective_mean"] == pytest.approx(mean)
    cut.history.close()
    cut.study.close()


@pytest.mark.usefixtures("no_ray")
def test_any_metric_may_be_tuned(tmp_path: Path) -> None:
    result = search(tmp_path, trials=2, tournament=False, metric="-loss", objective="last")
    history = result.history().set_index(["trial", "env_steps"])
    for _, trial in result.trials().iterrows():
        assert trial["objective"] == -history.loc[(trial["trial"], 900), "loss"]


@pytest.mark.usefixtures("no_ray")
def test_the_success_rate_may_be_tuned(tmp_path: Path) -> None:
    space = {**SPACE, "start": [{"quality": 0.6}]}
    how = {"trials": 2, "tournament": False, "metric": "success_rate", "objective": "last"}
    result = search(tmp_path, space, env="toy:GoalEnv", env_kwargs={"goal": 0.55}, **how)
    # The default's actions of 0.5 miss the goal.
    assert list(result.trials()["objective"]) == [0.0, 1.0]
    last = result.history().groupby("trial").last()
    assert list(last["success_rate"]) == [0.0, 1.0]


@pytest.mark.usefixtures("no_ray")
def test_fixed_seeds_count_together(tmp_path: Path) -> None:
    result = search(tmp_path, LUCKY, trials=6, tournament=False, seeds=2, first_seed=5)
    for _, trial in result.trials().iterrows():
        assert list(trial["seeds"]) == [5, 6]
        assert trial["objective"] == pytest.approx(np.mean(trial["seed_objectives"]))
    assert result.best is not None
    command = (result.path / "best" / "command.txt").read_text()
    assert "--seed 5" in command


@pytest.mark.usefixtures("no_ray")
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
        assert run["run"].run_group == ("run" if role == "tune" else f"run trial-{trial}")
        assert run["run"].job_type == role
        assert [row["env_steps"] for row in run["history"]] == list(rows["env_steps"])
        assert run["summary"]["state"] in ("COMPLETE", "PRUNED")
        assert run["exit"] == 0
    whole = runs["run"]
    assert whole["exit"] == 0
    assert result.answer is not None
    assert whole["summary"]["best_trial"] == result.answer["winner"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_a_population_ends_with_a_schedule_that_can_be_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    result = rltune.Search(storage_path=tmp_path, **POPULATION).run()
    check_history(result.history())
    assert result.answer is not None
    winner = next(
        ranked for ranked in result.answer["ranking"] if ranked["trial"] == result.answer["winner"]
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
    assert not any(word.startswith("/") for word in command), "it runs on another machine, too"
    (result.path / "best" / "schedule.yaml").unlink()  # and without the run
    more = ["--storage-path", str(tmp_path), "--name", "again", "--wandb", "off", "--plain"]
    assert main([*command, *more]) == 0
    again = rltune.open(tmp_path / "again").history()
    assert again["eval_return"].iloc[-1] == winner["scores"][seed]
    tested = result.history().query(f"trial == {winner['trial']} and seed == {seed}")
    assert set(again["rate"].dropna()) == set(tested["rate"].dropna())

    # Each member has one run, whatever it took over, with the values that it ended with.
    runs = {name: entry for name, entry in offline_runs(result.path).items() if "seed" not in name}
    assert len(runs) == 6
    for trial, rows in result.history().query("role == 'tune'").groupby("trial"):
        run = runs[f"trial-{trial}"]
        assert [row["env_steps"] for row in run["history"]] == list(rows["env_steps"])
        assert run["summary"]["state"] == "COMPLETE"
        assert run["exit"] == 0


@pytest.mark.usefixtures("no_ray")
def test_the_default_wins_when_nothing_beats_it(tmp_path: Path) -> None:
    worse = {"space": {"quality": {"uniform": [0.0, 0.4]}}}
    result = search(tmp_path, worse, trials=4, test_seeds=3)
    assert result.answer is not None
    assert result.answer["beats_default"] is False
    assert result.best is not None
    assert result.best["quality"] == 0.5


IMAGES = {"space": {"gamma": {"uniform": [0.9, 1]}}, "fixed": {"encoder": "nature_cnn"}}


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
        ({"device": "gpu"}, "none of this name"),
        ({"env": "CartPole-v1", "agent": "ddpg", "space": None}, "Discrete"),
        ({"env": "CartPole-v1", "agent": "ppo", "space": IMAGES}, "images of at least 36 x 36"),
        ({"env": "Pendulum-v1", "agent": "rllib:DQN", "space": None}, "chooses among Discrete"),
        ({"env": "Pendulum-v1", "agent": "rllib:CQL", "space": None}, "give --input"),
        ({"space": {"space": {"qualty": {"uniform": [0, 1]}}}}, "quality"),
    ):
        with pytest.raises(UserError, match=word):
            search(tmp_path, **change)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_ray")
def test_a_name_is_taken_once(tmp_path: Path) -> None:
    search(tmp_path, trials=2, tournament=False)
    with pytest.raises(UserError, match="resume"):
        search(tmp_path, trials=2)


@pytest.mark.usefixtures("no_ray")
def test_a_resume_of_a_finished_search_tests_nothing_and_takes_no_trial_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = search(tmp_path, trials=4, test_seeds=2).path
    with pytest.raises(UserError, match=r"--trials 3: 4 trials have begun already.* Write 4 or m"):
        rltune.resume(path, trials=3, screen="none")
    assert yaml.safe_load((path / "run.yaml").read_text())["spec"]["trials"] == 4
    rltune.resume(path, screen="plain")
    assert "testing" not in capsys.readouterr().out
    elsewhere = {"device": "cpu", "gpus_per_trial": 0}
    assert len(rltune.resume(path, trials=5, screen="none", **elsewhere).trials()) == 5
    found = yaml.safe_load((path / "run.yaml").read_text())["spec"]
    assert elsewhere.items() <= found.items()


@pytest.mark.usefixtures("no_ray")
def test_run_yaml_tells_everything(tmp_path: Path) -> None:
    result = search(tmp_path, trials=2, tournament=False, seed=3)
    content = yaml.safe_load((result.path / "run.yaml").read_text())
    assert content["kind"] == "search"
    assert content["spec"]["seed"] == 3
    assert content["spec"]["space"]["space"] == {"quality": {"uniform": [0.0, 1.0]}}
    assert {"rltune", "ray", "optuna"} <= set(content["versions"])


@pytest.mark.slow
def test_two_searches_in_two_threads_both_end(tmp_path, capsys):
    results = {}

    def run(name):
        options = {"trials": 2, "budget": 90, "tournament": False, "name": name}
        results[name] = search(tmp_path, **options)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: len(result.trials()) for name, result in results.items()} == {"one": 2, "two": 2}
    assert capsys.readouterr().err.count("another search runs in this process") == 1
