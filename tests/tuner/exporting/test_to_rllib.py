"""Exports to RLlib: what they say, and that they run."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rltune
from exporting import training
from rltune.agents.errors import UserError

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": (
        "ppo",
        "CartPole-v1",
        {"n_envs": 2, "n_steps": 32, "batch_size": 16, "n_epochs": 2, "learning_rate": "lin_1e-3"},
    ),
    "ppo-box": (
        "ppo",
        "Pendulum-v1",
        {"n_envs": 2, "n_steps": 32, "n_minibatches": 2, "normalize_rewards": False},
    ),
    "dqn": (
        "dqn",
        "CartPole-v1",
        {"learning_starts": 20, "dueling": True, "prioritised": True, "distributional": "c51"},
    ),
    "sac": ("sac", "Pendulum-v1", {"learning_starts": 20, "ent_coef": "0.2", "train_freq": 4}),
    "rllib:PPO": (
        "rllib:PPO",
        "CartPole-v1",
        {"train_batch_size_per_learner": 64, "minibatch_size": 32},
    ),
    "rllib:DQN": ("rllib:DQN", "CartPole-v1", {"fcnet_hiddens": [16, 16], "n_step": 2}),
    "rllib:SAC": ("rllib:SAC", "Pendulum-v1", {"actor_lr": 1e-3, "grad_clip": 2.0}),
}


# Observations that are no vectors by themselves.
DISCRETE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo-discrete": (
        "ppo",
        "FrozenLake-v1",
        {"n_envs": 2, "n_steps": 32, "batch_size": 16, "n_epochs": 1},
    ),
    "dqn-discrete": ("dqn", "CliffWalking-v1", {"learning_starts": 20, "batch_size": 16}),
    "rllib:PPO-discrete": (
        "rllib:PPO",
        "FrozenLake-v1",
        {"train_batch_size_per_learner": 64, "minibatch_size": 32},
    ),
    "ppo-counts": (
        "ppo",
        "toy_envs:Counts",
        {"n_envs": 2, "n_steps": 32, "batch_size": 16, "n_epochs": 1},
    ),
}
CASES |= DISCRETE


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the toy environments importable, here and in scripts."""
    folder = str(Path(__file__).parents[2] / "agents")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder)


def exported(case: str, folder: Path) -> str:
    agent, env, config = CASES[case]
    run = training(folder, agent, env, config, total_timesteps=64)
    return rltune.export(run, to="rllib", own_code=True)


def configuration(text: str, folder: Path) -> Any:
    """Return the AlgorithmConfig of a script, without training."""
    config = runpy.run_path(write(text, folder), run_name="script")["config"]
    config.validate()
    return config


def write(text: str, folder: Path) -> str:
    (folder / "script.py").write_text(text)
    return str(folder / "script.py")


def test_ppo_in_rllibs_words(tmp_path: Path) -> None:
    text = exported("ppo", tmp_path)
    assert "# RLlib cannot set optimizer_eps: 1e-05 here, 1e-08 there" in text
    config = configuration(text, tmp_path)
    assert config.lr == [[0, 1e-3], [64, 0.0]]
    assert config.train_batch_size_per_learner == 64
    assert (config.minibatch_size, config.num_epochs) == (16, 2)
    assert config.use_kl_loss is False
    assert config.vf_clip_param == float("inf")
    assert config.model_config["fcnet_hiddens"] == [64, 64]
    assert not config.model_config["vf_share_layers"]
    box = configuration(exported("ppo-box", tmp_path), tmp_path)
    assert box.model_config["free_log_std"]
    assert (box.normalize_actions, box.clip_actions) == (False, True)
    assert box.minibatch_size == 32


def test_replay_in_rllibs_words(tmp_path: Path) -> None:
    config = configuration(exported("dqn", tmp_path), tmp_path)
    assert config.training_intensity == config.train_batch_size_per_learner  # an update a step
    assert config.replay_buffer_config["type"] == "PrioritizedEpisodeReplayBuffer"
    assert config.replay_buffer_config["capacity"] == 100_000
    assert (config.num_atoms, config.dueling, config.double_q) == (51, True, False)
    assert config.model_config["fcnet_hiddens"] == [256]
    assert config.model_config["head_fcnet_hiddens"] == [256]
    config = configuration(exported("sac", tmp_path), tmp_path)
    assert (config.initial_alpha, config.alpha_lr) == (0.2, 0.0)
    assert config.training_intensity == 64  # of 256 rows, an update each 4 steps


def test_a_time_limit_of_ones_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    limit = {"max_episode_steps": 7}
    run = training(tmp_path, "ppo", "toy:GoalEnv", {}, env_kwargs={"goal": 0.25, **limit})
    text = rltune.export(run, to="rllib", own_code=True)
    env = runpy.run_path(write(text, tmp_path), run_name="script")["make_env"]({"goal": 0.25})
    env.reset()
    assert [env.step(env.action_space.sample())[3] for _ in range(7)] == [False] * 6 + [True]
    assert '"goal": 0.25}' in text
    assert "max_episode_steps" not in text


def test_what_rllib_has_no_equal_for_is_named(tmp_path: Path) -> None:
    for agent, env, config, message in (
        ("ppo", "CartPole-v1", {"lstm_size": 32}, "no equal for lstm_size"),
        ("ppo", "CartPole-v1", {"clip_range": "lin_0.2"}, "no equal for clip_range"),
        ("dqn", "CartPole-v1", {"noisy": True, "huber_delta": 2.0}, "huber_delta .*, noisy"),
        ("td3", "Pendulum-v1", {}, "RLlib has no 'td3'"),
        ("sac", "CartPole-v1", {}, "Box actions alone"),
    ):
        with pytest.raises(UserError, match=message):
            rltune.export(training(tmp_path, agent, env, config), to="rllib")


@pytest.mark.parametrize("case", DISCRETE)
def test_discrete_observations_are_what_our_agents_see(case: str, tmp_path: Path) -> None:
    from rltune.agents.envs.make import make_env

    text = exported(case, tmp_path)
    theirs = runpy.run_path(write(text, tmp_path), run_name="script")["make_env"]({})
    ours = make_env(CASES[case][1])
    assert theirs.observation_space.dtype == np.float32
    seen = [env.reset(seed=1)[0] for env in (theirs, ours)]
    for action in (1, 1, 0, 1):
        np.testing.assert_array_equal(*seen)
        seen = [env.step(action)[0] for env in (theirs, ours)]


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("rllib:")])
def test_rllibs_own_are_as_they_were(case: str, tmp_path: Path) -> None:
    from rltune.backends.rllib.config import config_class

    text = exported(case, tmp_path)
    agent, _, values = CASES[case]
    config = configuration(text, tmp_path)
    for name, value in {**vars(config_class(agent)()), **values}.items():
        known = config.model_config.get(name, getattr(config, name, None))
        value = list(value) if isinstance(value, tuple) else value
        assert known == (value if name != "grad_clip" else value or None), name


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ppo-discrete", "ppo-counts"])
def test_a_script_for_discrete_observations_runs(case: str, tmp_path: Path) -> None:
    run_script(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_script_runs(case: str, tmp_path: Path) -> None:
    run_script(case, tmp_path)


def run_script(case: str, tmp_path: Path) -> None:
    text = exported(case, tmp_path)
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    saved = Path(done.stdout.strip().splitlines()[-1])
    assert saved.exists()
    steps = [int(line.split()[0]) for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert steps[-1] >= 64
