"""Demonstrated steps, drawn for a discriminator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.demonstrations.steps import read_fitting
from rltune.agents.rewards.networks import Steps
from rltune.agents.spaces import Spaces

Array = NDArray[Any]


class DrawnSteps:
    """Draws demonstrated steps, with observations normalised as the training's are.

    Args:
        file: of the demonstrations
        spaces: of one environment
        normalize: observations (n, ...) as the training normalises them
        device: of what is drawn

    Raises:
        UserError: the file has no demonstrations, or they are of other spaces.
    """

    def __init__(
        self, file: str, spaces: Spaces, normalize: Callable[[Array], Array], device: str
    ) -> None:
        episodes = read_fitting(file, spaces).episodes
        self.normalize, self.device = normalize, device
        self._obs = np.concatenate([episode.obs[:-1] for episode in episodes])
        self._next_obs = np.concatenate([episode.obs[1:] for episode in episodes])
        actions = np.concatenate([episode.actions for episode in episodes])
        self._actions = torch.from_numpy(actions.reshape(len(actions), -1))
        self._terminated = torch.zeros(len(actions), dtype=torch.bool)
        ends = np.cumsum([len(episode) for episode in episodes]) - 1
        self._terminated[ends] = torch.tensor([episode.terminated for episode in episodes])

    def draw(self, n: int, generator: torch.Generator) -> Steps:
        """Return ``n`` steps, drawn uniformly with repetition."""
        drawn = torch.randint(
            len(self._actions), (n,), generator=generator, device=generator.device
        ).cpu()
        rows = drawn.numpy()
        obs, next_obs = (
            torch.from_numpy(self.normalize(part[rows])) for part in (self._obs, self._next_obs)
        )
        steps = Steps(obs, self._actions[drawn], next_obs, self._terminated[drawn])
        return Steps(*(part.to(self.device) for part in steps))
