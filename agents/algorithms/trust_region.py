"""Trust region steps: the natural gradient, by conjugate gradient and line search.

Schulman et al. 2015, arXiv:1502.05477, appendix C.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Losses = tuple[Tensor, dict[str, Tensor]]  # the loss, and metrics with the divergence as ``kl``


def natural_step(
    loss: Tensor,
    kl: Tensor,
    parameters: list[nn.Parameter],
    target_kl: float,
    damping: float,
    max_steps: int,
    tolerance: float = 1e-10,
) -> Tensor:
    """Return the step down the natural gradient that leads as far as to ``target_kl``.

    That is so where the loss is a line and the divergence a parabola: near the parameters.

    Args:
        loss: what the step shall lower, 0-d
        kl: the divergence from the present policy, 0-d: at present it and its gradient are 0
        parameters: those of the policy; the step has the numbers of all of them in a row
        target_kl: the divergence at the end of the step
        damping: added to the diagonal of the Fisher matrix
        max_steps: of conjugate gradient
        tolerance: it ends where the squared residual is smaller
    """
    downhill = -_gradient(loss, parameters)
    kl_gradient = _gradient(kl, parameters, create_graph=True)

    def fisher_product(vector: Tensor) -> Tensor:
        return _gradient(kl_gradient @ vector, parameters) + damping * vector

    direction = conjugate_gradient(fisher_product, downhill, max_steps, tolerance)
    curvature = direction @ fisher_product(direction)
    return direction * (2 * target_kl / curvature).sqrt()


def _gradient(scalar: Tensor, parameters: list[nn.Parameter], create_graph: bool = False) -> Tensor:
    gradients = torch.autograd.grad(
        scalar, parameters, retain_graph=True, create_graph=create_graph
    )
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, max_steps: int, tolerance: float = 1e-10
) -> Tensor:
    """Return an x with A x = b (approximately), where ``product(v)`` is A v and A > 0.

    It ends after ``max_steps``, or where the squared norm of b - A x is below ``tolerance``.
    """
    x, residual = torch.zeros_like(b), b
    direction, squared = residual, residual @ residual
    for _ in range(max_steps):
        if float(squared) < tolerance:
            break
        curvature = product(direction)
        step = squared / (direction @ curvature)
        x = x + step * direction
        residual = residual - step * curvature
        previous, squared = squared, residual @ residual
        direction = residual + squared / previous * direction
    return x


@torch.no_grad()
def line_search(
    losses: Callable[[], Losses],
    before: Losses,
    flat: Tensor,
    step: Tensor,
    target_kl: float,
    shrinking_factor: float,
    max_iter: int,
) -> tuple[float, dict[str, Tensor]]:
    """Take the longest step within the trust region that lowers the loss, or none.

    Args:
        losses: gives what the policy's parameters are worth
        before: what it gave at the beginning
        flat: all parameters in a row, which are moved
        step: the longest one that is tried
        target_kl: the divergence where the trust region ends
        shrinking_factor: how much shorter each next step is
        max_iter: how many are tried

    Returns:
        which fraction of ``step`` was taken, and the metrics there
    """
    loss, metrics = before
    start = flat.clone()
    fraction = 1.0
    for _ in range(max_iter):
        flat.copy_(start + fraction * step)
        new_loss, new_metrics = losses()
        # Written so that NaN, as from a gradient of 0, is no success.
        if bool((new_metrics["kl"] < target_kl) & (new_loss < loss)):
            return fraction, new_metrics
        fraction *= shrinking_factor
    flat.copy_(start)
    return 0.0, metrics
