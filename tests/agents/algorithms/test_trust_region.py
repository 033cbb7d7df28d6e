from __future__ import annotations

import pytest
import torch
from rltune.agents.algorithms.trust_region import conjugate_gradient, line_search, natural_step
from torch import Tensor, nn


def test_conjugate_gradient_solves() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(20, 20, generator=generator, dtype=torch.float64)
    matrix = root @ root.T + torch.eye(20, dtype=torch.float64)
    b = torch.randn(20, generator=generator, dtype=torch.float64)
    solution = torch.linalg.solve(matrix, b)
    found = conjugate_gradient(lambda v: matrix @ v, b, 40)
    torch.testing.assert_close(found, solution, atol=1e-6, rtol=1e-5)
    errors = []  # in the norm of the matrix, every step brings it nearer
    for steps in range(12):
        error = conjugate_gradient(lambda v: matrix @ v, b, steps) - solution
        errors.append(float(error @ matrix @ error))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


def test_the_step_ends_at_the_divergence_that_was_asked_for() -> None:
    """With a line as loss and a parabola as divergence there is nothing left to approximate."""
    weights = [nn.Parameter(torch.tensor([1.0, -2.0])), nn.Parameter(torch.tensor([[0.5]]))]
    start = torch.cat([w.detach().reshape(-1) for w in weights])
    fisher = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]])
    slope = torch.tensor([1.0, -1.0, 2.0])
    moved = torch.cat([w.reshape(-1) for w in weights]) - start
    loss, kl = slope @ moved, 0.5 * moved @ fisher @ moved
    step = natural_step(loss, kl, weights, 0.03, damping=0.0, max_steps=10)
    torch.testing.assert_close(0.5 * step @ fisher @ step, torch.tensor(0.03))
    down = -torch.linalg.solve(fisher, slope)
    torch.testing.assert_close(step / step.norm(), down / down.norm())
    damped = natural_step(loss, kl, weights, 0.03, damping=1e4, max_steps=10)
    torch.testing.assert_close(damped / damped.norm(), -slope / slope.norm(), atol=1e-3, rtol=0)


def search(x: Tensor, step: Tensor) -> tuple[float, dict[str, Tensor]]:
    """Search the lowest point of (x - 1) ** 2 with x ** 2 as divergence, at most 0.5."""

    def losses() -> tuple[Tensor, dict[str, Tensor]]:
        return (x - 1).square().sum(), {"kl": x.square().sum()}

    return line_search(losses, losses(), x, step, 0.5, shrinking_factor=0.5, max_iter=3)


def test_the_line_search_takes_the_longest_step_that_helps() -> None:
    x = torch.zeros(1)
    fraction, metrics = search(x, torch.full((1,), 2.0))  # 2 and 1 leave the region
    assert fraction == 0.25
    assert x.item() == 0.5
    assert metrics["kl"] == 0.25


@pytest.mark.parametrize("step", [1e3, -0.1, float("nan")])  # too far, uphill, nowhere
def test_the_line_search_gives_up_where_no_step_helps(step: float) -> None:
    x = torch.zeros(1)
    fraction, metrics = search(x, torch.full((1,), step))
    assert fraction == 0.0
    assert metrics["kl"] == 0.0
    assert x.item() == 0.0


def test_conjugate_gradient_ends_at_its_tolerance() -> None:
    products = 0

    def product(vector: torch.Tensor) -> torch.Tensor:
        nonlocal products
        products += 1
        return torch.arange(1.0, 9.0) * vector

    for tolerance, most in ((1e-10, 8), (1.0, 3)):
        products = 0
        x = conjugate_gradient(product, torch.ones(8), 40, tolerance)
        assert products <= most
        residual = torch.ones(8) - torch.arange(1.0, 9.0) * x
        assert float(residual @ residual) < 2 * tolerance
