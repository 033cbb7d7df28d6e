"""An agent: PPO whose ratio is clipped closer to 1, and which searches other ranges."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.agents import hp
from rltune.agents.algorithms.ppo import PPO, PPOConfig


@dataclass(frozen=True, kw_only=True)
class CautiousConfig(PPOConfig):
    clip_range: float = hp(0.05, low=0.01, high=0.1, help="how far the policy may move")


class Cautious(PPO):
    Config = CautiousConfig
