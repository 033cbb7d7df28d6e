"""The memory of an algorithm that learns from demonstrations alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.algorithm import VectorStep
from rltune.agents.demonstrations.episodes import Array, Demonstrations
from rltune.agents.demonstrations.steps import DemonstratedSteps

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DemonstrationMemory:
    """Demonstrated steps to learn from, and episodes that are held out.

    Args:
        found: the demonstrations
        validation_fraction: of the episodes to hold out, rounded down; one is always learned from
        seed: decides which ones

    Attributes:
        steps: those to learn from
        held_out: those that nothing is learned from; None: there are none
    """

    def __init__(self, found: Demonstrations, validation_fraction: float, seed: int) -> None:
        episodes = found.episodes
        n = len(episodes)
        # The little more makes 0.7 of 10 seven: as floats, the product is less.
        n_held_out = min(n - 1, math.floor(validation_fraction * n + 1e-9))
        order = np.random.default_rng(seed).permutation(n).tolist()
        shown = [episodes[k] for k in sorted(order[n_held_out:])]
        kept = [episodes[k] for k in sorted(order[:n_held_out])]
        self.steps = DemonstratedSteps(shown)
        self.held_out = DemonstratedSteps(kept) if kept else None

    @property
    def obs(self) -> Array:
        """The observations of the steps to learn from: (steps, ...), not normalised."""
        return self.steps.obs

    @property
    def nbytes(self) -> int:
        """The bytes of the observations."""
        return self.steps.obs.nbytes + (self.held_out.obs.nbytes if self.held_out else 0)

    def normalize_by(self, normalize: Callable[[Array], Array]) -> None:
        """Let the policy get observations as ``normalize`` makes them."""
        for steps in (self.steps, self.held_out):
            if steps is not None:
                steps.normalize = normalize

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Refuse a step: demonstrations are read, not collected."""
        raise TypeError("a memory of demonstrations takes no further steps")

    def interrupt(self) -> None:
        """Do nothing: no episode is under way."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the file of demonstrations has it all."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing."""
