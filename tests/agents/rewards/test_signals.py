"""Reward signals: what they reward, and that every agent learns from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experts import demonstrate
from gymnasium import spaces as gym_spaces
from rltune.agents.algorithms.returns import generalised_advantages
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.rewards.curiosity import Curiosity
from rltune.agents.rewards.networks import ActionCode, Steps, Whitening
from rltune.agents.rewards.rnd import RND
from rltune.agents.rewards.signal import RewardSignal
from rltune.agents.spaces import Spaces

from tests.parameters import quick

CPU = torch.device("cpu")
SPACES = Spaces(gym_spaces.Box(-1, 1, (3,)), gym_spaces.Discrete(2), 1)
SMALL: dict[str, Any] = {"net_arch": [16], "reward_signal_batch_size": 64}
SMALL |= {f"{name}_size": 8 for name in ("curiosity", "rnd", "gail")}
ON = {"n_envs": 2, "n_steps": 16}
OFF = {"n_envs": 2, "learning_starts": 32, "train_freq": 8, "gradient_steps": 2, "batch_size": 32}
CONFIGS = {
    **dict.fromkeys(("a2c", "ppo", "trpo"), ON),
    "acer": {**ON, "replay_start": 64},
    **dict.fromkeys(("dqn", "sac", "td3", "ddpg"), OFF),
}
ENVS = dict.fromkeys(CONFIGS, "toy_envs:Which") | dict.fromkeys(("td3", "ddpg"), "toy_envs:Aim")


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def steps(n: int, first: float = 0.0) -> Steps:
    obs = torch.randn(n, 3, generator=generator())
    obs[:, 0] = first
    action = torch.randint(2, (n, 1), generator=generator())
    next_obs = obs + 0.1
    next_obs[:, 1] = obs[:, 1] + action[:, 0]
    return Steps(obs, action, next_obs, torch.zeros(n, dtype=torch.bool))


def taught(signal: Any, shown: Steps, n: int = 300) -> None:
    optimizer = torch.optim.Adam([p for p in signal.parameters() if p.requires_grad], 1e-3)
    signal.learn_scale(shown)
    for _ in range(n):
        loss, _ = signal.loss(shown, generator())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_rnd_rewards_what_is_new() -> None:
    signal = RND(SPACES, "auto", 16, generator(), CPU)
    known = steps(256)
    before = signal.rewards(known).mean()
    taught(signal, known)
    assert signal.rewards(known).mean() < 0.1 * before
    new = signal.rewards(known._replace(next_obs=known.next_obs + 3.0)).mean()
    assert new > 10 * signal.rewards(known).mean()


def test_curiosity_rewards_what_is_not_foreseen() -> None:
    signal = Curiosity(SPACES, "auto", 16, generator(), CPU)
    known = steps(256)
    taught(signal, known, 600)
    foreseen = signal.rewards(known).mean()
    other = signal.rewards(known._replace(action=1 - known.action)).mean()
    assert other > 3 * foreseen
    guess = signal.inverse(
        torch.cat([signal.features(known.obs), signal.features(known.next_obs)], 1)
    )
    assert (guess.argmax(1) == known.action[:, 0]).float().mean() > 0.95


@pytest.mark.parametrize("use_vail", quick([True], [False, True]))
@pytest.mark.parametrize("use_actions", quick([True], [False, True]))
def test_gail_rewards_acting_as_demonstrated(
    use_actions: bool, use_vail: bool, tmp_path: Path
) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    config = {
        **SMALL, **ON, "normalize_rewards": False, "extrinsic_strength": 0, "gail_strength": 1,
        "gail_use_actions": use_actions, "gail_use_vail": use_vail, "demonstrations": file,
        "gail_learning_rate": 3e-3, "learning_rate": 3e-3, "n_steps": 64,
    }  # fmt: skip
    steps = 8000 if use_actions else 512  # observations alone say nothing here
    trained = Agent("ppo", "toy_envs:Which", config, total_timesteps=steps)
    chunk = trained.learn(steps)
    assert {"gail_reward", "gail_loss", "gail_policy", "gail_expert"} <= chunk.values.keys()
    if use_actions:
        assert trained.evaluate(20).mean > 7.5


def test_actions_are_one_hot_or_within_their_bounds() -> None:
    several = ActionCode(gym_spaces.MultiDiscrete([2, 3]), CPU)
    assert several.encode(torch.tensor([[1, 0]])).tolist() == [[0, 1, 1, 0, 0]]
    box = ActionCode(gym_spaces.Box(0, 4, (1,)), CPU)
    assert box.encode(torch.tensor([[4.0], [1.0], [9.0]])).tolist() == [[1.0], [-0.5], [1.0]]
    endless = ActionCode(gym_spaces.Box(-np.inf, np.inf, (1,)), CPU)
    assert endless.encode(torch.tensor([[9.0]])).tolist() == [[9.0]]
    assert several.loss(torch.tensor([[-99.0, 99, 99, -99, -99]]), torch.tensor([[1, 0]])) < 1e-6
    assert box.loss(torch.tensor([[0.0]]), torch.tensor([[4.0]])) == 1


def test_whitening_knows_all_rows() -> None:
    rows = torch.randn(100, 4, generator=generator()) * 3 + 2
    whitening = Whitening(3)
    for part in rows.split(7):
        whitening.learn(part)
    white = whitening(rows)
    assert torch.allclose(white[:, :3].mean(0), torch.zeros(3), atol=0.05)
    assert torch.allclose(white[:, :3].std(0), torch.ones(3), atol=0.1)
    assert torch.equal(white[:, 3], rows[:, 3])


class Own(RewardSignal):
    """A signal of a user's own: the error of a linear copy of a random linear map."""

    episodic = True

    def __init__(
        self, spaces: Spaces, encoder: str, size: int, generator: Any, device: Any
    ) -> None:
        super().__init__(scaled=True)
        n = spaces.observation.shape[0]
        self.register_buffer("target", torch.randn(n, size, generator=generator))
        self.copy = torch.nn.Parameter(torch.zeros(n, size))

    def rewards(self, steps: Steps) -> torch.Tensor:
        return (steps.next_obs @ (self.copy - self.target)).square().mean(1)

    def loss(self, steps: Steps, generator: Any) -> Any:
        loss = self.rewards(steps).mean()
        return loss, {"own_loss": loss.detach()}

    def learn_scale(self, steps: Steps) -> None:
        """Nothing."""


class Shapeless(Own):
    def __init__(self) -> None:
        """Take no arguments."""


@pytest.mark.parametrize("agent", ["ppo", "sac"])
def test_a_signal_of_ones_own_goes_on_bit_by_bit(agent: str, tmp_path: Path) -> None:
    config = {**SMALL, **CONFIGS[agent], "custom_signal": f"{__name__}:Own"}
    config |= {"custom_strength": 0.1, "custom_size": 8}
    whole, stopped = (Agent(agent, ENVS[agent], config, total_timesteps=256) for _ in range(2))
    chunk = whole.learn(256)
    assert len(chunk.values["custom_reward"]) == len(chunk.values["own_loss"]) > 2
    stopped.learn(128)
    stopped.save(tmp_path / "checkpoint.pt")
    resumed = Agent.load(tmp_path / "checkpoint.pt")
    later = resumed.learn(256).values["own_loss"]
    assert later == chunk.values["own_loss"][-len(later) :]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Shapeless", "__init__ must take (spaces, encoder, size, generator, device)"),
        ("Path", "is not a subclass of rltune.agents.rewards.signal.RewardSignal"),
        ("RewardSignal", "lacks learn_scale, loss, rewards"),
        ("Missing", "unknown reward signal in test_signals 'Missing'"),
    ],
)
def test_what_is_no_signal_is_refused(name: str, said: str) -> None:
    config = {"custom_signal": f"{__name__}:{name}", "custom_strength": 1}
    with pytest.raises(UserError, match=re.escape(said)):
        Agent("ppo", "toy_envs:Which", config, total_timesteps=128)


@pytest.mark.parametrize("signal", ["curiosity", "rnd", "gail"])
@pytest.mark.parametrize("agent", CONFIGS)
def test_every_agent_learns_with_every_signal(agent: str, signal: str, tmp_path: Path) -> None:
    env = ENVS[agent]
    config = {**SMALL, **CONFIGS[agent], f"{signal}_strength": 0.1, "gail_use_actions": True}
    if signal == "gail":
        config["demonstrations"] = demonstrate(
            env.removeprefix("toy_envs:"), tmp_path / "d.parquet"
        )
    chunk = Agent(agent, env, config, total_timesteps=128).learn(128)
    assert chunk.diverged is None
    assert len(chunk.values[f"{signal}_reward"]) == len(chunk.values[f"{signal}_loss"])
    rewards = chunk.values[f"{signal}_reward"]
    assert len(rewards) > 2
    assert all(reward > 0 for reward in rewards)


@pytest.mark.parametrize(
    ("agent", "more"),
    [
        *quick([(agent, {}) for agent in ("ppo", "sac")], [(agent, {}) for agent in CONFIGS]),
        ("ppo", {"shared_value": True}),
        pytest.param("ppo", {"lstm_size": 8}, marks=pytest.mark.slow),
        pytest.param("sac", {"shared_value": True}, marks=pytest.mark.slow),
        pytest.param(
            *("sac", {"lstm_size": 8, "sequence_length": 4, "burn_in": 2}), marks=pytest.mark.slow
        ),
        ("dqn", {"prioritised": True}),
    ],
)
def test_a_resumed_training_is_bit_equal(agent: str, more: dict[str, Any], tmp_path: Path) -> None:
    config = {**SMALL, **CONFIGS[agent], **more, "rnd_strength": 0.1, "curiosity_strength": 0.1}

    def training() -> Agent:
        return Agent(agent, ENVS[agent], config, total_timesteps=320)

    whole = training()
    whole.learn(320)
    first = training()
    first.learn(150)
    first.save(tmp_path / "half.pt")
    second = Agent.load(tmp_path / "half.pt")
    second.learn(320)
    for name, weights in whole.algorithm.state_dict()["nets"].items():
        assert torch.equal(weights, second.algorithm.state_dict()["nets"][name]), name


@pytest.mark.parametrize("encoder", ["auto", "small_cnn"])
def test_signals_read_images(encoder: str) -> None:
    config = {**SMALL, **ON, "rnd_strength": 0.1, "curiosity_strength": 0.1, "encoder": encoder}
    chunk = Agent("ppo", "toy_envs:Picture", config, total_timesteps=64).learn(64)
    assert {"rnd_loss", "curiosity_loss"} <= chunk.values.keys()


def test_a_stream_has_its_own_discount_and_end() -> None:
    config = {**SMALL, **ON, "rnd_strength": 0.5, "rnd_gamma": 0.5, "normalize_rewards": False}
    trained = Agent("ppo", "toy_envs:Which", config, total_timesteps=640)
    trained.learn(29)
    memory, policy = trained.memory, trained.algorithm.policy
    trained._collector.step()
    successors = memory.successors()
    ended = np.argwhere(memory.terminated)
    assert len(ended)
    streams: list[Any] = []
    asked = memory.signals.streams
    memory.signals.streams = lambda **steps: streams.append(asked(**steps)) or streams[-1]
    rollout = policy.look_back(memory)
    assert rollout.value.shape == (32, 2)
    values = rollout.value.numpy().T.reshape(2, 16, 2)
    with torch.no_grad():
        following = policy.nets(policy.tensor(successors.reshape(32, -1)))[1].numpy()
    rewards = np.zeros((16, 2), np.float32)
    rewards[...] = memory.reward
    own = generalised_advantages(
        rewards, values[0], following[:, 0].reshape(16, 2), memory.terminated, memory.truncated,
        trained.config.gamma, trained.config.gae_lambda,
    )  # fmt: skip
    found = rollout.target.numpy().T.reshape(2, 16, 2)
    assert np.allclose(found[0], own + values[0], atol=1e-5)
    # What follows an end counts for novelty, and at its own discount.
    t, env = ended[0]
    expected = streams[0][1].reward[t, env] + 0.5 * following[:, 1].reshape(16, 2)[t, env]
    assert np.isclose(found[1][t, env], expected, atol=1e-5)


def test_one_value_learns_the_sum_of_all_rewards() -> None:
    config = {
        **SMALL, **ON, "rnd_strength": 0.5, "shared_value": True, "normalize_rewards": False,
        "gae_lambda": 0.0, "gamma": 0.0, "extrinsic_strength": 2.0,
    }  # fmt: skip
    trained = Agent("ppo", "toy_envs:Which", config, total_timesteps=640)
    assert trained.engine == "numpy"
    trained.learn(29)
    trained._collector.step()
    own = trained.memory.reward.copy()
    target = trained.algorithm.policy.look_back(trained.memory).target.numpy().reshape(16, 2)
    assert np.all(target > 2 * own)
    assert trained._signals is not None
    assert np.isclose((target - 2 * own).mean() / 0.5, trained._signals._rewards["rnd"][0])


@pytest.mark.parametrize("agent", ["sac", "dqn"])
def test_replayed_steps_know_what_followed_an_end(agent: str) -> None:
    config = {**SMALL, **OFF, "rnd_strength": 0.1, "learning_starts": 1000}
    trained = Agent(agent, "toy_envs:Which", config, total_timesteps=640)
    seen: list[tuple[Any, Any]] = []
    memory, step = trained.memory, trained._collector.step
    for _ in range(20):
        trained._collector.begin()
        made = step()
        seen.append((made.terminated, made.next_obs))
    ends = [(t, e) for t, (ended, _) in enumerate(seen) for e in np.flatnonzero(ended)]
    assert ends
    for t, env in ends:
        memory.signals = None
        plain = memory._gather(np.array([20 - t]), np.array([env]), CPU)
        assert plain.discount == 0
        memory.signals = trained._signals
        batch = memory._gather(np.array([20 - t]), np.array([env]), CPU)
        assert np.array_equal(batch.next_obs[0].numpy(), seen[t][1][env])


def test_sac_learns_a_value_for_each_signal() -> None:
    for env in ("toy_envs:Aim", "toy_envs:Both"):
        config = {**SMALL, **OFF, "rnd_strength": 0.1, "rnd_gamma": 0.5, "curiosity_strength": 0.1}
        trained = Agent("sac", env, config, total_timesteps=128)
        assert trained.engine == "torch"
        trained.learn(128)
        nets: Any = trained.algorithm.nets
        batch: Any = trained.algorithm.minibatches.draw(trained.memory)
        assert batch.reward.shape == batch.discount.shape == (3, 32)
        assert nets.actor.values(nets.critics, batch.obs, batch.action).shape == (2, 3, 32)
        ended = batch.discount[0] == 0
        assert torch.all(batch.discount[1][ended] == trained.config.gamma)
        assert torch.all(batch.discount[2] == 0.5)


def test_an_agent_has_no_signals_by_default() -> None:
    for agent, env in ENVS.items():
        trained = Agent(agent, env, {**SMALL, **CONFIGS[agent]}, total_timesteps=64)
        assert trained._signals is None
        assert trained.memory.signals is None


def test_a_memory_of_ones_own_without_signals_is_refused() -> None:
    from rltune.agents.algorithms.ppo import PPO

    class Bare:
        pass

    class Own(PPO):
        def make_memory(self) -> Any:
            return Bare()

    with pytest.raises(UserError, match="has no place for reward signals"):
        Agent(Own, "toy_envs:Which", {"rnd_strength": 1}, total_timesteps=9)


def test_hindsight_and_signals_go_together() -> None:
    config = {**SMALL, **OFF, "n_sampled_goal": 4, "rnd_strength": 0.1, "extrinsic_strength": 2}
    trained = Agent("dqn", "goal_envs:BitFlip", config, total_timesteps=128)
    chunk = trained.learn(128)
    assert chunk.diverged is None
    plain = trained.memory._sampled(np.arange(1, 41), np.zeros(40, np.int64), generator())
    both = trained.memory._rewarded(plain)
    assert set(plain.reward.tolist()) == {-1.0, 0.0}
    assert torch.all(both.reward > 2 * plain.reward)
