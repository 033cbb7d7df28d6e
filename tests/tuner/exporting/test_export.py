"""The output of `rltune export`: the command, YAML and JSON, CleanRL's words, and its errors."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import rltune
import yaml
from exporting import training
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.exporting.exportable import exportable
from rltune.exporting.registry import TEXTS
from rltune.runs.directory import RunDir
from rltune.space.space import Space
from rltune.study.lineage import lineage
from rltune.training.request import read_training
from searching import POPULATION
from serial import Serial

SPACE: dict[str, Any] = {
    "fixed": {"n_envs": 2, "n_steps": 64, "batch_size": 32, "n_epochs": 2},
    "space": {"learning_rate": {"log": [1e-4, 1e-2]}},
}
# How long things take, and what only one of the two records.
MACHINE = re.compile("time|timestamp|.*second.*|memory.*|trial|role|cpu_time")


@pytest.fixture(scope="module")
def run(toy_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of PPO's learning rate; its winner is whoever won."""
    options: dict[str, Any] = {"budget": 768, "trials": 2, "evaluations": 3, "eval_episodes": 2}
    options |= {
        "test_seeds": 2,
        "finalists": 1,
        "wandb": "off",
        "report": False,
        "screen": "none",
        "name": "run",
    }
    options |= {"controls": {"target_reward": 400.0}, "env_kwargs": {"sutton_barto_reward": False}}
    folder = tmp_path_factory.mktemp("search")
    return rltune.Search("ppo", "CartPole-v1", SPACE, storage_path=folder, **options).run().path


def run_in_shell(text: str, folder: Path) -> pd.DataFrame:
    """Run what was exported as one would paste it, and return the history of the training."""
    shell = f'rltune() {{ "{sys.executable}" -m rltune "$@"; }}\n{text}'
    environment = {**os.environ, "WANDB_MODE": "disabled", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        ["bash", "-c", shell], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (folder / "runs").iterdir()
    return rltune.open(made).history()


def check_equal(ours: pd.DataFrame, again: pd.DataFrame) -> None:
    """Both have the same rows, bit for bit, times aside."""
    both = [name for name in ours if name in again and not MACHINE.fullmatch(name)]
    assert {"env_steps", "eval_return", "loss", "mean_reward"} <= set(both)
    pd.testing.assert_frame_equal(
        ours[both].reset_index(drop=True), again[both].reset_index(drop=True), check_exact=True
    )


def test_the_command_repeats_the_winner(run: Path, tmp_path: Path) -> None:
    text = rltune.export(run)
    answer = rltune.open(run).answer
    assert answer is not None
    assert f"trial {answer['winner']}" in text
    assert ", the winner of the search 'run'" in text
    assert "# test score " in text
    seed = text.split("--seed ")[1].split()[0]
    history = rltune.open(run).history().query(f"trial == {answer['winner']} and seed == {seed}")
    assert set(history["role"]) == {"test"}
    check_equal(history, run_in_shell(text, tmp_path))
    words = shlex.split((run / "best" / "command.txt").read_text())
    assert {"--env-kwargs", "--target-reward", seed} <= set(words)
    assert set(words) == set(shlex.split(text, comments=True))


def test_the_command_repeats_a_trial_that_was_not_tested(run: Path, tmp_path: Path) -> None:
    loser = int(rltune.open(run).trials()["objective"].idxmin())
    answer = rltune.open(run).answer
    assert answer is not None
    tested = [ranked["trial"] for ranked in answer["ranking"]]
    text = rltune.export(run, trial=loser)
    assert ("not tested" in text) == (loser not in tested)
    assert "--target-reward 400.0" in text
    assert "sutton_barto_reward" in text
    found = exportable(RunDir.open(run), loser)
    rows = rltune.open(run).history().query(f"trial == {loser} and seed == {found.spec.seed}")
    more = ["--storage-path", str(tmp_path), "--name", "again", "--wandb", "off", "--plain"]
    assert main([*command(text)[1:], *more]) == 0
    check_equal(rows, rltune.open(tmp_path / "again").history())


@pytest.mark.usefixtures("toy")
def test_a_schedule_travels_in_the_command(tmp_path: Path) -> None:
    changes = [
        {"env_steps": 100, "config": {"rate": 0.5}},
        {"env_steps": 200, "config": {"rate": 2e-3}},
    ]
    config = {"rate": 0.01}
    run = training(tmp_path, "toy:DescentAgent", "toy:ToyEnv", config, schedule=changes,
                   total_timesteps=300)  # fmt: skip
    (tmp_path / "schedule.yaml").write_text(yaml.safe_dump(changes))
    line = "train toy:DescentAgent --env toy:ToyEnv -n 300 --rate 0.01 --seed 3 --plain --wandb off"
    more = ["--schedule", str(tmp_path / "schedule.yaml"), "--storage-path", str(tmp_path / "runs")]
    assert main([*line.split(), *more, "--name", "first"]) == 0
    expected = rltune.open(tmp_path / "runs" / "first").history()
    assert set(expected["rate"].dropna()) == {0.01, 0.5, 2e-3}
    text = rltune.export(run)
    here = Path(__file__).parents[1]
    (tmp_path / "again").mkdir()
    os.symlink(here / "toy.py", tmp_path / "again" / "toy.py")
    again = run_in_shell(text, tmp_path / "again")
    for name in ("env_steps", "eval_return", "rate"):
        pd.testing.assert_series_equal(expected[name], again[name])
    for to in set(TEXTS) - {"rltune", "yaml", "json"}:
        with pytest.raises(UserError, match="change as it trains"):
            rltune.export(run, to=to)


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_members_of_a_population(tmp_path: Path) -> None:
    options = {name: value for name, value in POPULATION.items() if name not in ("name", "screen")}
    serial = Serial(tmp_path, **options)
    serial.go_on()
    trials = {record.number: record for record in serial.study.trials()}
    changed = 0
    for number in trials:
        config, changes = lineage(trials, number)
        spec = exportable(RunDir.open(tmp_path / "run"), number).spec
        assert spec.schedule == changes
        assert {name: spec.config[name] for name in config} == config
        changed += bool(changes)
    assert changed


# ------------------------------------------------------------------------------------ YAML and JSON


@pytest.mark.parametrize("to", ["yaml", "json"])
def test_a_file_trains_again(to: str, run: Path, tmp_path: Path) -> None:
    file = tmp_path / f"best.{to}"
    assert main(["export", str(run), "--to", to, "-o", str(file)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [file.name]  # nothing temporary is left
    spec = exportable(RunDir.open(run)).spec
    given = read_training(str(file), "ppo")
    assert given["config"] == spec.config
    assert (given["env"], given["budget"], given["seed"]) == ("CartPole-v1", 768, spec.seed)
    line = ["train", "ppo", "--config", str(file), "--plain", "--wandb", "off", "--name", "again"]
    assert main([*line, "--storage-path", str(tmp_path), "-n", "64"]) == 0
    again = RunDir.open(tmp_path / "again").spec
    for name in ("env", "seed", "config", "controls", "env_kwargs"):
        assert again[name] == getattr(spec, name)
    assert again["total_timesteps"] == 64  # flags win


def test_json_is_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--to", "json", "--trial", "1"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["config"]["n_steps"] == 64
    assert "trial 1" in values["about"][0]


def test_a_file_is_a_start_of_a_space(run: Path, tmp_path: Path) -> None:
    (tmp_path / "best.yaml").write_text(rltune.export(run, to="yaml"))
    space = tmp_path / "space.yaml"
    space.write_text(f"space: {json.dumps(SPACE['space'])}\nstart: [best.yaml]\n")
    (start,) = Space.load(space).starts
    assert start.values == exportable(RunDir.open(run)).spec.config
    assert (start.name, start.env) == ("best", ())
    line = ["run", "ppo", "--space", str(space), "--env", "CartPole-v1", "--budget", "1e3"]
    assert main([*line, "--dry-run"]) == 0
    for text, message in (
        ("gamma: 0.9\n", "no file that rltune export"),
        ("config: {}\nagnt: ppo\n", "unknown key 'agnt'"),
        ("config: {}\nschedule: [{env_steps: 1, config: {}}]\n", "change as it trains"),
    ):
        (tmp_path / "best.yaml").write_text(text)
        with pytest.raises(UserError, match=message):
            Space.load(space)
    (tmp_path / "best.yaml").unlink()
    with pytest.raises(UserError, match=r"start\[0\]: .*no such file"):
        Space.load(space)


def test_train_refuses_what_a_file_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    for text, message in (
        ("agent: dqn\nconfig: {}\n", "is of the agent 'dqn', not of 'ppo'"),
        ("agent: ppo\nseed: many\nconfig: {}\n", "seed is 'many'"),
        ("agent: ppo\nconfig: {}\n", "which environment"),
        ("config: {gama: 0.9}\n", "did you mean 'gamma'"),
    ):
        file.write_text(text)
        assert main(["train", "ppo", "--config", str(file)]) == 2
        assert message in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- errors


def test_mistakes_are_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = training(tmp_path, "ppo", "CartPole-v1", {})
    both = training(tmp_path, "ppo", "CartPole-v1=0:500,Acrobot-v1=-500:-100", {})
    spec = RunDir.open(run).spec
    new = RunDir.create(tmp_path / "new", spec).path
    for arguments, message in (
        ([run, "--trial", 7], "has no trial 7; it has 0 to 1."),
        ([run, "--to", "xgboost"], "unknown format 'xgboost'"),
        ([trained, "--trial", 0], "has no trials; leave out --trial."),
        ([new], "has no winner yet; choose a trial: --trial N, or trial=N in Python."),
        ([new, "--trial", 0], "it has none yet."),
        ([both, "--to", "zoo"], "several environments at once, which --to zoo can't say"),
        ([tmp_path / "nothing"], "no run"),
        ([run, "--seed", 1], "does not know '--seed'"),
    ):
        assert main(["export", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.strip().splitlines()) == 1
    for to in ("rltune", "yaml", "json"):
        assert main(["export", str(both), "--to", to]) == 0
        assert "CartPole-v1=0:500,Acrobot-v1=-500:-100" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------ CleanRL


def command(text: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if not line.startswith("#"))
    return shlex.split(line)


def test_ppo_of_cleanrl(tmp_path: Path) -> None:
    config = {
        "learning_rate": "lin_1e-3", "n_envs": 4, "n_steps": 64, "batch_size": 32, "vf_coef": 0.5,
        "normalize_observations": False, "normalize_rewards": False, "clip_range_vf": 0.2,
        "max_grad_norm": 0, "target_kl": 0.02, "net_arch": [32, 32],
    }  # fmt: skip
    text = rltune.export(training(tmp_path, "ppo", "CartPole-v1", config), to="cleanrl")
    words = command(text)
    assert words[:2] == ["python", "cleanrl/ppo.py"]
    flags = dict(itertools.pairwise(words))
    assert flags["--num-minibatches"] == "8"
    assert flags["--vf-coef"] == "1.0"  # CleanRL halves the loss
    assert flags["--target-kl"] == "0.03"
    assert flags["--max-grad-norm"] == "inf"
    assert flags["--learning-rate"] == "0.001"
    assert {"--anneal-lr", "--clip-vloss", "--norm-adv"} <= set(words)
    comments = [line for line in text.splitlines() if line.startswith("# CleanRL")]
    assert comments == [
        "# CleanRL cannot set net_arch: 32,32 here, 64,64 there",
        "# CleanRL clips values by --clip-coef; here clip_range_vf is 0.2",
    ]


def test_other_agents_of_cleanrl(tmp_path: Path) -> None:
    def exported(agent: str, env: str, **config: Any) -> str:
        return rltune.export(training(tmp_path, agent, env, config), to="cleanrl")

    assert command(exported("ppo", "Pendulum-v1"))[1] == "cleanrl/ppo_continuous_action.py"
    text = exported("dqn", "CartPole-v1", train_freq=8, gradient_steps=4, dueling=True)
    assert command(text)[-2:] == ["--train-frequency", "2"]
    assert "cannot set dueling: true here, false there" in text
    assert "cannot set net_arch: 256,256 here, 120,84 there" in text
    text = exported("td3", "Pendulum-v1", n_envs=2, policy_delay=3, net_arch=[256, 256])
    assert {"--policy-frequency", "--policy-noise", "--noise-clip"} <= set(command(text))
    assert "cannot set n_envs: 2 here, 1 there" in text
    assert "net_arch" not in text
    assert "--policy-frequency 1" in exported("ddpg", "Pendulum-v1")
    text = exported("sac", "Pendulum-v1", ent_coef="0.3")
    assert {"--no-autotune", "--alpha", "0.3"} <= set(command(text))
    for agent, env, message in (
        ("a2c", "CartPole-v1", "CleanRL has no 'a2c'"),
        ("dqn", "Pendulum-v1", "discrete actions alone"),
        ("sac", "CartPole-v1", "Box actions alone"),
        ("ppo", "FrozenLake-v1", "observations of a Box alone"),
        ("dqn", "CliffWalking-v1", "observations of a Box alone"),
        ("ppo", "Blackjack-v1", "observations of a Box alone"),
    ):
        with pytest.raises(UserError, match=message):
            exported(agent, env)
