"""Functions of a user's own that train: from one report to the next, and in whole searches."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import rltune
from rltune.agents.envs.suite import NO_ENV
from rltune.agents.errors import UserError
from rltune.agents.loop.controls import Controls
from rltune.backends.external.agent import FunctionAgent
from rltune.cli import main
from searching import HERE, check_history, kill_when_saved

from tests.parameters import quick

pytestmark = pytest.mark.usefixtures("toy")
SPACE: dict[str, Any] = {"space": {"quality": {"uniform": [0.0, 1.0]}}}
OPTIONS: dict[str, Any] = {"budget": 900, "trials": 8, "screen": "none", "name": "run"}
OPTIONS |= {"wandb": "off", "report": False, "metric": "return"}


def agent(function: str = "train", budget: int = 1000, **options: Any) -> FunctionAgent:
    name = f"function:toy_train:{function}"
    return FunctionAgent(name, NO_ENV, {"quality": 0.5}, total_timesteps=budget, **options)


def search(folder: Path, train: Any, **options: Any) -> rltune.SearchResult:
    values = {"space": SPACE, **OPTIONS, **options}
    return rltune.Search(train=train, storage_path=folder, **values).run()


# ------------------------------------------------------------------------------- the trainer alone


def test_the_last_report_up_to_a_point_counts_for_it() -> None:
    made = agent()
    for until, last in ((250, 200), (300, 300), (950, 900)):
        chunk = made.learn(until)
        assert (made.env_steps, chunk.stop_reason, chunk.diverged) == (until, None, None)
        assert made.evaluate().mean == pytest.approx(0.5 * (1 - math.exp(-last / 300)))
    assert made.learn(1000).env_steps == 1000
    assert made.finished
    made.close()


def test_where_the_first_report_is_beyond_the_point_it_counts() -> None:
    made = agent()
    assert made.learn(30).env_steps == 100
    made.close()


def test_a_generator_that_yields_is_a_training_too() -> None:
    plain, made = agent(), agent("train_by_steps")
    for one in (plain, made):
        one.learn(500)
    assert made.evaluate().mean == plain.evaluate().mean
    assert made.evaluate().metrics == {"loss": 0.5}
    plain.close()
    made.close()


def test_a_training_that_is_loaded_goes_on_with_the_same_values(tmp_path: Path) -> None:
    whole, made = agent(), agent()
    made.learn(450)
    made.save(tmp_path / "checkpoint.pt")
    made.close()
    again = FunctionAgent.load(tmp_path / "checkpoint.pt")
    assert again.env_steps == 450
    assert again.evaluate().mean == made.evaluate().mean
    for until in (450, 500, 730, 1000):
        whole.learn(until)
        again.learn(until)
        assert (again.env_steps, again.evaluate().mean) == (until, whole.evaluate().mean)
    whole.close()
    again.close()


def test_a_deadline_ends_the_wait_for_a_report() -> None:
    made = agent()
    made.config = type(made.config)(quality=0.5)
    assert made.learn(1000, deadline=time.time() - 1).env_steps < 1000
    made.close()


def test_a_target_ends_a_training() -> None:
    made = agent(controls=Controls(target_reward=0.2))
    made.learn(1000)
    assert made.finished
    assert made.env_steps == 200
    assert "reached the target" in str(made.stop_reason)
    made.close()


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ((100, "much"), "value must be a number, not 'much'"),
        (("soon", 1.0), "env_steps must be a number, not 'soon'"),
        ((50, 1.0), "env_steps are 50 after 100"),
    ],
)
def test_a_report_that_is_none_is_a_sentence(report: Any, said: str) -> None:
    trial = rltune.Trial()
    trial.report(100, 1.0)
    with pytest.raises(UserError, match=said):
        trial.report(*report)
    with pytest.raises(UserError, match="memory is a column of rltune's own"):
        trial.report(200, 1.0, memory=3.0)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("train_alone", "toy_train:train_alone must take two arguments"),
        ("NotAFunction", "toy_train:NotAFunction is no function"),
        ("trian", "unknown function in toy_train 'trian'; did you mean 'train'"),
    ],
)
def test_what_can_not_train_is_a_sentence(tmp_path: Path, function: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        rltune.Search(train=f"toy_train:{function}", space=SPACE, storage_path=tmp_path, **OPTIONS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"space": None}, "nothing to search"),
        ({"eval_episodes": 5}, "--eval-episodes: code of your own evaluates by itself"),
        ({"scheduler": "pbt"}, "hyperparameters"),
        ({"weights": "runs/x"}, "--weights"),
        ({"agent": "ppo"}, "give one of them"),
        ({"env": "CartPole-v1,Acrobot-v1"}, "which a search gives one environment"),
        ({"space": {"space": {"wrapper.a:B": {"choice": [True]}}}}, "leave out wrapper.a:B"),
        ({"space": {"space": {"lambda": {"uniform": [0, 1]}}}}, "'lambda' can't be the name"),
    ],
)
def test_what_a_function_can_not_have_is_a_sentence(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    values = {"space": SPACE, **OPTIONS, **options}
    with pytest.raises(UserError, match=said):
        rltune.Search(train="toy_train:train", storage_path=tmp_path, **values)


def test_a_function_of_the_running_script_is_a_sentence() -> None:
    def train(config: Any, trial: Any) -> None: ...

    with pytest.raises(UserError, match="defined inside a function"):
        rltune.Search(train=train, space=SPACE, **OPTIONS)
    train.__module__, train.__qualname__ = "__main__", "train"
    with pytest.raises(UserError, match="put it into a module of its own"):
        rltune.Search(train=train, space=SPACE, **OPTIONS)


# --------------------------------------------------------------------------------- whole searches


@pytest.mark.usefixtures("toy_ray")
def test_a_search_over_a_function_has_all_that_a_search_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import toy_train

    result = search(tmp_path, toy_train.train, report=True, seeds="2", wandb="offline")
    trials = result.trials()
    assert len(trials) == 8
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    assert "PRUNED" in set(trials["state"])  # by ASHA
    history = result.history()
    check_history(history)
    assert {"return", "loss", "eval_return"} <= set(history)
    assert set(history.loc[history.role == "tune", "seed"]) == {0, 1}
    assert set(history.loc[history.role == "test", "seed"]) == {100, 101, 102, 103, 104}
    assert result.best is not None
    top = trials.loc[trials["objective"].idxmax()]
    assert result.best["quality"] == pytest.approx(top["config.quality"])
    assert result.answer is not None
    assert (result.path / "report" / "report.html").exists() or list(result.path.glob("report/*"))
    assert rltune.importances(result.path) is not None
    for command in (["show"], ["importances"]):
        assert main([*command, str(result.path)]) == 0
    assert "quality" in capsys.readouterr().out
    assert main(["export", str(result.path), "--to", "rltune"]) == 0
    assert "quality" in capsys.readouterr().out
    for command in (["play"], ["eval"], ["export", "--to", "sb3"], ["export", "--to", "onnx"]):
        name, *rest = command
        assert main([name, str(result.path), *rest]) == 2
        said = capsys.readouterr().err.strip()
        assert len(said.splitlines()) == 1, said
    assert main(["train", "function:toy_train:train", "--env", "CartPole-v1"]) == 2
    assert "code of your own" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("toy_ray")
def test_a_stopped_function_runs_its_finally_blocks(tmp_path: Path) -> None:
    traces = Path(os.environ["TOY_FOLDER"]) / "traces.txt"
    traces.unlink(missing_ok=True)
    result = search(tmp_path, "toy_train:train_traced", trials=8, tournament=False)
    states = result.trials()["state"]
    words = [line.split()[1] for line in traces.read_text().splitlines()]
    assert words.count("begin") == 8
    assert words.count("returned") == (states == "COMPLETE").sum() > 0
    assert words.count("stopped") == (states == "PRUNED").sum() > 0


@pytest.mark.slow
@pytest.mark.usefixtures("toy_ray")
def test_the_command_line_takes_a_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "my.yaml"
    space.write_text(
        "agent: toy_train:train\nbudget: 500\nspace:\n  quality: {uniform: [0, 1]}\n"
        "  rate: {log: [1e-5, 1e-1]}\nfixed: {sleep: 0.0}\nstart:\n"
        "  - {name: mine, quality: 0.25, rate: 0.01}\n"
    )
    words = ["run", "toy_train:train", "--space", str(space), "--metric=-loss", "-n", "300"]
    words += ["--trials", "3", "--no-tournament", "--no-report", "--wandb", "off", "--plain"]
    words += ["--rate", "1e-4", "1e-2", "--storage-path", str(tmp_path), "--name", "run"]
    assert main([*words, "--dry-run"]) == 0
    assert "log: [0.0001, 0.01]" in capsys.readouterr().out
    assert main(words) == 0
    trials = rltune.open(tmp_path / "run").trials()
    assert trials.loc[0, "origin"] == "start:0"  # a function has no defaults beside it
    assert trials.loc[0, "config.quality"] == 0.25
    assert trials["objective"].max() < 0  # less loss is better
    assert main(["space", "check", str(space)]) == 0
    assert main(["plan", "toy_train:train", "--space", str(space)]) == 2
    assert "can't measure" in capsys.readouterr().err


@pytest.mark.usefixtures("toy_ray")
@pytest.mark.parametrize(
    ("train", "said"),
    [
        ("train_badly", "no data here"),
        *quick([], [("train_silently", r"has ended without a value; call trial.report")]),
    ],
)
def test_a_function_that_fails_ends_its_trial(tmp_path: Path, train: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        search(tmp_path, f"toy_train:{train}", trials=4, retries=0)


@pytest.mark.slow
def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    """The driver and its workers are killed; the function finds its own files."""
    space = {**SPACE, "fixed": {"sleep": 0.15}}
    values = {**OPTIONS, "space": space, "budget": 3000, "trials": 3, "tournament": False}
    values |= {"scheduler": "none", "screen": "plain", "storage_path": str(tmp_path)}
    code = f"import rltune\nrltune.Search(train='toy_train:train_with_files', **{values!r}).run()"
    kill_when_saved(["-c", code], tmp_path / "run", wait=1.5)
    result = rltune.resume(tmp_path / "run", screen="none")
    assert list(result.trials()["state"]) == ["COMPLETE"] * 3
    check_history(result.history())
    files = sorted((tmp_path / "run").glob("trials/*/checkpoint.files/begins.txt"))
    begins = [[int(word) for word in file.read_text().split()] for file in files]
    assert [steps[0] for steps in begins] == [0, 0, 0]
    assert any(len(steps) > 1 for steps in begins)  # of those that were running
    assert all(steps[-1] > 0 for steps in begins if len(steps) > 1)  # which went on


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["toy_train:train_traced", "script:toy_script.py"])
def test_ctrl_c_ends_what_runs(tmp_path: Path, agent: str) -> None:
    (tmp_path / "my.yaml").write_text(
        "budget: 1000\nspace: {quality: {uniform: [0, 1]}}\nfixed: {sleep: 0.5}\n"
        + (
            "script: {results: {json: true, step: step}, args: [--write, json]}\n"
            if agent.startswith("script")
            else ""
        )
    )
    words = [sys.executable, "-m", "rltune", "run", agent, "--space", str(tmp_path / "my.yaml")]
    words += ["--metric", "score", "--plain", "--wandb", "off", "--storage-path", str(tmp_path)]
    environ = {**os.environ, "TOY_FOLDER": str(tmp_path)}
    process = subprocess.Popen([*words, "--name", "run"], cwd=HERE, env=environ)
    function = tmp_path / "traces.txt"
    while not (scripts := list(tmp_path.rglob("begins.txt"))) and not function.exists():
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    if function.exists():
        words = [line.split()[1] for line in function.read_text().splitlines()]
        assert words.count("begin") == words.count("stopped") > 0
    for file in scripts:
        assert not psutil.pid_exists(int(file.read_text().split()[0]))
