from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune import cli
from rltune.agents import Agent
from rltune.agents.config import make_config
from rltune.agents.envs.vector import make_env
from rltune.agents.errors import UserError
from rltune.agents.registry import BUILTIN, agent_class
from rltune.runs.directory import RunDir
from rltune.space.space import Space
from rltune.training.presets import presets

from tests.parameters import quick

SMALL = ("CartPole-v1", "Acrobot-v1")  # for the presets of any environment
ALL = [
    (agent, preset.name, env)
    for agent in BUILTIN
    for preset in presets(agent)
    for env in preset.env or SMALL
]
FIRST = list({(agent, name): (agent, name, env) for agent, name, env in reversed(ALL)}.values())
# An update of the real sizes takes up to a minute; nothing else is changed.
QUICK = {
    "n_envs": 2,
    "n_steps": 16,
    "n_epochs": 1,
    "learning_starts": 0,
    "buffer_size": 10_000,
    "train_freq": 8,
    "gradient_steps": 8,
}


@pytest.mark.parametrize(("agent", "name", "env"), quick(FIRST, ALL))
def test_every_preset_trains(
    agent: str, name: str, env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log where it runs
    settings = rltune.preset(agent, env, name)
    make_config(agent_class(agent).Config, settings)
    try:
        make_env(env).close()  # type: ignore[no-untyped-call]
    except UserError as error:
        pytest.skip(str(error))
    least = {key: min(QUICK[key], settings[key]) for key in QUICK.keys() & settings.keys()}
    one = Agent(agent, env, {**settings, **least}, total_timesteps=10_000, device="cpu")
    chunk = one.learn(one.algorithm.update_every)
    assert chunk.updates >= 1
    assert chunk.metrics
    assert all(math.isfinite(value) for value in chunk.metrics.values())


def test_each_is_there_once() -> None:
    assert len(set(ALL)) == len(ALL)


CONTINUOUS = {"LunarLanderContinuous-v3", "BipedalWalker-v3", "Pendulum-v1"}
MUJOCO = {"HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"}
CHOICES = {"CartPole-v1", "Acrobot-v1", "LunarLander-v3"}
ZOO = {
    "a2c": CONTINUOUS | MUJOCO | CHOICES | {"ALE/Pong-v5"},
    "ddpg": CONTINUOUS | MUJOCO,
    "dqn": CHOICES | {"ALE/Pong-v5"},
    "ppo": CONTINUOUS | MUJOCO | CHOICES | {"ALE/Pong-v5"},
    "sac": CONTINUOUS | MUJOCO | {"MinitaurBulletEnv-v0"},
    "td3": CONTINUOUS | MUJOCO,
    "trpo": CONTINUOUS | MUJOCO | CHOICES,
}


@pytest.mark.parametrize("agent", ZOO)
def test_the_zoos_settings_are_there(agent: str) -> None:
    assert {env for found, name, env in ALL if (found, name) == (agent, "zoo")} >= ZOO[agent]


@pytest.mark.parametrize(
    ("space", "env", "starts"),
    [
        ("acer", "Acrobot-v1", ["normalised", "baselines"]),
        ("acer", "CartPole-v1", ["normalised", "baselines"]),
        ("ppo-atari", "ALE/Breakout-v5", ["zoo"]),
        ("ppo", "MountainCar-v0", []),
        ("td3", "Hopper-v5", ["zoo"]),
    ],
)
def test_the_environment_of_a_file_takes_no_start_from_the_others(
    space: str, env: str, starts: list[str]
) -> None:
    assert [start.name for start in Space.load(space).starts_for(env)] == starts


def test_the_starts_of_an_agents_general_space_are_presets_of_any_environment() -> None:
    envs = {agent: {preset.env for preset in presets(agent)} for agent in ("acer", "ppo")}
    assert envs["acer"] == {()}
    assert () not in envs["ppo"]  # those of ppo-atari.yaml are for its environment
    assert ("ALE/Pong-v5",) in envs["ppo"]


def test_what_is_derived_follows_the_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "td3.yaml"
    file.write_text(
        "agent: td3\nspace: {train_freq: {pow2: [1, 16]}, gamma: {uniform: [0.9, 0.99]}}\n"
        "derived: {gradient_steps: train_freq}\n"
        "start: [{name: zoo, train_freq: 1, gamma: 0.98}]\n"
    )
    monkeypatch.setattr("rltune.space.space.shipped_spaces", lambda: {"td3": file})
    td3 = rltune.preset("td3", "Pendulum-v1")
    assert (td3["train_freq"], td3["gradient_steps"]) == (1, 1)
    changed = rltune.preset("TD3", "Pendulum-v1", "zoo", {"train_frequency": 8, "gamma": 0.9})
    assert (changed["train_freq"], changed["gradient_steps"], changed["gamma"]) == (8, 8, 0.9)
    both = rltune.preset("td3", "Pendulum-v1", changes={"train_freq": 8, "gradient_steps": 2})
    assert (both["train_freq"], both["gradient_steps"]) == (8, 2)


def test_what_the_file_fixes_is_part_of_it() -> None:
    pong = rltune.preset("ppo", "ALE/Pong-v5")
    assert (pong["frame_stack"], pong["normalize_rewards"], pong["n_steps"]) == (4, False, 128)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("td3", "Pendulum-v1", "fast"), "td3 has no preset 'fast' for Pendulum-v1; it has zoo"),
        (("td3", "CartPole-v1"), "no preset 'zoo' for CartPole-v1; it has zoo for Pendulum-v1,"),
        (("acer", "CartPole-v1"), "it has normalised for any environment; baselines for any envi"),
        (("toy:ToyAgent", "CartPole-v1"), "it has none at all"),
        (("td3", "Pendulum-v1", "zoo", {"gama": 1}), "unknown hyperparameter 'gama'"),
    ],
)
def test_mistakes_are_explained(arguments: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        rltune.preset(*arguments)
    assert message in str(error.value)


# ------------------------------------------------------------------------------ the command line


def test_flags_win_over_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = """train dqn --env CartPole-v1 --preset zoo -n 600 --batch-size 32 --learning-starts 0
        --eval-episodes 1 --eval-freq 600 --name one --wandb off --plain"""
    assert cli.main(line.split()) == 0
    config = RunDir.open("runs/one").spec["config"]
    assert (config["learning_rate"], config["train_freq"]) == (2.3e-3, 256)
    assert (config["batch_size"], config["learning_starts"]) == (32, 0)
    assert config["tau"] == 1.0  # the agent's own default


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--preset fast", "ppo has no preset 'fast' for CartPole-v1; it has zoo for CartPole-v1"),
        ("--preset zoo --config mine.yaml", "--preset and --config both give all hyperparameters"),
    ],
)
def test_wrong_flags_are_one_sentence(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "ppo", "--env", "CartPole-v1", *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_the_help_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "sac", "--help"])
    text = capsys.readouterr().out
    assert "--preset zoo " in text
    assert "MinitaurBulletEnv-v0" in text.split("presets of sac")[1]
