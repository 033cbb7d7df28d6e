"""RLlib's algorithms in the place of our agents: real RLlib, real Ray, real environments."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import pytest
import rltune
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from ray.rllib.algorithms.registry import ALGORITHMS
from rltune.agents.config import canonical_name, config_dict, make_config
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError
from rltune.agents.loop.controls import Controls
from rltune.backends.registry import agent_type, config_class
from rltune.backends.rllib.agent import RLlibAgent
from rltune.backends.rllib.config import NAMES
from rltune.backends.rllib.internals import _is_sound, _learner, _replay
from rltune.training.policy import Policy

from tests.parameters import quick

SMALL: dict[str, Any] = {
    "learning_rate": 1e-3,
    "train_batch_size_per_learner": 128,
    "batch_size": 64,
    "n_epochs": 2,
    "n_envs": 4,
    "net_arch": [16],
}
LONG = 4000  # RLlib's default jumps over all evaluations of a trial here
TUNED = ("learning_rate", "train_batch_size_per_learner")
SPACE = {
    "fixed": {key: value for key, value in SMALL.items() if key not in TUNED},
    "space": {
        "learning_rate": {"log": [1e-4, 1e-2]},
        "train_batch_size_per_learner": {"choice": [128, LONG]},
    },
    "start": [{"train_batch_size_per_learner": 128}],
}
REPLAY = {
    "learning_starts": 32,
    "train_batch_size_per_learner": 16,
    "net_arch": [16],
}
IN_TURN = {"n_envs": 2, "rollout_fragment_length": 16, "train_batch_size_per_learner": 64}
DREAM = {"model_size": "nano", "training_ratio": 2, "batch_size_B": 2, "batch_length_T": 8}
FROM_DATA: dict[str, Any] = {"train_batch_size_per_learner": 32, "net_arch": [16]}
# Of each algorithm: an environment, small settings, and env_steps in which it updates.
EVERY: dict[str, tuple[str, dict[str, Any], int]] = {
    "PPO": ("CartPole-v1", SMALL, 200),
    "APPO": ("CartPole-v1", IN_TURN, 200),
    "IMPALA": ("CartPole-v1", IN_TURN, 200),
    "DQN": ("CartPole-v1", REPLAY, 60),
    "SAC": ("Pendulum-v1", REPLAY, 60),
    "TQC": ("Pendulum-v1", REPLAY, 60),
    "DreamerV3": ("CartPole-v1", {**DREAM, "horizon_H": 3}, 40),
    "BC": ("CartPole-v1", FROM_DATA, 200),
    "MARWIL": ("CartPole-v1", FROM_DATA, 200),
    "CQL": ("Pendulum-v1", FROM_DATA, 100),
    "IQL": ("Pendulum-v1", FROM_DATA, 100),
}
HEAVY = ("BC", "DQN", "SAC", "TQC", "DreamerV3", "CQL", "IQL", "MARWIL", "IMPALA", "APPO")
OFFLINE = ("BC", "MARWIL", "CQL", "IQL")


class Counted(CartPoleEnv):
    """Counts the steps that anybody takes."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counted.steps += 1
        return super().step(action)


class Goal(CartPoleEnv):
    """Every episode is a success."""

    def step(self, action: Any) -> Any:
        *step, _ = super().step(action)
        return (*step, {"is_success": True})


class Breaking(CartPoleEnv):
    """Goes wrong in its tenth step."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.n = how, 0

    def step(self, action: Any) -> Any:
        self.n += 1
        obs, reward, *rest = super().step(action)
        if self.n < 10:
            return obs, reward, *rest
        if self.how == "raise":
            raise ValueError("no more coal")
        if self.how == "obs":
            obs = np.full(4, np.inf, np.float32)
        return obs, math.nan if self.how == "reward" else reward, *rest


def record(folder: Path, env: str, n: int = 200, choose: Any = None) -> Path:
    """Write steps of random actions, or of those that are chosen, as RLlib names them."""
    made = gymnasium.make(env)
    made.action_space.seed(0)
    rows = []
    obs, _ = made.reset(seed=0)
    for _ in range(n):
        action = choose(obs) if choose else made.action_space.sample()
        new_obs, reward, terminated, truncated, _ = made.step(action)
        row = {"obs": obs.tolist(), "actions": np.asarray(action).tolist(), "rewards": reward}
        row |= {"new_obs": new_obs.tolist(), "terminateds": terminated, "truncateds": truncated}
        rows.append(row)
        obs = made.reset()[0] if terminated or truncated else new_obs
    path = folder / f"{env}.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    """One Ray for all tests of this module: starting it costs seconds."""
    from rltune.cluster.session import ray_session

    with ray_session():
        yield


def make(name: str = "rllib:PPO", env: str = "CartPole-v1", **options: Any) -> RLlibAgent:
    return RLlibAgent(name, env, SMALL, **{"total_timesteps": 1000, **options})


def weights(agent: RLlibAgent) -> dict[str, Any]:
    state = _learner(agent._rllib).module["default_policy"].get_state()
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
    with pytest.raises(UserError, match=r"rllib:PPO, rllib:APPO, .*rllib:MARWIL, rllib:CQL"):
        config_class("rllib:A3C")
    assert set(NAMES) == set(EVERY) >= set(ALGORITHMS)  # RLlib's registry


def test_what_rllib_cannot_do_is_said_in_a_sentence() -> None:
    with pytest.raises(UserError, match="plateau"):
        make(controls=Controls(plateau_patience=3))
    with pytest.raises(UserError, match="minibatch"):
        RLlibAgent("rllib:PPO", "CartPole-v1", {**SMALL, "batch_size": 256}, total_timesteps=10)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in HEAVY else ()) for n in EVERY]
)
def test_every_algorithm_learns_evaluates_and_goes_on_from_a_checkpoint(
    name: str, tmp_path: Path
) -> None:
    env, values, until = EVERY[name]
    if name in OFFLINE:
        values = {**values, "input": str(record(tmp_path, env))}
    agent = RLlibAgent(f"rllib:{name}", env, values, total_timesteps=1000, seed=1)
    before = weights(agent)
    chunk = agent.learn(until)
    assert until <= chunk.env_steps < 2 * until
    assert chunk.updates > 0
    assert chunk.diverged is None
    assert any("loss" in metric or "_L_total" in metric for metric in chunk.metrics)
    assert any((value != before[key]).any() for key, value in weights(agent).items())
    result = agent.evaluate(2, max_steps=30)
    assert agent.evaluate(2, max_steps=30).returns == result.returns
    agent.save(tmp_path / "agent.pt")
    again = RLlibAgent.load(tmp_path / "agent.pt")
    assert again.config == agent.config
    assert again.env_steps == agent.env_steps
    assert again.evaluate(2, max_steps=30).returns == result.returns
    assert all((value == weights(again)[key]).all() for key, value in weights(agent).items())
    further = again.learn(chunk.env_steps + until)
    assert further.updates > 0
    assert any((value != weights(again)[key]).any() for key, value in weights(agent).items())
    agent.close()
    again.close()
    assert not alive()


def alive() -> list[Any]:
    """Leftovers of RLlib: threads of learners, and actors of Ray."""
    from ray._private.state import actors

    threads = [thread for thread in threading.enumerate() if "Learner" in thread.name]
    return threads + [value for value in actors().values() if value["State"] == "ALIVE"]


@pytest.mark.parametrize("name", quick(["PPO"], ["PPO", "APPO", "IMPALA"]))
def test_env_steps_are_those_that_were_taken(name: str) -> None:
    _, values, _ = EVERY[name]
    agent = RLlibAgent(f"rllib:{name}", "test_rllib:Counted", values, total_timesteps=1000)
    Counted.steps = 0
    for until in (100, 101, 300):
        assert agent.learn(until).env_steps == agent.env_steps == Counted.steps >= until
    agent.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["APPO", "IMPALA"])
def test_what_learns_beside_in_rllib_learns_in_turn_here(name: str) -> None:
    _, values, _ = EVERY[name]
    learned = []
    for _ in range(2):
        agent = RLlibAgent(f"rllib:{name}", "CartPole-v1", values, total_timesteps=1000, seed=7)
        agent.learn(300)
        learner = _learner(agent._rllib)
        assert not learner._learner_thread.is_alive()
        assert not learner._learner_thread_in_queue.qsize()
        learned.append(weights(agent))
        agent.close()
    assert all((value == learned[1][key]).all() for key, value in learned[0].items())
    with pytest.raises(UserError, match="learns on the CPU"):
        RLlibAgent(f"rllib:{name}", "CartPole-v1", {}, total_timesteps=9, device="cuda")


def test_offline_algorithms_learn_from_data(tmp_path: Path) -> None:
    def choose(obs: Any) -> int:
        return int(obs[2] + obs[3] > 0)  # keeps the pole up for long

    path = record(tmp_path, "CartPole-v1", 1000, choose)
    values = {"input": str(path), "lr": 1e-2, "train_batch_size_per_learner": 128}
    agent = RLlibAgent("rllib:BC", "CartPole-v1", values, total_timesteps=10_000, seed=0)
    before = agent.evaluate(5, max_steps=200).mean
    agent.learn(8000)
    assert before < 60
    assert agent.evaluate(5, max_steps=200).mean > 120
    agent.close()


def test_wrong_data_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = record(tmp_path, "CartPole-v1", 20)
    frame = pd.read_parquet(path)
    frame.drop(columns="new_obs").to_parquet(tmp_path / "short.parquet")
    frame.iloc[:0].to_parquet(tmp_path / "empty.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    for env, file, said in (
        ("CartPole-v1", "", "rllib:BC learns from recorded data: give --input"),
        ("CartPole-v1", "nowhere", "there is no such file or folder"),
        ("CartPole-v1", "short.parquet", "has no column 'new_obs'"),
        ("CartPole-v1", "empty.parquet", "has no steps"),
        ("CartPole-v1", "text.parquet", "is no Parquet"),
        ("Acrobot-v1", path.name, r"obs are of shape \(4,\), but those .* \(6,\)"),
    ):
        values = {"input": str(tmp_path / file)} if file else {}
        with pytest.raises(UserError, match=said):
            RLlibAgent("rllib:BC", env, values, total_timesteps=9)


def test_recorded_actions_become_those_of_the_network(tmp_path: Path) -> None:
    from rltune.backends.rllib.offline import read_steps

    path = record(tmp_path, "Pendulum-v1", 20)
    space = gymnasium.make("Pendulum-v1")
    steps = read_steps(str(path), space.observation_space, space.action_space)
    agent = RLlibAgent(
        "rllib:BC", "Pendulum-v1", {**FROM_DATA, "input": str(path)}, total_timesteps=9
    )
    kept = agent._rllib.offline_data._steps["actions"]
    np.testing.assert_allclose(kept * 2, steps["actions"], rtol=1e-6)  # bounds of -2 and 2
    agent.close()


def test_successes_are_counted() -> None:
    agent = RLlibAgent("rllib:PPO", "test_rllib:Goal", SMALL, total_timesteps=100)
    assert agent.evaluate(3).success_rate == 1.0
    agent.close()


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


@pytest.mark.parametrize("env", quick(["CartPole-v1"], ["CartPole-v1", "Pendulum-v1"]))
def test_an_evaluation_does_what_the_module_does(env: str) -> None:
    agent = make("rllib:PPO", env, seed=3)
    before = weights(agent)
    result = agent.evaluate(3, max_steps=50)
    assert result == agent_of(result, agent.evaluate(3, max_steps=50))
    module = agent._rllib.get_module()
    from rltune.agents.loop.evaluation import Seeds

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
    again = agent_type("rllib:PPO", "CartPole-v1").load(
        path, env="CartPole-v1", algorithm="rllib:PPO"
    )
    assert isinstance(again, RLlibAgent)
    assert again.env_steps == agent.env_steps
    policy = Policy(again, path)
    assert policy(np.zeros((3, 4), np.float32)).shape == (3,)
    with pytest.raises(UserError, match="only greedy actions can be asked for"):
        policy.act(np.zeros(4, np.float32), deterministic=False)
    with pytest.raises(UserError, match="can only be evaluated greedily"):
        again.evaluate(1, mode="stochastic")
    assert rltune.play(policy, video=tmp_path / "play.gif", max_steps=3).lengths == [3]
    assert again.extra == agent.extra
    assert again.config == agent.config
    assert again.monitor.state_dict() == agent.monitor.state_dict()
    assert again.evaluate(2).returns == agent.evaluate(2).returns
    # The adaptive weight of the KL penalty is not in RLlib's own state.
    kept = _learner(agent._rllib).curr_kl_coeffs_per_module["default_policy"]
    assert float(kept) != 0.2
    assert float(_learner(again._rllib).curr_kl_coeffs_per_module["default_policy"]) == float(kept)
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


@pytest.mark.parametrize(("how", "said"), [("obs", "an observation"), ("reward", "a reward")])
def test_numbers_that_are_none_are_the_environments(how: str, said: str) -> None:
    agent = make(env="test_rllib:Breaking", env_kwargs={"how": how})
    chunk = agent.learn(1000)
    assert chunk.diverged is not None
    assert chunk.diverged.endswith(f"the environment gave {said} with NaN or infinity in it")
    assert agent.finished
    agent.close()


def test_what_an_environment_raises_is_told() -> None:
    agent = make(env="test_rllib:Breaking", env_kwargs={"how": "raise"})
    with pytest.raises(ValueError, match="no more coal"):
        agent.learn(1000)
    agent.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DQN", "SAC", "TQC", "DreamerV3"])
def test_agents_with_a_replay_keep_it(tmp_path: Path, name: str) -> None:
    env, values, until = EVERY[name]
    agent = RLlibAgent(f"rllib:{name}", env, values, total_timesteps=1000)
    agent.learn(until)
    agent.save(tmp_path / "agent.pt")
    again = RLlibAgent.load(tmp_path / "agent.pt")
    kept = [_replay(each._rllib).get_num_timesteps() for each in (agent, again)]
    assert kept[0] == kept[1] >= until - 1
    agent.close()
    again.close()


def search(folder: Path, **options: Any) -> rltune.SearchResult:
    values = {
        "budget": 600,
        "trials": 3,
        "evaluations": 3,
        "eval_episodes": 3,
        "wandb": "off",
        "report": False,
    }
    values |= {"screen": "none", "name": "run", "tournament": False} | options
    return rltune.Search("rllib:PPO", "CartPole-v1", SPACE, storage_path=folder, **values).run()


@pytest.mark.slow
def test_a_search_of_rllibs_ppo(tmp_path: Path) -> None:
    result = search(tmp_path, tournament=True, test_seeds=1, finalists=1)
    trials, history = result.trials(), result.history()
    assert list(trials["state"]) == ["COMPLETE"] * 3
    long = trials["config.train_batch_size_per_learner"] == LONG
    assert long[0]
    assert not long[1]
    tuned = history[history.role == "tune"].set_index("trial")
    for trial, jumps in zip(trials["trial"], long, strict=True):
        rows = tuned.loc[[trial]]
        # An iteration that jumps over points counts where it arrived, once.
        assert list(rows["iteration"]) == ([3] if jumps else [1, 2, 3])
        assert (rows["env_steps"] >= rows["iteration"] * 200).all()
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
        "report=False, tournament=False).run()"
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
