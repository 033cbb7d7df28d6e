from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from rltune.agents import PPO, Agent, Controls, UserError
from rltune.agents.loop.evaluation import evaluation_envs
from rltune.agents.memory.rollout import RolloutMemory

from tests.parameters import quick

RAW = {"normalize_observations": False, "normalize_rewards": False}
TINY = {"n_envs": 2, "n_steps": 16, "batch_size": 8, "n_epochs": 2, "net_arch": [8], **RAW}


def parameters(agent: Agent) -> torch.Tensor:
    flat: torch.Tensor = agent.algorithm.learner.flat  # type: ignore[attr-defined]
    return flat


def make(env: str = "CartPole-v1", total: int = 10_000, seed: int = 0, **config: Any) -> Agent:
    return Agent("ppo", env, {**TINY, **config}, total_timesteps=total, seed=seed, device="cpu")


RESUMED = {
    "cartpole": ("CartPole-v1", {}),
    "one env": ("CartPole-v1", {"n_envs": 1}),
    "normalised": (
        "CartPole-v1",
        {"normalize_observations": True, "normalize_rewards": True, "clip_range_vf": 0.2},
    ),
    "schedules": ("CartPole-v1", {"learning_rate": "lin_1e-2", "clip_range": "lin_.2"}),
    "rmsprop": ("CartPole-v1", {"optimizer": "rmsprop"}),
    "sde": ("Pendulum-v1", {"use_sde": True, "sde_sample_freq": 4}),
    "gaussian": ("Pendulum-v1", {"state_dependent_std": True}),
    "async": ("CartPole-v1", {"vectorization": "async"}),
    "images": ("toy_envs:Picture", {"n_steps": 8}),
    "stacked": ("CartPole-v1", {"frame_stack": 3}),
    "bits": ("toy_envs:Bits", {}),
}


@pytest.mark.parametrize("kind", RESUMED)
@pytest.mark.parametrize("stop", quick([150], [128, 150]))  # between two rollouts, and amid one
def test_a_resumed_run_is_bit_equal(kind: str, stop: int, tmp_path: Path) -> None:
    env, config = RESUMED[kind]
    whole = make(env, total=320, **config)
    whole.learn(320)

    first = make(env, total=320, **config)
    first.learn(stop)
    first.extra = {"seconds": 1.5}
    first.save(tmp_path / "a.pt")
    second = Agent.load(tmp_path / "a.pt", device="cpu")
    second.save(tmp_path / "b.pt")  # what was loaded can be saved at once
    third = Agent.load(tmp_path / "b.pt", device="cpu")
    chunk = third.learn(320)

    assert third.extra == {"seconds": 1.5}
    assert not torch.equal(parameters(first), parameters(third))
    assert torch.equal(parameters(whole), parameters(third))
    assert chunk.mean_reward == whole.learn(320).mean_reward
    assert whole.evaluate(3).returns == third.evaluate(3).returns


def test_native_environments_can_be_resumed_too(tmp_path: Path) -> None:
    agent = make(vectorization="native", normalize_observations=True)
    agent.learn(150)
    agent.save(tmp_path / "a.pt")
    again = Agent.load(tmp_path / "a.pt", device="cpu")
    chunk = again.learn(400)
    assert chunk.env_steps >= 400
    assert chunk.updates > 4
    assert all(episode.length == episode.episode_return for episode in chunk.episodes)


def test_a_new_agent_can_be_saved(tmp_path: Path) -> None:
    whole = make()
    make().save(tmp_path / "a.pt")
    again = Agent.load(tmp_path / "a.pt", device="cpu")
    whole.learn(100)
    again.learn(100)
    assert torch.equal(parameters(whole), parameters(again))


def test_many_chunks_equal_one_call() -> None:
    whole, parts = make(), make()
    chunk = whole.learn(640)
    chunks = [parts.learn(until) for until in (1, 2, 100, 101, 333, 640)]
    assert torch.equal(parameters(whole), parameters(parts))
    strip = [(e.env_steps, e.episode_return, e.length) for e in chunk.episodes]
    assert [(e.env_steps, e.episode_return, e.length) for c in chunks for e in c.episodes] == strip
    assert chunks[-1].mean_reward == chunk.mean_reward


def test_seeds_are_honoured() -> None:
    def trained(seed: int) -> torch.Tensor:
        agent = make(seed=seed)
        agent.learn(64)
        return parameters(agent)

    torch.manual_seed(123)
    zero = trained(0)
    torch.manual_seed(321)
    np.random.seed(5)  # noqa: NPY002
    assert torch.equal(trained(0), zero)
    assert not torch.equal(trained(1), zero)


def test_evaluation_leaves_training_alone() -> None:
    quiet, watched = make(), make()
    quiet.learn(320)
    for until in (50, 160, 320):
        watched.learn(until)
        watched.evaluate(2)
    assert torch.equal(parameters(quiet), parameters(watched))


def test_evaluation_depends_on_its_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make()
    agent.learn(64)
    five = agent.evaluate(5, seed=3)
    assert agent.evaluate(5, seed=3).returns == five.returns
    assert agent.evaluate(5, seed=4).returns != five.returns
    assert agent.evaluate(2, seed=3).returns == five.returns[:2]
    monkeypatch.setattr("rltune.agents.loop.evaluation.EVALUATION_ENVS", 1)
    assert evaluation_envs("CartPole-v1", 5, seed=3, env_kwargs={}).n_envs == 1
    assert agent.evaluate(5, seed=3).returns == five.returns
    assert five.mean == pytest.approx(np.mean(five.returns))
    assert five.lengths == [int(r) for r in five.returns]


def test_an_evaluation_goes_on_with_further_episodes() -> None:
    agent = make()
    agent.learn(64)
    five = agent.evaluate(5)
    two, three = agent.evaluate(2), agent.evaluate(3, first=2)
    assert two.and_then(three).returns == five.returns
    assert two.and_then(three).lengths == five.lengths


@pytest.mark.parametrize("mode", ["greedy", "stochastic"])
def test_an_environment_rests_when_no_episode_is_left(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make()
    agent.learn(64)
    steps = 0
    step = CartPoleEnv.step

    def counted(env: CartPoleEnv, action: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(env, action)

    monkeypatch.setattr(CartPoleEnv, "step", counted)
    lengths = agent.evaluate(14, mode=mode).lengths
    assert len(set(lengths)) > 1
    assert steps == sum(lengths)


def test_evaluation_is_cut_off_after_max_steps() -> None:
    assert make("Pendulum-v1").evaluate(2, max_steps=7).lengths == [7, 7]


LAST = {
    "ppo": {"batch_size": 8, "n_epochs": 2},
    "ppo minibatches": {"n_minibatches": 4},
    "ppo lstm": {"batch_size": 8, "lstm_size": 4},
    "ppo sequences": {"batch_size": 8, "lstm_size": 4, "sequence_length": 8},
    "a2c": {},
    "a2c lstm": {"lstm_size": 4},
    "trpo": {},
    "acer": {"replay_start": 32},
}


@pytest.mark.parametrize("kind", LAST)
@pytest.mark.parametrize("total", [100, 97])  # rollouts of 32; two environments
def test_the_last_rollout_is_cut_to_what_is_left(kind: str, total: int) -> None:
    config = {"n_envs": 2, "n_steps": 16, "net_arch": [8], **RAW, **LAST[kind]}
    agent = Agent(kind.split()[0], "CartPole-v1", config, total_timesteps=total, device="cpu")
    assert agent.learn(96).updates == 3
    last = agent.learn(total)
    assert last.env_steps == 2 * math.ceil(total / 2)
    assert last.updates == 1
    assert last.diverged is None
    assert agent.finished
    assert agent.learn(total).updates == 0
    agent.total_timesteps = 160  # what comes then is a whole rollout again
    assert agent.learn(160).updates == 2


def test_a_rollout_that_is_cut_resumes_bit_equal(tmp_path: Path) -> None:
    whole, first = make(total=340), make(total=340)
    for until in (100, 333, 340):
        whole.learn(until)
    first.learn(333)
    first.save(tmp_path / "a.pt")
    second = Agent.load(tmp_path / "a.pt", device="cpu")
    second.learn(340)
    assert second.env_steps == whole.env_steps == 340
    assert torch.equal(parameters(second), parameters(whole))


class FixedMemory(RolloutMemory):
    """One that somebody wrote who knew of whole rollouts alone."""

    end_rollout = None  # type: ignore[assignment]


class FixedPPO(PPO):
    def make_memory(self) -> RolloutMemory:
        return FixedMemory(self.config.n_steps, self.spaces, (), np.int64)


def test_a_memory_that_cannot_be_cut_is_filled() -> None:
    agent = Agent(FixedPPO, "CartPole-v1", TINY, total_timesteps=100, device="cpu")
    assert agent.learn(90).env_steps == 90
    assert agent.learn(100).env_steps == 128
    assert agent.learn(100).env_steps == 128


def test_a_deadline_stops_at_once() -> None:
    agent = make()
    assert agent.learn(10_000, deadline=time.time()).env_steps == 2


def test_a_nan_is_noticed() -> None:
    agent = make("toy_envs:Broken")
    chunk = agent.learn(1000)
    assert chunk.env_steps == 32
    assert chunk.diverged
    assert chunk.diverged.startswith("non-finite")
    said = "at 32 env_steps: the environment gave a reward with NaN or infinity in it"
    assert chunk.diverged.endswith(said)
    assert agent.learn(1000).diverged == chunk.diverged


@pytest.mark.parametrize(
    ("kind", "config"),
    [("dqn", {"learning_starts": 8, "batch_size": 8}), ("acer", {"n_steps": 8})],
)
def test_a_nan_of_the_environment_is_told_from_others(kind: str, config: dict[str, int]) -> None:
    theirs = Agent(kind, "toy_envs:Broken", config, total_timesteps=1000).learn(1000)
    assert theirs.diverged
    assert theirs.diverged.endswith("the environment gave a reward with NaN or infinity in it")
    broken = Agent(kind, "CartPole-v1", config, total_timesteps=1000)
    for weights in broken.algorithm.learner.parameters:
        weights.data.fill_(torch.nan)
    ours = broken.learn(1000)
    assert ours.diverged
    assert ours.diverged.endswith("env_steps")


def test_episodes_and_rewards_are_reported() -> None:
    chunk = make().learn(320)
    returns = [episode.episode_return for episode in chunk.episodes]
    assert len(returns) > 5
    assert chunk.mean_reward == pytest.approx(np.mean(returns[-100:]))
    assert all(episode.length == episode.episode_return for episode in chunk.episodes)
    assert all(math.isfinite(value) for value in chunk.metrics.values())
    assert {"policy_loss", "value_loss", "entropy", "approx_kl", "learning_rate"} <= set(
        chunk.metrics
    )


def test_target_reward_stops_the_training() -> None:
    controls = Controls(target_reward=4.0, reward_buffer_size=3)
    agent = Agent("ppo", "toy_envs:Forever", TINY, total_timesteps=999, controls=controls)
    chunk = agent.learn(999)
    assert chunk.stop_reason == "mean reward 4 reached the target 4"
    assert chunk.env_steps == 16  # the third episode ends beside the fourth


def test_a_plateau_lowers_the_learning_rate() -> None:
    controls = Controls(plateau_patience=6, plateau_factor=0.5, early_stop_patience=3)
    agent = Agent("ppo", "toy_envs:Forever", TINY, total_timesteps=999, controls=controls)
    rates = []
    for until in range(32, 200, 32):
        chunk = agent.learn(until)
        rates.append(chunk.metrics.get("learning_rate", 0.0))
    # An episode takes 4 steps of 2 environments; the first one sets the best.
    assert rates[:2] == pytest.approx([3e-4 * 0.5, 3e-4 * 0.25])
    assert chunk.stop_reason == "no better mean reward after 3 reductions"
    assert chunk.env_steps == 80


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("CartPole-v7"), "CartPole-v1"),
        (lambda: make(gama=0.9), "did you mean 'gamma'"),
        (lambda: Agent("pop", "CartPole-v1", total_timesteps=1), "did you mean 'ppo'"),
        (lambda: make(encoder="nature_cnn"), "use encoder mlp"),
    ],
)
def test_mistakes_are_explained(call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(("name", "config"), [("acer", {}), ("dqn", {"n_envs": 2})])
def test_native_environments_leave_the_replays_alone(
    name: str, config: dict[str, Any], tmp_path: Path
) -> None:
    agent = Agent(name, "CartPole-v1", {**config, "vectorization": "native"}, total_timesteps=2000)
    agent.learn(700)
    agent.save(tmp_path / "agent.pt")
    kept = len(agent.memory)  # type: ignore[arg-type]
    resumed = Agent.load(tmp_path / "agent.pt")
    assert len(resumed.memory) == kept > 600  # type: ignore[arg-type]
    resumed.learn(2000)
    assert resumed.env_steps >= 2000
