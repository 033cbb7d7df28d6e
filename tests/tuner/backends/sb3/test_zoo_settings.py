"""rl-zoo3's settings read for sb3: agents, and files that are up to no good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.backends.sb3.words import read_arguments, read_wrappers, written
from rltune.backends.sb3.zoo import read_zoo
from rltune.cli import main

ZOO = """
CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 32
  learning_rate: lin_0.001
  clip_range: lin_0.2
  normalize: true
  policy_kwargs: "dict(net_arch=dict(pi=[32, 32], vf=[32, 32]),
                       activation_fn=nn.ReLU, ortho_init=False, full_std=True)"

Acrobot-v1: &defaults
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  gamma: 0.98
  env_wrapper:
    - gymnasium.wrappers.NormalizeReward
    - mine.Skip:
        skip: 2

MountainCar-v0:
  <<: *defaults
  gamma: 0.99
  callback: [mine.First, mine.Second]
"""
SAC = """
Pendulum-v1:
  train_freq: [1, "episode"]
  gradient_steps: -1
  ent_coef: 0.1
  policy_kwargs: "dict(log_std_init=-3.67, net_arch=dict(pi=[8], qf=[16]))"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "zoo.yml"
    path.write_text(text)
    return path


def test_settings_become_hyperparameters(tmp_path: Path) -> None:
    found = read_zoo(write(tmp_path, ZOO), "sb3:PPO", "CartPole-v1")
    assert found.env_steps == 100_000
    assert found.config == {
        "n_envs": 8,
        "policy": "MlpPolicy",
        "n_steps": 32,
        "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
        "normalize": True,
        "net_arch": [32, 32],
        "activation_fn": "relu",
        "ortho_init": False,
        "policy_kwargs": "{'full_std': True}",
    }
    found = read_zoo(write(tmp_path, ZOO), "sb3:PPO", "MountainCar-v0")
    assert found.env_steps is None
    assert found.config == {
        "normalize": True,
        "norm_obs": True,
        "norm_reward": False,
        "gamma": 0.99,
        "env_wrapper": "gymnasium.wrappers:NormalizeReward, mine:Skip(skip=2)",
        "callback": "mine:First, mine:Second",
    }
    assert read_wrappers(found.config["env_wrapper"], "env_wrapper") == [
        ("gymnasium.wrappers:NormalizeReward", {}),
        ("mine:Skip", {"skip": 2}),
    ]
    assert read_zoo(write(tmp_path, SAC), "sb3:SAC", "Pendulum-v1").config == {
        "train_freq": 1,
        "train_freq_unit": "episode",
        "gradient_steps": -1,
        "ent_coef": "0.1",
        "log_std_init": -3.67,
        "policy_kwargs": "{'net_arch': {'pi': [8], 'qf': [16]}}",
    }


def test_they_are_a_start_of_a_search_and_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, ZOO)
    search = rltune.Search("sb3:PPO", "CartPole-v1", zoo=path, screen="none")
    starts = {start.origin: start.config for start in search.starts}
    found = next(config for config in starts.values() if config["ortho_init"] is False)
    assert found["net_arch"] == [32, 32]
    assert found["learning_rate"] == "lin_0.001"
    argv = ["train", "sb3:PPO", "--env", "CartPole-v1", "--zoo", str(path), "-n", "64"]
    assert main([*argv, "--n-steps", "8", "--eval-episodes", "1", "--name", "run", "--quiet"]) == 0
    config = rltune.load(tmp_path / "runs" / "run").agent.config
    assert (config.n_steps, config.n_envs, config.net_arch) == (8, 8, (32, 32))
    capsys.readouterr()
    for argv, said in (
        (["train", "ppo", "--env", "CartPole-v1"], "--zoo is for agents such as sb3:PPO"),
        (["train", "sb3:PPO", "--env", "Pong-v1"], "unknown environment 'Pong-v1'"),
        (["run", "sb3:DQN", "--env", "CartPole-v1"], "unknown hyperparameter 'clip_range'"),
        (["train", "sb3:PPO", "--env", "CartPole-v1", "--config", str(path)], "--zoo and --config"),
    ):
        assert main([*argv, "--zoo", str(path)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch hacked')",
        "dict(net_arch=__import__('os').system('touch hacked'))",
        "dict(activation_fn=nn.Module)",
        "dict(activation_fn=os.system)",
        "dict(optimizer_class=th.load)",
        "dict(**{'a': 1})",
        "dict([('a', 1)])",
        "[].__class__",
        "dict(a=(lambda: 1)())",
        "dict(a=[x for x in range(10**9)])",
        "dict(a=9**9**9)",
        "dict(a=1e999)",
        "dict(net_arch=[999999999])",
        "dict(a=" + "[" * 60 + "]" * 60 + ")",
        "(" * 5000,
        "dict(a=" + "-" * 5000 + "1)",
        "dict(a='" + "x" * 20_000 + "')",
        "dict(a=f'{1}')",
        "dict(a=b'1')",
        "dict(a=\0)",
        "{1: 2}",
        "open('x')",
        "nn.ReLU",
        "dict(a=1); import os",
    ],
)
def test_nothing_in_a_text_is_evaluated(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        read_arguments(text, "policy_kwargs")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no file of rl-zoo3"),
        ("- 1", "is no file of rl-zoo3"),
        ("CartPole-v1: 1", "is no file of rl-zoo3"),
        ("CartPole-v1: {n_steps: !!python/object:os.system x}", "the tag"),
        ("CartPole-v1: {n_steps: {a: 1}}", "n_steps must be one value"),
        ("CartPole-v1: {n_steps: much}", "must be a whole number"),
        ("CartPole-v1: {n_stepz: 1}", "did you mean 'n_steps'"),
        ("CartPole-v1: {n_timesteps: .inf}", "must be a number of env steps"),
        ("CartPole-v1: {env_kwargs: {a: 1}}", "give --env-kwargs"),
        ("CartPole-v1: {replay_buffer_class: HerReplayBuffer}", "has no counterpart here"),
        ("CartPole-v1: {normalize: 'dict(clip_obs=3)'}", "clip_obs has no counterpart"),
        ("CartPole-v1: {policy_kwargs: 'dict(a=exec(1))'}", "is not allowed there"),
        ("CartPole-v1: {policy_kwargs: {a: [1, {b: !!float x}]}}", "is not a number"),
        ("CartPole-v1: {callback: [{a: 1}]}", "must be callbacks"),
        ("CartPole-v1: {env_wrapper: [[1]]}", "must be wrappers"),
        ("CartPole-v1: {<<: 3}", "must name the settings"),
        ("CartPole-v1: {ortho_init: true, policy_kwargs: 'dict(ortho_init=True)'}", "given twice"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_a_sentence(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        read_zoo(write(tmp_path, text), "sb3:PPO", "CartPole-v1")
    assert "\n" not in str(caught.value)


def test_texts_are_read_back() -> None:
    text = "dict(net_arch=dict(pi=[1, 2], vf=[]), activation_fn=th.nn.Tanh, a=-0.5, b='x', c=None)"
    found = read_arguments(text, "policy_kwargs")
    assert read_arguments(written(found), "policy_kwargs") == found
    assert read_arguments(" ", "policy_kwargs") == {}
