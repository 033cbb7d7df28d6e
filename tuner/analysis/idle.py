"""Idle time of a search's workers: how long they did not train, and what they did instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class IdleShares:
    """Parts of the workers' time, each from its first row on, in which they did not train.

    Attributes:
        making: agents and environments were made, or loaded
        saving: checkpoints were saved
        waiting: for the driver's answer or its next trial
    """

    making: float
    saving: float
    waiting: float

    @property
    def whole(self) -> float:
        """All of it."""
        return self.making + self.saving + self.waiting


def idle_shares(history: pd.DataFrame) -> IdleShares | None:
    """Return the shares in a search's history; None: it does not have them."""
    if "idle_seconds" not in history:
        return None
    ordered = history.sort_values(["trial", "seed", "iteration"])
    before = ordered.groupby(["trial", "seed"])["time"].shift().fillna(0.0)
    rows = ordered.assign(trained=ordered["time"] - before).dropna(subset=["idle_seconds"])
    idle, making, saving, trained = (
        float(rows[name].sum())
        for name in ("idle_seconds", "make_seconds", "save_seconds", "trained")
    )
    whole = idle + trained
    if not whole > 0:
        return None
    return IdleShares(making / whole, saving / whole, (idle - making - saving) / whole)
