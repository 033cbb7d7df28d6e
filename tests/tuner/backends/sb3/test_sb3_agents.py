"""Stable-Baselines3's algorithms as agents: real SB3, real Ray, real environments."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import rltune
import stable_baselines3
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from rltune.agents.config import canonical_name, config_dict, make_config
from rltune.agents.errors import UserError
from rltune.agents.loop.controls import Controls
from rltune.backends.registry import backend_of, check_fit, config_class
from rltune.backends.sb3.agent import SB3Agent
from rltune.backends.sb3.libraries import LIBRARIES
from rltune.space.space import shipped_spaces
from rltune.training.policy import Policy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.parameters import quick

ROLLOUT: dict[str, Any] = {"n_steps": 32, "n_envs": 2, "net_arch": [8]}
PPO: dict[str, Any] = {**ROLLOUT, "batch_size": 32, "n_epochs": 2}
REPLAY: dict[str, Any] = {
    "learning_starts": 20, "batch_size": 8, "buffer_size": 500, "net_arch": [8],
}  # fmt: skip
# Of each algorithm: an environment and small settings.
EVERY: dict[str, tuple[str, dict[str, Any]]] = {
    "A2C": ("CartPole-v1", ROLLOUT),
    "PPO": ("CartPole-v1", PPO),
    "TRPO": ("CartPole-v1", {**ROLLOUT, "batch_size": 32}),
    "DQN": ("CartPole-v1", REPLAY),
    "QRDQN": ("CartPole-v1", {**REPLAY, "n_quantiles": 5}),
    "SAC": ("Pendulum-v1", {**REPLAY, "use_sde": True}),
    "TD3": ("Pendulum-v1", {**REPLAY, "noise_type": "normal", "noise_std": 0.1}),
    "DDPG": ("Pendulum-v1", {**REPLAY, "n_envs": 2, "noise_std": 0.1, "n_steps": 3}),
    "TQC": ("Pendulum-v1", {**REPLAY, "ent_coef": "0.1", "n_quantiles": 5}),
    "CrossQ": ("Pendulum-v1", REPLAY),
}
SPACE = {
    "fixed": {"n_steps": 32, "n_envs": 2, "batch_size": 32, "net_arch": [8]},
    "space": {"learning_rate": {"log": [1e-4, 1e-2]}, "n_epochs": {"int": [1, 3]}},
}


class Breaking(CartPoleEnv):
    """Gives what is no number in its tenth step."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.n = what, 0

    def step(self, action: Any) -> Any:
        self.n += 1
        obs, reward, *rest = super().step(action)
        if self.n < 10:
            return obs, reward, *rest
        if self.what == "obs":
            obs = np.full(4, np.inf, np.float32)
        return obs, math.nan if self.what == "reward" else reward, *rest


class Pictures(gymnasium.Env[Any, Any]):
    """Images, and choices that count from 3."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def reset(self, **_: Any) -> Any:
        self.n = 0
        return np.zeros((36, 40, 3), np.uint8), {}

    def step(self, action: Any) -> Any:
        assert action in (3, 4)
        self.n += 1
        return np.full((36, 40, 3), self.n, np.uint8), 1.0, self.n >= 5, False, {}


def doubled(env: Any, factor: float = 2.0) -> Any:
    """A wrapper of the user's own."""
    return gymnasium.wrappers.TransformReward(env, lambda reward: factor * reward)


class Own(ActorCriticPolicy):
    """A policy of the user's own."""


class Counting(BaseCallback):
    """Sees the beginning once, and every step; ends the training if it is told to."""

    begun = steps = 0
    last = 10**9

    def _on_training_start(self) -> None:
        type(self).begun += 1

    def _on_step(self) -> bool:
        type(self).steps += self.training_env.num_envs
        return self.num_timesteps < type(self).last


def make(name: str = "PPO", env: str | None = None, **values: Any) -> SB3Agent:
    known, small = EVERY[name]
    return SB3Agent(f"sb3:{name}", env or known, {**small, **values}, total_timesteps=1000, seed=3)


def weights(agent: SB3Agent) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in agent._model.policy.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, second[key]) for key, value in first.items())


def test_names_and_defaults_are_sb3s() -> None:
    known = config_class("sb3:PPO")
    assert canonical_name(known, "lr") == "learning_rate"
    assert canonical_name(known, "activation") == "activation_fn"
    defaults = config_dict(make_config(known, {}))
    assert (defaults["n_steps"], defaults["learning_rate"], defaults["n_envs"]) == (2048, 3e-4, 1)
    assert config_dict(make_config(config_class("sb3:DQN"), {}))["buffer_size"] == 1_000_000
    with pytest.raises(UserError, match="did you mean 'clip_range'"):
        make_config(known, {"clip_rang": 0.1})
    with pytest.raises(UserError, match=r"choose one of: sb3:A2C, .*sb3:TRPO\."):
        config_class("sb3:A3C")
    assert set(EVERY) == set(LIBRARIES[0].modules)
    for name in EVERY:  # what a search tries without --space
        if (shipped := f"sb3-{name.lower()}") in shipped_spaces():
            space = rltune.Search(f"sb3:{name}", EVERY[name][0], screen="none").space
            assert shipped
            assert {"learning_rate", "gamma"} <= space.dimensions.keys()


@pytest.mark.parametrize("name", quick(EVERY.keys() - {"SAC", "TQC", "CrossQ"}, EVERY))
def test_every_algorithm_learns_evaluates_and_goes_on_from_a_checkpoint(
    name: str, tmp_path: Path
) -> None:
    agent = make(name)
    before = weights(agent)
    chunk = agent.learn(130)
    assert 130 <= chunk.env_steps < 130 + 64
    assert chunk.updates > 0
    assert chunk.diverged is None
    assert any("loss" in metric or metric == "policy_objective" for metric in chunk.metrics)
    assert not same(before, weights(agent))
    result = agent.evaluate(2, max_steps=30)
    assert agent.evaluate(2, max_steps=30).returns == result.returns
    agent.extra = {"seconds": 1.5}
    agent.save(tmp_path / "agent.pt")
    assert torch.load(tmp_path / "agent.pt", weights_only=True)["agent"] == f"sb3:{name}"
    for acts_only in (False, True):
        again = SB3Agent.load(tmp_path / "agent.pt", acts_only=acts_only)
        assert (again.env_steps, again.extra) == (agent.env_steps, agent.extra)
        assert (again.config, again.replays) == (agent.config, agent.replays)
        assert again.evaluate(2, max_steps=30).returns == result.returns
        assert same(weights(agent), weights(again))
        if not acts_only:
            assert again.learn(chunk.env_steps + 40).updates > 0
            assert not same(weights(agent), weights(again))
        again.close()
    agent.close()


@pytest.mark.parametrize("name", quick(("PPO", "DQN"), ("PPO", "SAC", "TD3", "DQN")))
def test_many_calls_are_one_training(name: str) -> None:
    values: dict[str, Any] = {"learning_rate": "lin_1e-2"}
    if name == "TD3":
        values |= {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.5}
    learned, rates = [], []
    for points in ([256], [10, 100, 101, 256]):
        agent = make(name, **values)
        rates.append([r for p in points for r in agent.learn(p).values.get("learning_rate", [])])
        learned.append(weights(agent))
        agent.close()
    assert rates[0] == rates[1]
    assert rates[0][-1] == pytest.approx(1e-2 * (1 - 256 / 1000), abs=1e-5)
    assert same(*learned)


def test_it_is_sb3s_own_training() -> None:
    seed = make()._model.seed
    venv = DummyVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))] * 2)
    model = stable_baselines3.PPO(
        "MlpPolicy",
        VecNormalize(venv, gamma=0.9),
        learning_rate=lambda remaining: 1e-2 * (1 - (1 - remaining)),  # rounded as ours
        n_steps=32,
        batch_size=32,
        n_epochs=2,
        gamma=0.9,
        seed=seed,
        policy_kwargs={"net_arch": [8]},
        device="cpu",
    )
    model.learn(1024)
    agent = make(normalize=True, learning_rate="lin_1e-2", gamma=0.9)
    agent.total_timesteps = 1024  # where the last rollout ends: behind it, SB3's rate is negative
    agent.learn(500)
    agent.evaluate(2)  # draws nothing that training draws
    chunk = agent.learn(1024)
    assert chunk.env_steps == model.num_timesteps == 1024
    theirs = model.policy.state_dict()
    assert all(torch.equal(value, theirs[key]) for key, value in weights(agent).items())
    agent.close()


def test_evaluations_see_what_training_sees(tmp_path: Path) -> None:
    agent = make(normalize=True, norm_reward=False, frame_stack=2)
    agent.learn(200)
    obs = np.ones((3, 8), np.float32)
    venv = agent._model.get_vec_normalize_env()
    assert venv is not None
    expected = (obs - venv.obs_rms.mean) / np.sqrt(venv.obs_rms.var + venv.epsilon)
    np.testing.assert_allclose(agent.normalised(obs), np.clip(expected, -10, 10), rtol=1e-5)
    agent.save(tmp_path / "agent.pt")
    again = SB3Agent.load(tmp_path / "agent.pt", acts_only=True)
    assert (again.normalised(obs) == agent.normalised(obs)).all()
    assert (
        again.evaluate(3, mode="stochastic").returns == agent.evaluate(3, mode="stochastic").returns
    )
    policy = Policy(again, tmp_path / "agent.pt")
    assert policy(np.zeros((3, 4), np.float32)).shape == (3,)
    assert rltune.play(policy, video=tmp_path / "play.gif", max_steps=3).lengths == [3]
    agent.close()


def test_images_and_choices_that_count_from_elsewhere() -> None:
    agent = make("DQN", "test_sb3_agents:Pictures", policy="auto", optimize_memory_usage=True)
    chunk = agent.learn(40)
    assert {episode.length for episode in chunk.episodes} == {5}
    assert type(agent._model.policy).__name__ == "CnnPolicy"
    assert agent.evaluate(2).returns == [5.0, 5.0]
    agent.close()


def test_a_replay_goes_on_where_it_was(tmp_path: Path) -> None:
    agent = make("SAC", n_steps=3)
    agent.learn(60)
    agent.save(tmp_path / "agent.pt")
    agent.save(tmp_path / "small.pt", memory=False)
    again = SB3Agent.load(tmp_path / "agent.pt")
    kept, loaded = agent._model.replay_buffer, again._model.replay_buffer  # type: ignore[attr-defined]
    assert (loaded.pos, loaded.full) == (60, False)
    assert (loaded.observations == kept.observations).all()
    assert (loaded.timeouts[59], loaded.dones[59]) == (1, 1)  # new episodes begin
    assert SB3Agent.load(tmp_path / "small.pt")._model.replay_buffer.pos == 0  # type: ignore[attr-defined]
    agent.close()
    again.close()


def test_hyperparameters_can_change_on_the_way() -> None:
    agent = make("SAC")
    agent.learn(60)
    learned = weights(agent)
    other = agent.with_config({**config_dict(agent.config), "gamma": 0.9})
    assert other is not agent
    assert other._model.gamma == 0.9  # type: ignore[attr-defined]
    assert other.env_steps == 60
    assert same(learned, weights(other))
    assert other.learn(70).updates == 10
    with pytest.raises(UserError, match="buffer_size is 500"):
        other.with_config({**config_dict(agent.config), "buffer_size": 600})
    other.close()


def test_policies_wrappers_and_callbacks_of_the_users_own(tmp_path: Path) -> None:
    Counting.begun = Counting.steps = 0
    agent = make(
        policy="test_sb3_agents:Own",
        env_wrapper="test_sb3_agents:doubled(factor=3)",
        callback="test_sb3_agents:Counting",
    )
    agent.learn(100)
    chunk = agent.learn(256)
    assert (Counting.begun, Counting.steps) == (1, 256)
    assert type(agent._model.policy).__name__ == "Own"
    assert all(e.episode_return == 3 * e.length for e in chunk.episodes)
    result = agent.evaluate(2)
    assert result.returns == [3 * length for length in result.lengths]
    agent.save(tmp_path / "agent.pt")
    again = SB3Agent.load(tmp_path / "agent.pt")
    assert again.env_kwargs == agent.env_kwargs
    assert again.evaluate(2).returns == result.returns
    again.close()
    agent.close()
    for name, value, said in (
        ("policy", "test_sb3_agents:Counting", "is no class of stable_baselines3's BasePolicy"),
        ("policy", "test_sb3_agents:Missing", "unknown policy in test_sb3_agents"),
        ("policy", "os:system", "module of Python's own"),
        ("policy", "LstmPolicy", "LstmPolicy unknown"),
        ("policy", "CnnPolicy", "does not fit these observations"),
        ("callback", "test_sb3_agents:Own", "is no class of stable_baselines3's BaseCallback"),
        ("env_wrapper", "subprocess:run", "module of Python's own"),
        ("env_wrapper", "test_sb3_agents:doubled(1)", "must be such as module:Class"),
    ):
        with pytest.raises(UserError, match=said):
            check_fit("sb3:PPO", "CartPole-v1", [{**PPO, name: value}], {}, has_data=True)


def test_a_callback_may_end_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "last", 100)
    agent = make(callback="test_sb3_agents:Counting")
    chunk = agent.learn(1000)
    assert chunk.env_steps == 100
    assert chunk.stop_reason == "the callback test_sb3_agents:Counting ended it"
    assert agent.finished
    agent.close()


@pytest.mark.parametrize(("what", "said"), [("obs", "an observation"), ("reward", "a reward")])
def test_numbers_that_are_none_are_the_environments(what: str, said: str) -> None:
    agent = SB3Agent(
        "sb3:PPO", "test_sb3_agents:Breaking", PPO, total_timesteps=100, env_kwargs={"what": what}
    )
    chunk = agent.learn(100)
    assert chunk.diverged is not None
    assert chunk.diverged.endswith(f"the environment gave {said} with NaN or infinity in it")
    assert agent.finished


def test_a_loss_that_is_no_number_is_a_divergence() -> None:
    agent = make(learning_rate=1e30)
    chunk = agent.learn(1000)
    assert chunk.diverged is not None
    assert agent.finished


def test_what_can_not_be_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="plateau"):
        SB3Agent("sb3:PPO", "CartPole-v1", total_timesteps=9, controls=Controls(plateau_patience=3))
    with pytest.raises(UserError, match="sb3:SAC is for Box actions"):
        make("SAC", "CartPole-v1")
    with pytest.raises(UserError, match="chooses among Discrete actions"):
        make("DQN", "Pendulum-v1")
    with pytest.raises(UserError, match="continuous actions"):
        make(use_sde=True)
    with pytest.raises(UserError, match="given twice"):
        make(policy_kwargs="dict(net_arch=[16])")
    with pytest.raises(UserError, match="share_feature"):
        make(policy_kwargs="dict(share_feature=True)")
    with pytest.raises(UserError, match="ent_coef is 'much'"):
        make("SAC", ent_coef="much")
    monkeypatch.setitem(sys.modules, "sbx", None)
    with pytest.raises(UserError, match=r'needs SBX, .*pip install "rltune\[sbx\]"'):
        backend_of("sbx:SAC").trainer("sbx:SAC")("sbx:SAC", "Pendulum-v1", total_timesteps=9)


def test_deadlines_are_kept() -> None:
    agent = make()
    assert agent.learn(1000, deadline=time.time()).env_steps == 64  # one rollout
    agent.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SAC", "PPO", "DQN", "TD3", "DDPG", "TQC", "CrossQ"])
def test_sbx_learns_and_goes_on(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sbx")
    env, values = EVERY[name]
    # SBX's TQC takes its quantiles in policy_kwargs.
    kept = {key: value for key, value in values.items() if key not in ("use_sde", "n_quantiles")}
    agent = SB3Agent(f"sbx:{name}", env, kept, total_timesteps=1000)
    assert agent.learn(130).updates > 0
    result = agent.evaluate(2, max_steps=30)
    agent.save(tmp_path / "agent.pt")
    again = SB3Agent.load(tmp_path / "agent.pt")
    assert again.evaluate(2, max_steps=30).returns == result.returns
    assert again.learn(200).updates > 0
    agent.close()
    again.close()
