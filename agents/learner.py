"""The optimizer: gradients, clipping, Adam and RMSprop steps, and target networks."""

from __future__ import annotations

import copy
import math
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.config import AgentConfig
from rltune.agents.shares import Shares
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def flatten(parameters: list[nn.Parameter]) -> Tensor:
    """Make the parameters views of one flat buffer, and return it."""
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    start = 0
    for parameter in parameters:
        parameter.data = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return flat


class Target(Generic[M]):
    """A copy of a module that follows it: a target network.

    Args:
        module: what is copied, in ``Target.module``; all its parameters must be a learner's

    Attributes:
        flat: the buffer that its parameters lie in, laid out as the learner's
    """

    def __init__(self, module: M) -> None:
        self.module: M = copy.deepcopy(module)
        self.flat = flatten(list(self.module.parameters()))
        self.module.requires_grad_(False)

    @torch.no_grad()
    def follow(self, learner: Learner, tau: float) -> None:
        """Move towards what the learner has by the fraction ``tau``; 1 copies."""
        self.flat.lerp_(learner.flat, tau)


class Learner:
    """Optimises the parameters of a module, which become views of one flat buffer.

    One buffer makes clipping and the optimizer a few operations, however many layers there are.

    Args:
        module: the network; its parameters are moved into the buffer
        config: names the optimizer, its constants and how gradients are clipped

    Attributes:
        shares: divides minibatches among several learners; a gradient is that of its share
    """

    shares = Shares()

    def __init__(self, module: nn.Module, config: AgentConfig) -> None:
        self.config = config
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.flat = flatten(self.parameters)
        self.step_count = torch.zeros((), device=self.flat.device)
        # A tensor's own += takes many times as long.
        self._count: Any = self.step_count.numpy() if self.flat.device.type == "cpu" else None
        self.mean = torch.zeros_like(self.flat)  # of the gradients (Adam)
        self.square = torch.zeros_like(self.flat)  # mean of their squares

    def step(self, loss: Tensor, learning_rate: float) -> Tensor:
        """Descend one step on ``loss``; returns the gradient's norm before clipping (0-d)."""
        gradients = torch.autograd.grad(loss, self.parameters)
        gradient = torch.cat([g.reshape(-1) for g in gradients])
        if self.shares.n > 1:
            self.shares.add_up(gradient)
        norm: Tensor = torch.linalg.vector_norm(gradient)
        size = norm
        if self.config.max_grad_value > 0:
            gradient.clamp_(-self.config.max_grad_value, self.config.max_grad_value)
            size = torch.linalg.vector_norm(gradient)
        if self.config.max_grad_norm > 0:
            gradient *= (self.config.max_grad_norm / (size + 1e-6)).clamp(max=1.0)
        self._optimise(gradient, learning_rate)
        return norm

    def descend(self, gradient: NDArray[np.float32], learning_rate: float) -> float:
        """Descend one step on the CPU; returns the gradient's norm before clipping.

        Args:
            gradient: of a loss, laid out as ``flat``; it is clipped in place
            learning_rate: the step size
        """
        if self.shares.n > 1:
            self.shares.add_up(torch.from_numpy(gradient))
        norm = size = math.sqrt(gradient.dot(gradient))
        if self.config.max_grad_value > 0:
            limit = np.float32(self.config.max_grad_value)
            np.minimum(np.maximum(gradient, -limit, out=gradient), limit, out=gradient)
            size = math.sqrt(gradient.dot(gradient))
        if self.config.max_grad_norm > 0:
            scale = self.config.max_grad_norm / (size + 1e-6)
            if scale < 1:
                gradient *= np.float32(scale)
        if self.config.optimizer == "adam":
            self._adam(torch.from_numpy(gradient), learning_rate)
        else:
            self._rmsprop_array(gradient, learning_rate)
        return norm

    def _optimise(self, gradient: Tensor, learning_rate: float) -> None:
        if self.config.optimizer == "adam":
            self._adam(gradient, learning_rate)
        else:
            self._rmsprop(gradient, learning_rate)

    def _adam(self, gradient: Tensor, learning_rate: float) -> None:
        """Adam (Kingma and Ba 2015, arXiv:1412.6980)."""
        if self._count is None:
            self.step_count += 1
        else:
            self._count += 1
        # What torch.optim.Adam(fused=True) calls; its Python around this costs five times as much.
        torch._fused_adam_(
            [self.flat],
            [gradient],
            [self.mean],
            [self.square],
            [],
            [self.step_count],
            lr=learning_rate,
            beta1=self.config.adam_beta1,
            beta2=self.config.adam_beta2,
            weight_decay=0.0,
            eps=self.config.optimizer_eps,
            amsgrad=False,
            maximize=False,
        )

    def _rmsprop(self, gradient: Tensor, learning_rate: float) -> None:
        """RMSprop with epsilon outside of the root, as in torch."""
        alpha = self.config.rms_alpha
        self.square.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        scale = self.square.sqrt().add_(self.config.optimizer_eps)
        self.flat.addcdiv_(gradient, scale, value=-learning_rate)

    def _rmsprop_array(self, gradient: NDArray[np.float32], learning_rate: float) -> None:
        # The same on the same memory: PyTorch's six calls take five times as long.
        alpha, flat, square = self.config.rms_alpha, self.flat.numpy(), self.square.numpy()
        square *= alpha
        square += gradient * gradient * (1 - alpha)
        scale = np.sqrt(square)
        scale += self.config.optimizer_eps
        flat -= gradient / scale * learning_rate

    def state_dict(self) -> dict[str, Tensor]:
        """Return the optimizer's state; the parameters belong to the module's own."""
        return {"step_count": self.step_count, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what ``state_dict`` gave."""
        self.step_count.copy_(state["step_count"])
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
