"""RLlib's algorithms in the place of our agents: real RLlib, real Ray, real environments."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rltune
import torch
from rltune.agents.config import canonical_name, config_dict, make_config
from rltune.agents.controls import Controls
from rltune.agents.envs import Envs
from rltune.agents.errors import UserError
from rltune.learners import agent_type, config_class
from rltune.rllib import RLlibAgent, _is_sound

SMALL: dict[str, Any] = {
    "learning_rate": 1e-3,
    "train_batch_size_per_learner": 128,
    "batch_size": 64,
    "n_epochs": 2,
    "n_envs": 4,
    "net_arch": [16],
}
SPACE = {
    "fixed": {key: value for key, value in SMALL.items() if key != "learning_rate"},
    "space": {"learning_rate": {"log": [1e-4, 1e-2]}},
}
REPLAY = {
    "learning_starts": 32,
    "train_batch_size_per_learner": 16,
    "net_arch": [16],
}


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """One Ray for all tests of this module: starting it costs seconds."""
    from rltune.launch import ray_session

    with ray_session():
        yield


def make(name: str = "rllib:PPO", env: str = "CartPole-v1", **options: Any) -> RLlibAgent:
    values = SMALL if name.endswith("PPO") else REPLAY
    return RLlibAgent(name, env, values, **{"total_timesteps": 1000, **options})


def weights(agent: RLlibAgent) -> dict[str, Any]:
    state = agent._rllib.get_module().get_state()
    return {key: np.asarray(value) for key, value in state.items()}


def test_names_are_rllibs_and_ours_are_understood() -> None:
    known = config_class("rllib:PPO")
    assert canonical_name(known, "learning_rate") == "lr"
    assert canonical_name(known, "--gae-lambda") == "lambda_"
    assert canonical_name(known, "lambda") == "lambda_"
    assert canonical_name(known, "batch_size") == "minibatch_size"
    assert canonical_name(known, "n_envs") == "num_envs_per_env_runner"
    assert canonical_name(known, "net_arch") == "fcnet_hiddens"
    assert config_dict(make_config(known, {}))["lr"] == 5e-5  # RLlib's own default
    with pytest.raises(UserError, match="did you mean 'clip_param'"):
        make_config(known, {"clip_parm": 0.1})
    with pytest.raises(UserError, match="the same"):
        make_config(known, {"lr": 0.1, "learning_rate": 0.1})
    with pytest.raises(UserError, match="rllib:PPO, rllib:DQN, rllib:SAC"):
        config_class("rllib:BC")


def test_what_rllib_cannot_do_is_said_in_a_sentence() -> None:
    with pytest.raises(UserError, match="plateau"):
        make(controls=Controls(plateau_patience=3))
    with pytest.raises(UserError, match="minibatch"):
        RLlibAgent("rllib:PPO", "CartPole-v1", {**SMALL, "batch_size": 256}, total_timesteps=10)


def test_training_counts_what_rllib_sampled_and_goes_over_by_less_than_an_iteration() -> None:
    agent = make()
    seen = 0
    for until in (100, 300):
        chunk = agent.learn(until)
        assert until <= chunk.env_steps < until + 2 * SMALL["train_batch_size_per_learner"]
        assert chunk.env_steps == agent.env_steps
        seen += sum(episode.length for episode in chunk.episodes)
        assert {"total_loss", "policy_loss", "vf_loss", "entropy"} <= set(chunk.metrics)
    assert 0 < seen <= agent.env_steps
    # CartPole pays 1 a step, also for episodes that a rollout's end has cut in two.
    assert all(e.episode_return == e.length for e in chunk.episodes)
    past = agent.learn(100_000, deadline=time.time())
    assert past.env_steps < 1000
    agent.close()


@pytest.mark.parametrize(
    ("name", "env"), [("rllib:PPO", "CartPole-v1"), ("rllib:PPO", "Pendulum-v1")]
)
def test_an_evaluation_does_what_the_module_does(name: str, env: str) -> None:
    agent = make(name, env, seed=3)
    before = weights(agent)
    result = agent.evaluate(3, max_steps=50)
    assert result == agent_of(result, agent.evaluate(3, max_steps=50))
    module = agent._rllib.get_module()
    from rltune.agents.agent import Seeds

    envs = Envs(env, 3, seed=Seeds.of(3).evaluation, max_episode_steps=50, training=False)
    obs, returns, ended = envs.reset(), np.zeros(3), np.zeros(3, bool)
    space = envs.single_action_space
    while not ended.all():
        with torch.no_grad():
            logits = module.forward_inference({"obs": torch.from_numpy(obs)})["action_dist_inputs"]
        if env == "CartPole-v1":
            action = logits.argmax(-1).numpy()
        else:  # the mean, from [-1, 1] to the bounds
            mean = logits[:, :1].clamp(-1, 1).numpy()
            action = space.low + (mean + 1) * (space.high - space.low) / 2
        step = envs.step(action)
        returns += np.where(ended, 0, step.reward)
        ended |= step.terminated | step.truncated
        obs = step.obs
    np.testing.assert_allclose(result.returns, returns, rtol=1e-5)
    assert all((before[key] == value).all() for key, value in weights(agent).items())
    agent.close()


def agent_of(first: Any, second: Any) -> Any:
    """The second evaluation with the first one's time."""
    from dataclasses import replace

    return replace(second, seconds=first.seconds)


def test_a_checkpoint_goes_on_and_is_no_pickle(tmp_path: Path) -> None:
    agent = make(seed=5)
    agent.learn(300)
    agent.extra = {"seconds": 1.5}
    path = tmp_path / "agent.pt"
    agent.save(path)
    assert torch.load(path, weights_only=True)["agent"] == "rllib:PPO"
    again = agent_type("rllib:PPO").load(path, env="CartPole-v1", algorithm="rllib:PPO")
    assert isinstance(again, RLlibAgent)
    assert again.env_steps == agent.env_steps
    assert again.extra == agent.extra
    assert again.config == agent.config
    assert again.monitor.state_dict() == agent.monitor.state_dict()
    assert again.evaluate(2).returns == agent.evaluate(2).returns
    # The adaptive weight of the KL penalty is not in RLlib's own state.
    kept = agent._learner().curr_kl_coeffs_per_module["default_policy"]
    assert float(kept) != 0.2
    assert float(again._learner().curr_kl_coeffs_per_module["default_policy"]) == float(kept)
    steps = again.env_steps
    assert again.learn(steps + 1).env_steps > steps
    with pytest.raises(UserError, match="not of 'Acrobot-v1'"):
        RLlibAgent.load(path, env="Acrobot-v1")
    agent.close()
    again.close()


def test_a_loss_that_is_no_number_is_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _is_sound("vf_explained_var", math.nan)
    agent = make()
    result = agent._rllib.train()
    result["learners"]["default_policy"]["vf_loss"] = math.nan
    monkeypatch.setattr(agent._rllib, "train", lambda: result)
    chunk = agent.learn(1000)
    assert chunk.diverged is not None
    assert chunk.diverged.startswith("non-finite vf_loss")
    assert agent.finished
    monkeypatch.undo()
    agent.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env"), [("rllib:DQN", "CartPole-v1"), ("rllib:SAC", "Pendulum-v1")]
)
def test_agents_with_a_replay_keep_it(tmp_path: Path, name: str, env: str) -> None:
    agent = make(name, env)
    agent.learn(60)
    agent.save(tmp_path / "agent.pt")
    again = RLlibAgent.load(tmp_path / "agent.pt")
    replay = again._rllib.local_replay_buffer
    assert replay.get_num_timesteps() == agent._rllib.local_replay_buffer.get_num_timesteps()
    assert again.evaluate(2).returns == agent.evaluate(2).returns
    assert again.learn(70).metrics
    agent.close()
    again.close()


def search(folder: Path, **options: Any) -> rltune.SearchResult:
    values = {"budget": 600, "trials": 3, "evaluations": 3, "eval_episodes": 3, "wandb": "off"}
    values |= {"screen": "none", "name": "run", "tournament": False} | options
    return rltune.Search("rllib:PPO", "CartPole-v1", SPACE, storage_path=folder, **values).run()


@pytest.mark.slow
def test_a_search_of_rllibs_ppo(tmp_path: Path) -> None:
    result = search(tmp_path, tournament=True, test_seeds=1, finalists=1)
    trials, history = result.trials(), result.history()
    assert list(trials["state"]) == ["COMPLETE"] * 3
    assert trials.loc[0, "config.train_batch_size_per_learner"] == 4000  # RLlib's default
    tuned = history[(history.role == "tune") & (history.trial > 0)]
    assert list(tuned["iteration"]) == [1, 2, 3] * 2
    assert (tuned["env_steps"] >= tuned["iteration"] * 200).all()
    # An iteration that jumps over points counts where it arrived, once.
    assert list(history.loc[history.trial == 0, "iteration"].unique()) == [3]
    assert result.answer is not None
    command = (result.path / "best" / "command.txt").read_text()
    assert command.startswith("rltune train rllib:PPO --env CartPole-v1 -n 600")
    agent = RLlibAgent.load(result.path / "best" / "checkpoint.pt")
    assert agent.env_steps >= 600
    agent.close()


@pytest.mark.slow
def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    code = (
        f"import rltune; rltune.Search('rllib:PPO', 'CartPole-v1', {SPACE!r}, budget=3000, "
        f"trials=3, wandb='off', storage_path={str(tmp_path)!r}, name='run', screen='plain', "
        "tournament=False).run()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "finished" in line:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = rltune.open(tmp_path / "run").history()
    assert len(before)
    result = rltune.resume(tmp_path / "run", screen="none")
    history = result.history()
    assert list(result.trials()["state"]) == ["COMPLETE"] * 3
    assert not history.duplicated(["trial", "seed", "iteration"]).any()
    keys = ["trial", "seed", "iteration"]
    assert len(before.merge(history, on=keys)) == len(before)
