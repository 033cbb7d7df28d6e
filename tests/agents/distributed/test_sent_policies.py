"""Policies on their way to actors."""

from __future__ import annotations

import numpy as np
import pytest
from rltune.agents.distributed.policies import act_by, policy_of
from rltune.agents.loop.agent import Agent


@pytest.mark.parametrize(
    ("name", "env"), [("sac", "Pendulum-v1"), ("dqn", "CartPole-v1"), ("td3", "Pendulum-v1")]
)
def test_what_acts_is_sent_and_no_target(name: str, env: str) -> None:
    learner = Agent(name, env, {"learning_starts": 10}, total_timesteps=100)
    learner.learn(30)
    other = Agent(name, env, {"learning_starts": 10}, total_timesteps=100, seed=1)
    sent = policy_of(learner.algorithm, learner.normalizers, 3, 30, whole=False)
    assert sent.state is not None
    assert "nets" in sent.state
    assert "target" not in sent.state
    act_by(other.algorithm, other.normalizers, sent)
    obs = np.random.default_rng(0).normal(size=(20, 3 if env == "Pendulum-v1" else 4))
    obs = obs.astype(np.float32)
    own, taken = (agent.algorithm.act(obs, explore=False) for agent in (learner, other))
    assert np.array_equal(own, taken)
    learner.close()
    other.close()
