"""The RL library: environments, networks, memories, algorithms and the training loop.

What a user needs is importable from here; each name is loaded when it is first asked for, so that
``import rltune.agents`` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

# PyTorch reads this with its first tensor: memory from 2 MB on comes in huge pages, where Linux has
# them. Minibatches of images are made anew for each update, a fifth of it by page faults of 4 KB.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    from rltune.agents.algorithm import Algorithm as Algorithm
    from rltune.agents.algorithms.a2c import A2C as A2C
    from rltune.agents.algorithms.a2c import A2CConfig as A2CConfig
    from rltune.agents.algorithms.acer import ACER as ACER
    from rltune.agents.algorithms.acer_config import ACERConfig as ACERConfig
    from rltune.agents.algorithms.bc import BC as BC
    from rltune.agents.algorithms.bc import BCConfig as BCConfig
    from rltune.agents.algorithms.ddpg import DDPG as DDPG
    from rltune.agents.algorithms.ddpg import DDPGConfig as DDPGConfig
    from rltune.agents.algorithms.dqn import DQN as DQN
    from rltune.agents.algorithms.dqn_config import DQNConfig as DQNConfig
    from rltune.agents.algorithms.ppo import PPO as PPO
    from rltune.agents.algorithms.ppo import PPOConfig as PPOConfig
    from rltune.agents.algorithms.sac import SAC as SAC
    from rltune.agents.algorithms.sac_config import SACConfig as SACConfig
    from rltune.agents.algorithms.td3 import TD3 as TD3
    from rltune.agents.algorithms.td3 import TD3Config as TD3Config
    from rltune.agents.algorithms.trpo import TRPO as TRPO
    from rltune.agents.algorithms.trpo import TRPOConfig as TRPOConfig
    from rltune.agents.config import AgentConfig as AgentConfig
    from rltune.agents.config import OffPolicyConfig as OffPolicyConfig
    from rltune.agents.config import OnPolicyConfig as OnPolicyConfig
    from rltune.agents.config import hp as hp
    from rltune.agents.errors import UserError as UserError
    from rltune.agents.learner import Learner as Learner
    from rltune.agents.loop.agent import Agent as Agent
    from rltune.agents.loop.controls import Controls as Controls
    from rltune.agents.loop.results import Chunk as Chunk
    from rltune.agents.loop.results import Episode as Episode
    from rltune.agents.loop.results import Evaluation as Evaluation
    from rltune.agents.memory.replay import ReplayMemory as ReplayMemory
    from rltune.agents.memory.rollout import RolloutMemory as RolloutMemory
    from rltune.agents.networks.distributions import make_distribution as make_distribution
    from rltune.agents.networks.layers import initialise as initialise
    from rltune.agents.networks.layers import mlp as mlp
    from rltune.agents.schedules import value_at as value_at
    from rltune.agents.spaces import Spaces as Spaces

_HOME = {
    "A2C": "algorithms.a2c",
    "A2CConfig": "algorithms.a2c",
    "ACER": "algorithms.acer",
    "ACERConfig": "algorithms.acer_config",
    "Agent": "loop.agent",
    "AgentConfig": "config",
    "Algorithm": "algorithm",
    "BC": "algorithms.bc",
    "BCConfig": "algorithms.bc",
    "Chunk": "loop.results",
    "Controls": "loop.controls",
    "DDPG": "algorithms.ddpg",
    "DDPGConfig": "algorithms.ddpg",
    "DQN": "algorithms.dqn",
    "DQNConfig": "algorithms.dqn_config",
    "Episode": "loop.results",
    "Evaluation": "loop.results",
    "OffPolicyConfig": "config",
    "OnPolicyConfig": "config",
    "PPO": "algorithms.ppo",
    "PPOConfig": "algorithms.ppo",
    "SAC": "algorithms.sac",
    "SACConfig": "algorithms.sac_config",
    "Spaces": "spaces",
    "TD3": "algorithms.td3",
    "TD3Config": "algorithms.td3",
    "TRPO": "algorithms.trpo",
    "TRPOConfig": "algorithms.trpo",
    "UserError": "errors",
    "hp": "config",
    "Learner": "learner",
    "RolloutMemory": "memory.rollout",
    "ReplayMemory": "memory.replay",
    "make_distribution": "networks.distributions",
    "mlp": "networks.layers",
    "initialise": "networks.layers",
    "value_at": "schedules",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
