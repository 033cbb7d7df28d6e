"""Behavioural cloning: a policy learns what was demonstrated, beside its own updates.

Pomerleau, "Efficient Training of Artificial Neural Networks for Autonomous Navigation", Neural
Computation 1991. Gradient steps on demonstrated actions follow each update of the algorithm, with
an optimizer of their own; their size may fade to nothing (as in Unity's ML-Agents).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm
from rltune.agents.demonstrations.episodes import Demonstrations, describe_actions
from rltune.agents.demonstrations.files import read
from rltune.agents.errors import UserError
from rltune.agents.generators import restore_generator
from rltune.agents.loop.normalization import Normalizers
from rltune.agents.spaces import Spaces, as_model_input
from torch import Tensor, nn

SEQUENCE = 32  # demonstrated steps that an LSTM is trained through


class Cloning:
    """Takes the gradient steps of cloning.

    Args:
        algorithm: whose policy learns
        spaces: of one environment
        normalizers: of the training's observations
        seed: of the demonstrated steps that are drawn

    Raises:
        UserError: the algorithm has no policy that could learn, the file has no demonstrations, or
            they are of another environment's spaces.
    """

    def __init__(
        self, algorithm: Algorithm[Any], spaces: Spaces, normalizers: Normalizers, seed: int
    ) -> None:
        config = algorithm.config
        self.algorithm, self.normalizers, self.config = algorithm, normalizers, config
        found = read(config.demonstrations)
        check_spaces(found, spaces, config.demonstrations)
        episodes = found.episodes
        self._obs = np.concatenate([episode.obs[:-1] for episode in episodes])
        actions = np.concatenate([episode.actions for episode in episodes])
        self._actions = torch.from_numpy(actions.reshape(len(actions), -1))
        self._begins = np.zeros(len(actions), np.bool_)
        self._begins[np.cumsum([0, *map(len, episodes)])[:-1]] = True
        self.generator = torch.Generator().manual_seed(seed)
        loss = self._loss(torch.zeros(1, dtype=torch.long))
        nets: nn.Module = algorithm.nets  # type: ignore[attr-defined]
        parameters = [p for p in nets.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        self.parameters = [p for p, g in zip(parameters, gradients, strict=True) if g is not None]
        self.optimizer = torch.optim.Adam(self.parameters)

    def update(self, env_steps: int, progress: float) -> dict[str, float]:
        """Take the gradient steps that follow an update of the algorithm.

        Args:
            env_steps: of the training so far
            progress: the fraction of them that is done
        """
        config = self.config
        fading = 1.0 - env_steps / config.cloning_steps if config.cloning_steps else 1.0
        rate = config.cloning * fading * self.algorithm.learning_rate_at(progress)
        if rate <= 0.0:
            return {}
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        losses = [self._step() for _ in range(config.cloning_updates)]
        return {"cloning_loss": float(torch.stack(losses).mean())}

    def _step(self) -> Tensor:
        size = self.config.cloning_batch_size
        if self.algorithm.state_size:
            size = max(1, size // SEQUENCE)
        starts = torch.randint(len(self._actions), (size,), generator=self.generator)
        loss = self._loss(starts)
        gradients = torch.autograd.grad(loss, self.parameters)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def _loss(self, starts: Tensor) -> Tensor:
        """Return the loss on demonstrated steps; with an LSTM, of sequences that begin there."""
        algorithm = self.algorithm
        if not algorithm.state_size:
            obs = self.normalizers.normalize(self._obs[starts.numpy()])
            inputs = torch.from_numpy(obs).to(algorithm.device)
            return algorithm.imitation(inputs, self._actions[starts].to(algorithm.device))
        steps = (starts[:, None] + torch.arange(SEQUENCE)) % len(self._actions)
        rows = steps.flatten()
        action = self._actions[rows].to(algorithm.device)
        return algorithm.imitation(self._sequences(steps.numpy()).to(algorithm.device), action)

    def _sequences(self, steps: NDArray[np.int64]) -> Tensor:
        """Return the inputs (batch, length, ...) of sequences; their first states are zeros."""
        obs = self.normalizers.normalize(self._obs[steps.reshape(-1)])
        begins = self._begins[steps]
        begins[:, 0] = True
        flat = obs.reshape(*steps.shape, -1)
        state = np.zeros((*steps.shape, self.algorithm.state_size), np.float32)
        inputs = np.concatenate([flat, begins[..., None], state], -1, dtype=np.float32)
        return torch.from_numpy(inputs)

    def state_dict(self) -> dict[str, Any]:
        """Return optimizer and generator."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.optimizer.load_state_dict(dict(state["optimizer"]))
        restore_generator(self.generator, state["generator"])


def check_spaces(found: Demonstrations, spaces: Spaces, file: str) -> None:
    """Raise UserError where demonstrations are of other observations or actions than the spaces."""
    shape, theirs = as_model_input(spaces.observation).shape, found.episodes[0].obs.shape[1:]
    if shape != theirs:
        raise UserError(
            f"{file}: observations of {found.env} have the shape {theirs}, but here they have "
            f"{shape}"
        )
    if (actions := describe_actions(spaces.action)) != found.actions:
        raise UserError(f"{file}: actions of {found.env} are {found.actions}, but here {actions}")
