"""Specs and steps, with the fields of mlagents_envs 0.28 to 1.1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class ObservationSpec(NamedTuple):
    """A sensor; ``dimension_property``: 1 none, 2 translational equivariance, per dimension."""

    shape: tuple[int, ...]
    dimension_property: tuple[int, ...]
    observation_type: Any
    name: str


class ActionSpec(NamedTuple):
    """How many continuous actions, and the values of each discrete branch."""

    continuous_size: int
    discrete_branches: tuple[int, ...]


class BehaviorSpec(NamedTuple):
    """What agents of a behavior see and do."""

    observation_specs: list[ObservationSpec]
    action_spec: ActionSpec


class ActionTuple:
    """Actions of a batch of agents: float32 (n_agents, n) and int32 (n_agents, n_branches)."""

    def __init__(self, continuous=None, discrete=None):
        n_agents = len(discrete if continuous is None else continuous)
        none = np.zeros((n_agents, 0))
        self.continuous = np.asarray(none if continuous is None else continuous, np.float32)
        self.discrete = np.asarray(none if discrete is None else discrete, np.int32)


class DecisionSteps:
    """What agents saw that want a decision; in ``action_mask``, True is forbidden."""

    def __init__(self, obs, reward, agent_id, action_mask, group_id, group_reward):
        self.obs, self.reward, self.agent_id = obs, reward, agent_id
        self.action_mask, self.group_id, self.group_reward = action_mask, group_id, group_reward

    def __len__(self):
        return len(self.agent_id)


class TerminalSteps:
    """What agents saw last whose episode has ended."""

    def __init__(self, obs, reward, interrupted, agent_id, group_id, group_reward):
        self.obs, self.reward, self.interrupted = obs, reward, interrupted
        self.agent_id, self.group_id, self.group_reward = agent_id, group_id, group_reward

    def __len__(self):
        return len(self.agent_id)
