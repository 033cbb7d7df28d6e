"""The duties of every agent, whatever its algorithm; the details stand in the agents' own tests."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from rltune.agents import Agent
from rltune.agents.config import make_config
from rltune.agents.envs.vector import make_env
from rltune.agents.registry import BUILTIN, agent_class
from rltune.agents.spaces import Spaces

RAW: dict[str, Any] = {"normalize_observations": False, "normalize_rewards": False}
REPLAY: dict[str, Any] = {"n_envs": 4, "net_arch": [64], "batch_size": 64, "learning_rate": 3e-3}
# Small and quick: for tasks of a few hundred episodes.
SETTINGS: dict[str, dict[str, Any]] = {
    "a2c": {**RAW, "n_steps": 8, "learning_rate": 3e-3},
    "acer": {**RAW, "replay_start": 500, "learning_rate": 3e-3},
    "ddpg": {**REPLAY, "train_freq": 2, "tau": 0.02},
    "dqn": {**REPLAY, "learning_starts": 100, "target_update_interval": 50},
    "ppo": {**RAW, "n_steps": 64, "batch_size": 64, "learning_rate": 3e-3},
    "sac": {**REPLAY, "train_freq": 2, "tau": 0.02, "ent_coef": "auto_0.1"},
    "td3": {**REPLAY, "train_freq": 2, "tau": 0.02},
    "trpo": {**RAW, "n_steps": 64},
}
# What learns from demonstrations alone has duties of its own: test_bc.py.
AGENTS = [name for name in BUILTIN if not agent_class(name).offline]
EVERY = pytest.mark.parametrize("name", AGENTS)
BOX_ONLY = ("ddpg", "td3")
DISCRETE_ONLY = ("acer", "dqn")
ON_POLICY = ("a2c", "acer", "ppo", "trpo")


# ---------------------------------------------------------------------------------------- learning


def learn(name: str, env: str, goal: float, budget: int, **config: Any) -> None:
    """Train until ten greedy episodes have a mean of ``goal``; fail when that takes too long."""
    values = {**SETTINGS[name], **config}
    agent = Agent(name, f"toy_envs:{env}", values, total_timesteps=budget, device="cpu")
    reached = 0.0
    for until in range(budget // 20, budget + 1, budget // 20):
        agent.learn(until)
        reached = agent.evaluate(10).mean
        if reached >= goal:
            return
    pytest.fail(f"reached {reached:.2f} of {goal}")


@EVERY
@pytest.mark.parametrize("envs", [("Bandit", "BoxBandit"), ("unseen_bandit", "unseen_box_bandit")])
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_bandit_is_learned(name: str, envs: tuple[str, str]) -> None:
    if name in BOX_ONLY:
        learn(name, envs[1], 0.9, 4000)
    else:
        learn(name, envs[0], 1.0, 10_000)


# The best return is 8.
TASKS = {"Which": 8.0, "Both": 7.6, "Bits": 7.6, "Aim": 6.8}
ANSWERED = [
    (name, task)
    for name in AGENTS
    for task in TASKS
    if (task == "Aim" or name not in BOX_ONLY) and (task == "Which" or name not in DISCRETE_ONLY)
]


@pytest.mark.parametrize(("name", "task"), ANSWERED)
def test_what_is_seen_is_answered(name: str, task: str) -> None:
    learn(name, task, TASKS[task], 20_000 if name in ON_POLICY else 5000, gamma=0.5)


@EVERY
def test_a_delayed_reward_is_found(name: str) -> None:
    """Against a small reward at once."""
    env = "BoxChain" if name in BOX_ONLY else "Chain"
    learn(name, env, 1.0, 30_000 if name in ON_POLICY else 10_000, gamma=0.9)


# ------------------------------------------------------------------------------------- bookkeeping


@EVERY
@pytest.mark.parametrize("n_envs", [1, 4])
def test_the_cadence_does_not_depend_on_the_number_of_environments(name: str, n_envs: int) -> None:
    """Of on-policy agents a rollout of all environments makes an update."""
    on_policy = name in ON_POLICY
    config = {"n_steps": 10} if on_policy else {"train_freq": 8, "learning_starts": 0}
    env = "toy_envs:BoxForever" if name in BOX_ONLY else "toy_envs:Forever"
    agent = Agent(name, env, {**config, "n_envs": n_envs}, total_timesteps=1000, device="cpu")
    assert agent.learn(200).updates == 200 // (10 * n_envs if on_policy else 8)


def make(name: str, **config: Any) -> Any:
    found = agent_class(name)
    action = spaces.Box(-1, 1, (1,), np.float32) if name in BOX_ONLY else spaces.Discrete(3)
    space = Spaces(spaces.Box(-1, 1, (4,), np.float32), action, 1)
    return found(make_config(found.Config, config), space, seed=0)


@EVERY
def test_rows_that_are_not_valid_are_not_learnt_from(name: str) -> None:
    """Such a row follows the end of an episode, as NEXT_STEP environments do it."""
    config = {"n_steps": 16} if name in ON_POLICY else {"learning_starts": 0, "batch_size": 32}
    learned = []
    for nonsense in (0.0, 1e6):
        algorithm = make(name, n_envs=1, net_arch=[16], **config)
        before = torch.nn.utils.parameters_to_vector(algorithm.nets.parameters()).clone()
        memory, rng = algorithm.make_memory(), np.random.default_rng(0)
        algorithm.spaces.action.seed(0)
        for t in range(16):
            obs = rng.normal(size=(1, 4)).astype(np.float32)
            bad = t == 4
            memory.add(
                obs=obs + nonsense * bad,
                action=np.stack([algorithm.spaces.action.sample()]),
                reward=rng.normal(size=1) + nonsense * bad,
                terminated=np.array([t == 3]),
                truncated=np.zeros(1, np.bool_),
                next_obs=obs,
                valid=np.array([not bad]),
            )
        for _ in range(1 if name in ON_POLICY else 4):
            algorithm.update(memory, 0.0)
        learned.append(torch.nn.utils.parameters_to_vector(algorithm.nets.parameters()))
        assert not torch.equal(before, learned[-1])
    assert torch.equal(learned[0], learned[1])


def value(algorithm: Any, obs: torch.Tensor) -> float:
    """Return the agent's own estimate of its policy."""
    nets = algorithm.nets
    with torch.no_grad():
        if hasattr(nets, "critics"):
            if algorithm.spaces.action.shape:  # a Box
                return float(nets.critics(obs, nets.actor(obs)).mean())
            return float(nets.critics(obs).amax(-1).mean())
        if hasattr(nets, "returns"):
            return float(nets.returns.values(nets(obs)).max())
        return float(nets.value(obs) if hasattr(nets, "value") else nets(obs)[1])


@EVERY
@pytest.mark.parametrize(("terminates", "worth"), [(True, 1.0), (False, 2.0)])
def test_time_limits_bootstrap_and_terminations_do_not(
    name: str, terminates: bool, worth: float
) -> None:
    """Reward 1 a step, an episode of one step, gamma 0.5: 1 if that is the end, 2 if it is not."""
    config = {**SETTINGS[name], "gamma": 0.5, "net_arch": [16]}
    config |= {"ent_coef": "1e-3"} if name == "sac" else {}
    agent = Agent(
        name,
        "toy_envs:BoxForever" if name in BOX_ONLY else "toy_envs:Forever",
        config,
        total_timesteps=20_000,
        env_kwargs={"limit": 1, "terminates": terminates},
        device="cpu",
    )
    agent.learn(4000 if name in ON_POLICY else 1000)
    assert value(agent.algorithm, torch.ones(1, 1)) == pytest.approx(worth, abs=0.25)


@pytest.mark.parametrize(
    ("env", "frame_stack"),
    [
        ("CartPole-v1", 0),
        ("Pendulum-v1", 3),
        ("FrozenLake-v1", 0),
        ("toy_envs:Picture", 0),
        ("toy_envs:Picture", 3),
        ("toy_envs:Both", 0),
        ("ALE/Pong-v5", 0),
    ],
)
def test_our_wrappers_are_what_gymnasium_expects(env: str, frame_stack: int) -> None:
    if env.startswith("ALE"):
        pytest.importorskip("ale_py")
    made = make_env(env, frame_stack=frame_stack)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is wrapped, and that a range is infinite
        check_env(made, skip_render_check=True, skip_close_check=True)
    made.close()  # type: ignore[no-untyped-call]
