"""Demonstrated steps, as minibatches that a policy imitates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.demonstrations.episodes import (
    Array,
    Demonstration,
    Demonstrations,
    describe_actions,
)
from rltune.agents.demonstrations.files import read
from rltune.agents.errors import UserError
from rltune.agents.spaces import Spaces, as_model_input
from torch import Tensor

SEQUENCE = 32  # demonstrated steps that an LSTM is trained through


class DemonstratedSteps:
    """The steps of some episodes, in a row.

    Args:
        episodes: at least one

    Attributes:
        obs: what was seen before each step: (steps, ...), not normalised
        actions: what was done: (steps, size)
        normalize: makes of observations (n, ...) what the policy gets
    """

    def __init__(self, episodes: Sequence[Demonstration]) -> None:
        self.obs: Array = np.concatenate([episode.obs[:-1] for episode in episodes])
        actions = np.concatenate([episode.actions for episode in episodes])
        self.actions = torch.from_numpy(actions.reshape(len(actions), -1))
        self._begins = np.zeros(len(actions), np.bool_)
        self._begins[np.cumsum([0, *map(len, episodes)])[:-1]] = True
        self.normalize: Callable[[Array], Array] = lambda obs: obs

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.actions)

    def minibatch(
        self, starts: Tensor, state_size: int = 0, length: int = SEQUENCE
    ) -> tuple[Tensor, Tensor]:
        """Return a policy's inputs and the actions (rows, size) that were done on them.

        Args:
            starts: the steps' numbers; of a recurrent policy, where its sequences begin
            state_size: of the policy; 0: it is not recurrent, and the inputs are (n, ...)
            length: of the sequences; then the inputs are (n, length, ...)
        """
        if not state_size:
            return torch.from_numpy(self.normalize(self.obs[starts.numpy()])), self.actions[starts]
        steps = (starts[:, None] + torch.arange(length)) % len(self)
        return self._sequences(steps.numpy(), state_size), self.actions[steps.flatten()]

    def _sequences(self, steps: NDArray[np.int64], state_size: int) -> Tensor:
        """Return the inputs (batch, length, ...) of sequences; their first states are zeros."""
        obs = self.normalize(self.obs[steps.reshape(-1)])
        begins = self._begins[steps]
        begins[:, 0] = True
        flat = obs.reshape(*steps.shape, -1)
        state = np.zeros((*steps.shape, state_size), np.float32)
        inputs = np.concatenate([flat, begins[..., None], state], -1, dtype=np.float32)
        return torch.from_numpy(inputs)


def read_fitting(file: str, spaces: Spaces) -> Demonstrations:
    """Return the demonstrations of a file.

    Args:
        file: what the user named
        spaces: of one environment, as its agent sees it

    Raises:
        UserError: there are none in it, or they are of other observations or actions.
    """
    found = read(file)
    shape, theirs = as_model_input(spaces.observation).shape, found.episodes[0].obs.shape[1:]
    if shape != theirs:
        raise UserError(
            f"{file}: observations of {found.env} have the shape {theirs}, but here they have "
            f"{shape}"
        )
    if (actions := describe_actions(spaces.action)) != found.actions:
        raise UserError(f"{file}: actions of {found.env} are {found.actions}, but here {actions}")
    return found
