"""The learners: configurations, environments, memory, networks, losses and algorithms.

What a user needs is importable from here; each name is loaded when it is first asked for, so that
``import rltune.agents`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.agents.agent import Agent as Agent
    from rltune.agents.agent import Chunk as Chunk
    from rltune.agents.agent import Episode as Episode
    from rltune.agents.agent import Evaluation as Evaluation
    from rltune.agents.algorithm import Algorithm as Algorithm
    from rltune.agents.algorithm import Spaces as Spaces
    from rltune.agents.config import AgentConfig as AgentConfig
    from rltune.agents.config import OnPolicyConfig as OnPolicyConfig
    from rltune.agents.config import hp as hp
    from rltune.agents.controls import Controls as Controls
    from rltune.agents.errors import UserError as UserError
    from rltune.agents.ppo import PPO as PPO
    from rltune.agents.ppo import PPOConfig as PPOConfig

_HOME = {
    "Agent": "agent",
    "AgentConfig": "config",
    "Algorithm": "algorithm",
    "Chunk": "agent",
    "Controls": "controls",
    "Episode": "agent",
    "Evaluation": "agent",
    "OnPolicyConfig": "config",
    "PPO": "ppo",
    "PPOConfig": "ppo",
    "Spaces": "algorithm",
    "UserError": "errors",
    "hp": "config",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
