"""Behavioural cloning: a policy learns what was demonstrated, beside its own updates.

Pomerleau, "Efficient Training of Artificial Neural Networks for Autonomous Navigation", Neural
Computation 1991. Gradient steps on demonstrated actions follow each update of the algorithm, with
an optimizer of their own; their size may fade to nothing (as in Unity's ML-Agents).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rltune.agents.algorithm import Algorithm
from rltune.agents.demonstrations.steps import SEQUENCE, DemonstratedSteps, read_fitting
from rltune.agents.generators import restore_generator
from rltune.agents.loop.normalization import Normalizers
from rltune.agents.spaces import Spaces
from torch import Tensor, nn


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
        self.algorithm, self.config = algorithm, config
        self.steps = DemonstratedSteps(read_fitting(config.demonstrations, spaces).episodes)
        self.steps.normalize = normalizers.normalize
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
        starts = torch.randint(len(self.steps), (size,), generator=self.generator)
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
        inputs, action = self.steps.minibatch(starts, algorithm.state_size)
        return algorithm.imitation(inputs.to(algorithm.device), action.to(algorithm.device))

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
