from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from replay_helpers import fill
from rltune.agents.algorithms.sac import SAC
from rltune.agents.algorithms.sac_config import SACConfig
from rltune.agents.spaces import Spaces


def make(**config: Any) -> SAC:
    box = spaces.Box(-2, 2, (2,), np.float32)
    return SAC(SACConfig(net_arch=(4,), batch_size=16, **config), Spaces(box, box, 2), seed=0)


@pytest.mark.parametrize("use_sde", [False, True])
def test_actions_are_those_of_the_networks_and_come_with_noise(use_sde: bool) -> None:
    agent = make(use_sde=use_sde, learning_starts=0)
    batch = agent.minibatches.draw(fill(agent, 30))
    assert batch.action.shape == (16, 2)
    assert batch.action.abs().max() <= 1
    assert batch.noise.shape == ((4, 2) if use_sde else (16, 2))
    assert torch.equal(batch.noise, batch.next_noise) == use_sde


def test_both_states_of_a_sequence_are_brought_up_to_date() -> None:
    """Older networks gave what is stored: other numbers, which the burn-in replaces."""
    agent = make(lstm_size=3, sequence_length=4, burn_in=2)
    memory = fill(agent, 30)
    batch = agent.minibatches.draw(memory)
    assert batch.obs.shape[:2] == batch.next_obs.shape[:2] == (4, 4)
    assert batch.reward.shape == (16,)
    state = agent.generator.get_state()
    again = agent.minibatches.draw(memory)
    with torch.no_grad():
        agent.nets.actor.torso.core.input.weight.zero_()  # type: ignore[union-attr]
    agent.generator.set_state(state)
    other = agent.minibatches.draw(memory)
    changed = [
        not torch.equal(agent.parts.state(again.obs, i), agent.parts.state(other.obs, i))
        for i in (0, 1)
    ]
    assert changed == [True, False]  # the actor's, but not the critics'
    assert torch.equal(again.action, other.action)
