"""A toy agent with a known front: effort buys return, waste buys nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rltune.agents.config import hp
from toy import ToyAgent, ToyConfig


@dataclass(frozen=True, kw_only=True)
class TradeConfig(ToyConfig):
    waste: float = hp(1.0, low=0.0, high=1.0, help="what is paid beyond the quality")
    pace: float = hp(0.0, low=0.0, high=1.0, help="seconds of an update, per price")


class TradeAgent(ToyAgent):
    """Its return is the quality, its price the quality and the waste, in a metric and in time."""

    Config = TradeConfig

    def __init__(self, config: TradeConfig, spaces: Any, *, seed: int, device: str = "cpu") -> None:
        super().__init__(config, spaces, seed=seed, device=device)
        self.price = config.quality + config.waste
        self.pause = config.pace * self.price

    def update(self, memory: Any, progress: float) -> dict[str, float]:
        time.sleep(self.pause)
        return {**super().update(memory, progress), "price": self.price}
