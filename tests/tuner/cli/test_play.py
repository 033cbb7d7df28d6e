from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.loop.results import Evaluation
from rltune.backends.checkpoints import find_checkpoint
from rltune.runs.directory import RunDir
from rltune.training.evaluation import describe, summary


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("agent") / "agent.pt"
    agent = Agent("ppo", "CartPole-v1", {"n_envs": 2, "n_steps": 64}, total_timesteps=1000)
    agent.learn(128)
    agent.save(path)
    return path


@pytest.fixture
def training(checkpoint, tmp_path):
    run = RunDir.create(tmp_path / "training", {"agent": "ppo"}, kind="train")
    (run.path / "checkpoints").mkdir()
    for name in ("last.pt", "best.pt"):
        shutil.copy(checkpoint, run.path / "checkpoints" / name)
    return run.path


@pytest.fixture
def search(checkpoint, tmp_path):
    run = RunDir.create(tmp_path / "search", {"agent": "ppo"}, kind="search")
    for number in (0, 10, 9):
        run.trial_dir(number).mkdir(parents=True)
        shutil.copy(checkpoint, run.checkpoint(number))
    run.best_dir.mkdir(exist_ok=True)
    shutil.copy(checkpoint, run.best_dir / "checkpoint.pt")
    return run.path


def rltune(*arguments: object) -> int:
    """Run a command as the command line does, without the other commands."""
    import sys

    from rltune.cli import Parser
    from rltune.cli.play import add_parser

    parser = Parser(prog="rltune")
    add_parser(parser.add_subparsers(dest="command"))
    try:
        args, extra = parser.parse_known_args([str(argument) for argument in arguments])
        return args.main(args, extra)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


# -------------------------------------------------------------------------------- which checkpoint


def test_a_file_is_itself(checkpoint):
    assert find_checkpoint(str(checkpoint)) == checkpoint


def test_of_a_training(training):
    assert find_checkpoint(str(training)) == training / "checkpoints" / "last.pt"
    assert find_checkpoint(str(training), best=True) == training / "checkpoints" / "best.pt"


def test_of_a_search(search):
    assert find_checkpoint(str(search)) == search / "best" / "checkpoint.pt"
    assert find_checkpoint(str(search), best=True) == search / "best" / "checkpoint.pt"
    for number in (0, 9):  # trial 0 is a trial like any other
        assert find_checkpoint(str(search), trial=number) == RunDir.open(search).checkpoint(number)


def test_by_name_and_latest(search, training, monkeypatch):
    monkeypatch.chdir(search.parent)
    (search.parent / "runs").mkdir()
    shutil.move(search, search.parent / "runs" / "mine")
    found = find_checkpoint("mine", trial=9)
    assert found.parent.parent.parent.name == "mine"
    assert find_checkpoint("latest", trial=9) == found


def test_missing_ones_are_named(search, training, tmp_path, checkpoint):
    with pytest.raises(UserError, match=r"no checkpoint of trial 3; there are: 0, 9, 10"):
        find_checkpoint(str(search), trial=3)
    (search / "best" / "checkpoint.pt").unlink()
    with pytest.raises(UserError, match=r"no winner yet.*--trial N, or trial=N in Py.*0, 9, 10"):
        find_checkpoint(str(search))
    (search / "best" / "answer.yaml").touch()
    (search / "best" / "config.yaml").unlink(missing_ok=True)
    with pytest.raises(UserError, match="ended without a winner; choose a trial"):
        find_checkpoint(str(search))
    with pytest.raises(UserError, match="has no trials"):
        find_checkpoint(str(training), trial=0)
    (training / "checkpoints" / "best.pt").unlink()
    with pytest.raises(UserError, match=r"no checkpoint best\.pt"):
        find_checkpoint(str(training), best=True)
    with pytest.raises(UserError, match="one checkpoint"):
        find_checkpoint(str(checkpoint), trial=0)
    with pytest.raises(UserError, match="no run"):
        find_checkpoint(str(tmp_path / "nothing"))


# --------------------------------------------------------------------------------------------- eval


def test_eval_prints_what_agent_evaluate_gives(training, capsys):
    assert rltune("eval", training, "--episodes", 12, "--seed", 0, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    agent = Agent.load(training / "checkpoints" / "last.pt")
    evaluation = agent.evaluate(12, seed=0)
    assert result["returns"] == evaluation.returns
    assert result["lengths"] == evaluation.lengths
    assert result["mean"] == evaluation.mean
    low, high = result["iqm_interval"]
    assert low < result["iqm"] < high
    assert result["env_steps"] == 128
    assert evaluation.returns != agent.evaluate(12, seed=1).returns


def test_eval_in_words(training, capsys):
    assert rltune("eval", training, "--episodes", 8) == 0
    said = capsys.readouterr().out
    for word in ("CartPole-v1", "mean", "standard deviation", "95 % interval", "episode length"):
        assert word in said
    assert "success" not in said


def test_an_eval_of_returns_that_are_all_alike_has_no_interval(training, tmp_path, capsys):
    evaluation = Evaluation(returns=[500.0] * 5, lengths=[500] * 5, seconds=1.0)
    agent = Agent.load(training / "checkpoints" / "last.pt")
    result = summary(tmp_path, agent, evaluation)
    assert result["iqm_interval"] == [None, None]
    assert re.search(r"interquartile mean +500  all 500\n", describe(result))


def test_a_success_rate_is_told_where_there_is_one(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    agent = Agent("ppo", "toy:GoalEnv", {"n_envs": 1}, env_kwargs={"goal": -11}, total_timesteps=9)
    agent.save(tmp_path / "agent.pt")
    agent.close()
    assert rltune("eval", tmp_path / "agent.pt", "--episodes", 4) == 0
    assert re.search(r"success rate +1\n", capsys.readouterr().out)
    assert rltune("eval", tmp_path / "agent.pt", "--episodes", 4, "--json") == 0
    assert json.loads(capsys.readouterr().out)["success_rate"] == 1.0


def test_random_actions_are_a_baseline(capsys):
    assert rltune("eval", "random", "--env", "CartPole-v1", "--episodes", 20, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["checkpoint"], result["eval_mode"]) == (None, "random")
    assert 15 < result["mean"] < 35
    arguments = ("--env-kwargs", "{max_episode_steps: 3}", "--episodes", 2)
    assert rltune("eval", "random", "--env", "CartPole-v1", *arguments) == 0
    said = capsys.readouterr().out
    assert said.startswith("random actions on CartPole-v1\nreturn of 2 random episodes")
    assert "(3 to 3 steps)" in said
    assert rltune("eval", "random") == 2
    assert "in which environment? Give --env" in capsys.readouterr().err
    assert rltune("play", "random") == 2


def test_eval_with_exploration(training, capsys):
    greedy, stochastic = [], []
    for mode, results in (("greedy", greedy), ("stochastic", stochastic)):
        for _ in range(2):
            assert rltune("eval", training, "--episodes", 5, "--eval-mode", mode, "--json") == 0
            results.append(json.loads(capsys.readouterr().out)["returns"])
    assert greedy[0] == greedy[1] != stochastic[0] == stochastic[1]
    assert rltune("eval", training, "--eval-mode", "lucky") == 2
    assert "unknown way to evaluate 'lucky'" in capsys.readouterr().err


def test_few_episodes_have_no_interval(training, capsys):
    assert rltune("eval", training, "--episodes", 2) == 0
    said = capsys.readouterr().out
    assert "interval" not in said
    assert "interquartile mean" in said


def test_eval_max_steps(training, capsys):
    rltune("eval", training, "--episodes", 3, "--max-steps", 2, "--json")
    assert json.loads(capsys.readouterr().out)["lengths"] == [2, 2, 2]


# --------------------------------------------------------------------------------------------- play


def test_play_writes_what_it_says(training, tmp_path, capsys):
    video = tmp_path / "out" / "play.gif"
    frames = tmp_path / "frames"
    arguments = ("--video", video, "--frames", frames, "--max-steps", 5, "--episodes", 2)
    assert rltune("play", training, *arguments) == 0
    said = capsys.readouterr().out
    assert "episode 1: return 5 in 5 steps" in said
    assert str(video) in said
    assert video.is_file()
    assert len(list(frames.iterdir())) == 12


def test_play_without_a_display_says_what_to_do(training, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert rltune("play", training) == 2
    assert "--video" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--episodes", "0"], "whole number from 1"),
        (["--episodes", "many"], "whole number from 1"),
        (["--seed", "-1"], "whole number from 0"),
        (["--trial", "1.5"], "whole number from 0"),
        (["--best", "--trial", "1"], "not allowed"),
        (["--learning-rate", "3"], "unexpected argument '--learning-rate'"),
        (["--env", "Acrobot-v1"], "not of 'Acrobot-v1'"),
        (["--max-steps", "0"], "whole number from 1"),
    ],
)
@pytest.mark.parametrize("command", ["eval", "play"])
def test_bad_arguments(command, arguments, said, training, capsys):
    assert rltune(command, training, *arguments) == 2
    assert said in capsys.readouterr().err


def test_not_a_checkpoint(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("no checkpoint")
    assert rltune("eval", tmp_path / "notes.txt") == 2
    assert "not a checkpoint" in capsys.readouterr().err


def test_a_run_from_a_newer_version(training, capsys):
    content = yaml.safe_load((training / "run.yaml").read_text())
    (training / "run.yaml").write_text(yaml.safe_dump({**content, "format_version": 99}))
    assert rltune("eval", training) == 2
    assert "newer" in capsys.readouterr().err


def test_help_is_light():
    import subprocess
    import sys

    code = (
        "import sys, argparse; from rltune.cli.play import add_parser;"
        "add_parser(argparse.ArgumentParser().add_subparsers());"
        "print([m for m in ('torch', 'numpy', 'gymnasium', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
