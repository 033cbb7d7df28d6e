"""TD3 and DDPG, and both against SB3: the same weights, batches and noise give the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from replay_helpers import Fixed, FixedForSB3, assert_all_close, copy_from_sb3, critic_pairs, fill
from rltune.agents import Agent
from rltune.agents.algorithms.ddpg import DDPG
from rltune.agents.algorithms.td3 import TD3
from rltune.agents.config import make_config
from rltune.agents.spaces import Spaces

SMALL: dict[str, Any] = {"net_arch": [16, 16], "batch_size": 32, "learning_starts": 0}


def make(**config: Any) -> TD3:
    box = spaces.Box(-2, 2, (2,), np.float32)
    return TD3(make_config(TD3.Config, {**SMALL, **config}), Spaces(box, box, 2), seed=0)


def pairs(ours: Any, theirs: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    names = {"torso.layers.0": "mu.0", "torso.layers.2": "mu.2", "head": "mu.4"}
    result = []
    for own, other in (("actor", theirs.actor), ("target_actor", theirs.actor_target)):
        state, seen = getattr(ours.nets, own).state_dict(), other.state_dict()
        assert len(state) == len(seen) == 2 * len(names)
        result += [
            (state[f"{a}.{p}"], seen[f"{b}.{p}"])
            for a, b in names.items()
            for p in ("weight", "bias")
        ]
    return [
        *result,
        *critic_pairs(ours, theirs.critic, "critics"),
        *critic_pairs(ours, theirs.critic_target, "target_critics"),
    ]


@pytest.mark.parametrize("agent", [DDPG, TD3])
def test_updates_are_those_of_sb3(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    theirs = getattr(sb3, agent.__name__)(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=3e-3,
        tau=0.02,
        gamma=0.9,
        batch_size=32,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": [16, 16]},
    )
    theirs._setup_learn(1000)
    values = {**SMALL, "learning_rate": 3e-3, "tau": 0.02, "gamma": 0.9, "gradient_steps": 4}
    spaces = Spaces(theirs.observation_space, theirs.action_space, 2)
    ours = agent(make_config(agent.Config, values), spaces, seed=1)
    copy_from_sb3(pairs(ours, theirs))
    generator = torch.Generator().manual_seed(0)
    memory = fill(ours, 100)
    start = ours.actor_learner.flat.clone()
    for _ in range(3):
        batches = [memory.sample(32, generator) for _ in range(4)]
        noise = [torch.randn(32, 1, generator=generator) for _ in range(4)]
        drawn, drawn_again = iter(noise), iter(noise)
        theirs.replay_buffer = FixedForSB3(batches, ours.scale)
        with monkeypatch.context() as patch:
            patch.setattr(
                torch.Tensor,
                "normal_",
                lambda self, mean, std, drawn=drawn: self.copy_(next(drawn) * std + mean),
            )
            theirs.train(gradient_steps=4, batch_size=32)
        if agent is TD3:
            monkeypatch.setattr(ours, "_smoothing", lambda _, drawn=drawn_again: next(drawn))
        ours.update(Fixed(batches), 0.0)
        assert_all_close(pairs(ours, theirs))
    assert (ours.actor_learner.flat - start).abs().max() > 1e-3


def test_the_targets_actions_are_smoothed_and_the_noise_is_clipped() -> None:
    agent = make(target_policy_noise=0.3, target_noise_clip=0.4)
    batch = fill(agent, 50).sample(2000, agent.generator)
    transitions = agent._transitions(batch)
    with torch.no_grad():
        plain = agent.nets.target_actor(batch.next_obs)
        smooth = agent.nets.next_action(transitions, agent.scalars)
    away = (smooth - plain)[plain.abs() < 0.5]
    assert float(away.abs().max()) == pytest.approx(0.4, abs=1e-6)
    assert float((away.abs() > 0.399).float().mean()) == pytest.approx(0.18, abs=0.03)  # 1.33 sigma
    assert float(smooth.abs().max()) <= 1


def test_actor_and_targets_move_more_rarely() -> None:
    agent = make(policy_delay=3)
    memory = fill(agent, 50)
    moved = []
    for _ in range(6):
        before = [agent.actor_learner.flat.clone(), agent.target_critics.flat.clone()]
        critic = agent.critic_learner.flat.clone()
        metrics = agent.update(memory, 0.0)
        assert not torch.equal(critic, agent.critic_learner.flat)
        now = [agent.actor_learner.flat, agent.target_critics.flat]
        changed = [not torch.equal(a, b) for a, b in zip(before, now, strict=True)]
        assert changed[0] == changed[1] == ("actor_loss" in metrics)
        moved.append(changed[0])
    assert moved == [False, False, True] * 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("agent", [DDPG, TD3])
def test_pendulum_is_learned(agent: Any) -> None:
    config = {"gamma": 0.98, "buffer_size": 200_000, "learning_starts": 1000}
    whole = Agent(agent, "Pendulum-v1", config, total_timesteps=8000)
    whole.learn(8000)
    assert whole.evaluate(20).mean > -300


def test_actions_before_learning_are_distributed_like_sb3s() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.noise import NormalActionNoise

    n = 6000
    reference = sb3.TD3("MlpPolicy", "Pendulum-v1", buffer_size=10, seed=0, device="cpu")
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.4))
    theirs = np.array([reference._sample_action(n, noise)[0] for _ in range(n)])
    values = {"learning_starts": n, "noise_std": 0.4}
    ours = Agent("td3", "Pendulum-v1", values, total_timesteps=n, seed=0, device="cpu").algorithm
    actions = np.array([ours.act(np.zeros((1, 3), np.float32), explore=True) for _ in range(n)])
    for bound in (-2, 2):  # where the noise pushed them
        share = np.isclose(theirs, bound).mean()
        assert share > 0.05
        assert np.isclose(actions, bound).mean() == pytest.approx(share, abs=0.02)
    inside = [np.histogram(a, 10, (-1.99, 1.99))[0] / n for a in (actions, theirs)]
    np.testing.assert_allclose(*inside, atol=0.02)
