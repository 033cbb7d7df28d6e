"""The surroundings of an agent are searched like its hyperparameters."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import rltune
import yaml
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.cli import main
from rltune.planning.bounds import most_env_steps
from rltune.space.space import Space
from rltune.space.surroundings import split

STICKY = "wrapper.StickyAction.repeat_action_probability"
SPACE: dict[str, Any] = {
    "space": {
        "env.g": {"uniform": [8.0, 12.0]},
        STICKY: {"choice": [0.0, 0.5]},
        "total_timesteps": {"int": [96, 224]},
        "learning_rate": {"log": [1e-4, 1e-2]},
    },
    "fixed": {
        "n_steps": 32,
        "n_envs": 2,
        "n_epochs": 1,
        "net_arch": [4],
        "env.max_episode_steps": 20,
    },
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small search over them."""
    from serial_jobs import run_here

    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        search = rltune.Search(
            "ppo", "Pendulum-v1", SPACE, budget=224, trials=6, evaluations=3, eval_episodes=2,
            finalists=1, test_seeds=2, storage_path=folder, name="around", wandb="off",
            report=False, screen="none",
        )  # fmt: skip
        assert most_env_steps(search.spec, search.space, search.starts) == (6 + 2 * 2) * 224
        search.run()
    return folder / "around"


def test_a_search_trains_what_it_says(path: Path) -> None:
    trials = rltune.open(path).trials()
    assert trials.loc[0, "config.env.g"] == 10.0  # the environment's own
    assert trials.loc[0, "config.total_timesteps"] == 224
    assert trials["config.env.g"].between(8, 12).all()
    done = trials[trials["state"] == "COMPLETE"]
    lengths = done["config.total_timesteps"]
    assert len(done) >= 3
    assert lengths.nunique() > 1
    assert (done["budget_reached"] - lengths).between(0, 1).all()
    for _, row in done.iterrows():
        agent = Agent.load(path / "trials" / str(row["trial"]) / "checkpoint.pt")
        assert agent.env_kwargs["g"] == row["config.env.g"]
        assert agent.env_kwargs["max_episode_steps"] == 20
        assert agent.total_timesteps == row["config.total_timesteps"]
        assert agent.evaluate(1).lengths == [20]
        agent.close()
    assert all(fate.same for fate in rltune.replay(path).fates)


def test_the_answer_can_be_trained_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rltune.open(path)
    best = found.best
    assert best is not None
    parts = split(best, {}, 224)
    command = (path / "best" / "command.txt").read_text()
    words = shlex.split(command)
    assert words[words.index("-n") + 1] == str(parts.env_steps)
    assert yaml.safe_load(words[words.index("--env-kwargs") + 1]) == parts.env_kwargs
    monkeypatch.chdir(tmp_path)
    flags = ["--wandb", "off", "--plain", "--name"]
    assert main([*words[1:], *flags, "again"]) == 0
    config = ["--config", str(path / "best" / "config.yaml"), "--seed", words[-1]]
    assert main(["train", "ppo", "--env", "Pendulum-v1", *config, *flags, "file"]) == 0
    for name in ("again", "file"):
        spec = rltune.open(tmp_path / "runs" / name).spec
        assert spec["env_kwargs"] == parts.env_kwargs
        assert spec["total_timesteps"] == parts.env_steps
        assert spec["config"]["learning_rate"] == best["learning_rate"]


def test_exports_carry_it_or_say_that_they_cannot(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sticky = rltune.open(path).trials()[f"config.{STICKY}"].idxmax()
    for to in ("yaml", "rltune", "json", "sb3", "zoo"):
        assert main(["export", str(path), "--to", to, "--trial", str(sticky)]) == 0
        text = capsys.readouterr().out
        assert "StickyAction" in text
        assert "0.5" in text
        assert re.search(r"\Wg\W+\d", text)
        if to == "sb3":
            compile(text, "script.py", "exec")
            assert "env = StickyAction(env, repeat_action_probability=0.5)" in text
    for to, said in (("rllib", "without wrappers"), ("cleanrl", "without arguments")):
        assert main(["export", str(path), "--to", to, "--trial", str(sticky)]) == 2
        assert said in capsys.readouterr().err


def test_flags_and_files_mean_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ["run", "ppo", "--env", "Pendulum-v1", "--budget", "9000", "--dry-run"]
    assert main([*run, "-s", "env.g=-12..-8", f"--{STICKY}", "0.25"]) == 0
    plan = capsys.readouterr().out
    assert re.search(r"env\.g +uniform: \[-12, -8\]", plan)
    assert "env.g 10" in plan
    assert main([*run, "--env.g", "-12", "-8"]) == 0
    assert "uniform: [-12, -8]" in capsys.readouterr().out
    for flags, said in (
        (["--env.nope", "1", "2"], "nope"),
        (["--wrapper.Stick.p", "0", "1"], "unknown wrapper 'Stick'"),
        (["-s", "total_timesteps=100..10000"], "goes up to 10,000, and a trial has 9,000"),
        (["--env.g", "8", "12", "--scheduler", "pbt"], "env.g can't"),
    ):
        assert main([*run, *flags]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(UserError, match="needs a single environment"):
        rltune.Search("ppo", "CartPole-v1,Acrobot-v1", {"env.x": {"choice": [1, 2]}}, budget=900)
    derived = {"space": {"n_steps": {"pow2": [32, 64]}}, "derived": {"total_timesteps": "n_steps"}}
    with pytest.raises(UserError, match="can't be derived"):
        rltune.Search("ppo", "CartPole-v1", derived, budget=900)
    read = Space.from_dict({"env.g": {"uniform": [8, 12]}, "lr": {"log": [1e-4, 1e-2]}})
    assert Space.from_dict(read.to_dict()) == read


HELPED: dict[str, Any] = {
    "space": {
        "n_steps": {"pow2": [16, 64]},
        "_minibatches": {"choice": [1, 2, 4]},
        "learning_rate": {"log": [1e-4, 1e-2]},
    },
    "derived": {"batch_size": "n_steps * n_envs // _minibatches"},
    "constraints": ["_minibatches * 8 <= n_steps"],
    "fixed": {"n_envs": 2, "n_epochs": 1, "net_arch": [4]},
}


def test_a_helper_value_is_searched_and_never_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from serial_jobs import run_here

    run_here(monkeypatch)
    monkeypatch.chdir(tmp_path)
    rltune.Search(
        "ppo", "CartPole-v1", HELPED, budget=128, trials=8, evaluations=2, eval_episodes=1,
        finalists=1, test_seeds=1, name="helped", wandb="off", report=False, screen="none",
    ).run()  # fmt: skip
    trials = rltune.open("runs/helped").trials()
    sampled = trials[trials["origin"] == "sampler"]
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}
    assert set(sampled["config._minibatches"]) > {1}
    expected = sampled["config.n_steps"] * 2 // sampled["config._minibatches"]
    assert (sampled["config.batch_size"] == expected).all()
    assert (sampled["config._minibatches"] * 8 <= sampled["config.n_steps"]).all()
    number = int(sampled["trial"].iloc[0])
    for to in ("rltune", "yaml", "json", "sb3", "zoo", "cleanrl", "rllib"):
        assert main(["export", "helped", "--to", to, "--trial", str(number)]) == 0
        assert " _minibatches" not in capsys.readouterr().out
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"n_steps": 16, "_minibatches": 2, "net_arch": [4]}))
    train = ["train", "ppo", "--env", "CartPole-v1", "-n", "64", "--wandb", "off", "--plain"]
    assert main([*train, "--config", str(config), "--name", "file"]) == 0
    assert "_minibatches" not in rltune.open("runs/file").spec["config"]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"space": {"_x": {"choice": [1, 2]}}}, "_x is a helper value, and nothing here uses it"),
        (
            {"space": {"x": {"choice": [1, 2]}}, "derived": {"n_steps": "16 * x"}},
            "A value that only serves other values begins with _: _x.",
        ),
    ],
)
def test_a_value_that_serves_nothing_is_refused(space: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        rltune.Search("ppo", "CartPole-v1", space, budget=900)
