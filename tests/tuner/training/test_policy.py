"""A policy acts on the environment itself as its agent does in evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import rltune
from rltune.agents import Agent
from rltune.agents.envs.vector import episode_seed
from rltune.runs.directory import RunDir

SMALL = {"n_envs": 2, "n_steps": 8, "net_arch": [16]}
REPLAYS = {"learning_starts": 8, "buffer_size": 100, "net_arch": [16]}
KINDS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("ppo", "CartPole-v1", SMALL, {}),
    ("ppo", "CartPole-v1", {**SMALL, "frame_stack": 3}, {}),
    ("ppo", "Taxi-v3", SMALL, {}),  # a Discrete observation
    ("a2c", "toy_envs:Still", {**SMALL, "lstm_size": 8}, {}),
    ("sac", "Pendulum-v1", REPLAYS, {}),
    ("dqn", "toy_envs:Fenced", REPLAYS, {"where": "info"}),
    ("ppo", "toy_envs:Fenced", SMALL, {"where": "dict", "counts": [3, 4]}),
    ("ppo", "toy_envs:FencedPicture", {"n_envs": 2, "n_steps": 8}, {}),
    ("ppo", "toy_envs:Camera", {"n_envs": 2, "n_steps": 8}, {"masked": True}),
]


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "agents"))


def trained(path: Path, agent: str, env: str, config: Any, kwargs: Any = None) -> Agent:
    made = Agent(agent, env, config, total_timesteps=100, env_kwargs=kwargs)
    made.learn(48)
    made.save(path)
    return made


@pytest.mark.parametrize(("agent", "env", "config", "kwargs"), KINDS)
def test_it_plays_the_episodes_that_evaluations_have(
    agent: str, env: str, config: dict[str, Any], kwargs: dict[str, Any], tmp_path: Path
) -> None:
    made = trained(tmp_path / "agent.pt", agent, env, config, kwargs)
    wanted = made.evaluate(2, seed=5, max_steps=40)
    policy = rltune.load(tmp_path / "agent.pt")
    own = policy.make_env()
    for number, value in enumerate(wanted.returns):
        policy.reset()
        obs, info = own.reset(seed=episode_seed(5, number))
        total, done, steps = 0.0, False, 0
        while not done and steps < 40:
            action = policy(obs, mask=info.get("action_mask"))
            assert own.action_space.contains(action)
            obs, reward, terminated, truncated, info = own.step(action)
            total, done, steps = total + float(reward), terminated or truncated, steps + 1
        assert (steps, total) == (wanted.lengths[number], pytest.approx(value))


@pytest.mark.parametrize(("agent", "env", "config", "kwargs"), KINDS)
def test_a_batch_has_the_actions_of_its_observations(
    agent: str, env: str, config: dict[str, Any], kwargs: dict[str, Any], tmp_path: Path
) -> None:
    trained(tmp_path / "agent.pt", agent, env, config, kwargs).close()
    alone, together = (rltune.load(tmp_path / "agent.pt") for _ in range(2))
    both = gymnasium.vector.SyncVectorEnv([alone.make_env] * 2)
    obs, info = both.reset(seed=1)
    first: list[Any] = []
    for step in range(3):
        masks = info.get("action_mask")
        # In the second step, the second environment begins a new episode.
        starts = [False, step == 1]
        actions = together(obs, episode_start=starts, mask=masks)
        one = {key: value[1] for key, value in obs.items()} if isinstance(obs, dict) else obs[1]
        mask = None if masks is None else masks[1]
        if step == 1:
            alone.reset()
        np.testing.assert_allclose(actions[1], alone(one, mask=mask), rtol=1e-4)
        first.append(actions)
        obs, _, _, _, info = both.step(actions)


def test_exploring_draws(tmp_path: Path) -> None:
    config = {**SMALL, "use_sde": True}
    for agent, settings in (("ppo", config), ("sac", REPLAYS), ("td3", REPLAYS)):
        trained(tmp_path / "agent.pt", agent, "Pendulum-v1", settings).close()
        policy = rltune.load(tmp_path / "agent.pt")
        obs = np.ones((3, 3), np.float32)
        assert len(np.unique(policy(obs))) == 1
        assert len(np.unique(policy.act(obs, deterministic=False))) > 1
        assert policy.act(obs[0], deterministic=False).shape == (1,)


@pytest.fixture
def cartpole(tmp_path: Path) -> rltune.Policy:
    trained(tmp_path / "agent.pt", "ppo", "CartPole-v1", {**SMALL, "lstm_size": 4}).close()
    return rltune.load(tmp_path / "agent.pt")


def test_what_does_not_fit_is_said(cartpole: rltune.Policy, tmp_path: Path) -> None:
    with pytest.raises(rltune.UserError, match=r"shape \(3,\) is not of 'CartPole-v1'"):
        cartpole(np.zeros(3))
    with pytest.raises(rltune.UserError, match="mask: leave it out"):
        cartpole(np.zeros(4), mask=[1, 1])
    cartpole(np.zeros((2, 4)))
    with pytest.raises(rltune.UserError, match=r"episode_start: 2 observations, but shape \(3,\)"):
        cartpole(np.zeros((2, 4)), episode_start=[True, False, False])
    with pytest.raises(rltune.UserError, match=r"3 observations after 2.*reset"):
        cartpole(np.zeros((3, 4)))
    with pytest.raises(rltune.UserError, match="not of 'Acrobot-v1'"):
        rltune.load(tmp_path / "agent.pt", env="Acrobot-v1")
    trained(tmp_path / "fenced.pt", "ppo", "toy_envs:Fenced", SMALL).close()
    with pytest.raises(rltune.UserError, match=r"give mask=info\['action_mask'\]"):
        rltune.load(tmp_path / "fenced.pt")(np.zeros(2))
    trained(tmp_path / "dict.pt", "ppo", "toy_envs:Fenced", SMALL, {"where": "dict"}).close()
    with pytest.raises(rltune.UserError, match="has a 'action_mask', and this one has not"):
        rltune.load(tmp_path / "dict.pt")({"observation": np.zeros(2)})


def test_nothing_large_is_made_to_act(tmp_path: Path) -> None:
    config = {**REPLAYS, "buffer_size": 1000}
    trained(tmp_path / "agent.pt", "dqn", "CartPole-v1", config).close()
    policy = rltune.load(tmp_path / "agent.pt")
    assert policy.agent.memory is None  # type: ignore[union-attr]
    assert "dqn on CartPole-v1, 48 env steps" in repr(policy)


def test_which_agent_of_a_run(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {"agent": "ppo"}, kind="train")
    for name, steps in (("last", 48), ("best", 16)):
        agent = Agent("ppo", "CartPole-v1", SMALL, total_timesteps=100)
        agent.learn(steps)
        agent.save(run.path / "checkpoints" / f"{name}.pt")
    assert rltune.load(run.path).agent.env_steps == 48
    assert rltune.open(run.path).policy(best=True).agent.env_steps == 16


def test_of_several_environments_one_is_named(tmp_path: Path) -> None:
    from rltune.backends.suite import SuiteAgent

    suite = SuiteAgent("ppo", "CartPole-v1=9:475,Acrobot-v1=-500:-100", SMALL, total_timesteps=64)
    suite.save(tmp_path / "suite.pt")
    with pytest.raises(rltune.UserError, match="give env, one of CartPole-v1, Acrobot-v1"):
        rltune.load(tmp_path / "suite.pt")
    assert rltune.load(tmp_path / "suite.pt", env="Acrobot-v1").env == "Acrobot-v1"
