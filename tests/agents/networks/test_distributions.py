from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.errors import UserError
from rltune.agents.networks.distributions import (
    Bernoulli,
    Categorical,
    Gaussian,
    MultiCategorical,
    make_distribution,
)
from torch import distributions as reference

BATCH = 5


def expected(kind: Any, params: torch.Tensor, action: torch.Tensor) -> tuple[Any, Any]:
    """Log-probability and entropy by torch.distributions."""
    if isinstance(kind, Categorical):
        one = reference.Categorical(logits=params)
        return one.log_prob(action[:, 0]), one.entropy()
    if isinstance(kind, MultiCategorical):
        parts = [reference.Categorical(logits=p) for p in params.split(kind.counts, -1)]
        log_probs = [part.log_prob(action[:, i]) for i, part in enumerate(parts)]
        return sum(log_probs), sum(part.entropy() for part in parts)
    if isinstance(kind, Bernoulli):
        bits = reference.Bernoulli(logits=params)
        return bits.log_prob(action.float()).sum(-1), bits.entropy().sum(-1)
    mean, log_std = params.chunk(2, -1)
    normal = reference.Normal(mean, log_std.exp())
    return normal.log_prob(action).sum(-1), normal.entropy().sum(-1)


KINDS = [Categorical(4), MultiCategorical([2, 3, 4]), Bernoulli(3), Gaussian(2)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_log_probability_and_entropy(kind: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    params = torch.randn(BATCH, kind.n_params, generator=generator, requires_grad=True)
    action = kind.sample(params, kind.noise(BATCH, generator)).detach()
    assert action.shape == (BATCH, kind.size)
    ours, theirs = kind.evaluate(params, action), expected(kind, params, action)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other)
        torch.testing.assert_close(
            torch.autograd.grad(own.sum(), params, retain_graph=True)[0],
            torch.autograd.grad(other.sum(), params, retain_graph=True)[0],
        )


def torch_kl(kind: Any, params: torch.Tensor, other: torch.Tensor) -> Any:
    """The Kullback-Leibler divergence by torch.distributions."""
    kl = reference.kl_divergence
    if isinstance(kind, (Categorical, MultiCategorical)):
        counts = kind.counts if isinstance(kind, MultiCategorical) else [kind.n_params]
        pairs = zip(params.split(counts, -1), other.split(counts, -1), strict=True)
        return sum(
            kl(reference.Categorical(logits=p), reference.Categorical(logits=q)) for p, q in pairs
        )
    if isinstance(kind, Bernoulli):
        return kl(reference.Bernoulli(logits=params), reference.Bernoulli(logits=other)).sum(-1)
    normals = [
        reference.Normal(mean, log_std.exp())
        for mean, log_std in (params.chunk(2, -1), other.chunk(2, -1))
    ]
    return kl(*normals).sum(-1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_divergence(kind: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    params, other = torch.randn(2, BATCH, kind.n_params, generator=generator)
    params.requires_grad_()
    other.requires_grad_()
    ours, theirs = kind.kl(params, other), torch_kl(kind, params, other)
    assert ours.shape == (BATCH,)
    assert (ours > 0.01).all()
    torch.testing.assert_close(ours, theirs)
    for own, two in zip(
        torch.autograd.grad(ours.sum(), (params, other)),
        torch.autograd.grad(theirs.sum(), (params, other)),
        strict=True,
    ):
        torch.testing.assert_close(own, two)
    same = kind.kl(params, params)
    torch.testing.assert_close(same, torch.zeros(BATCH), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_the_divergence_curves_as_the_log_probability_varies(kind: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    params = torch.randn(kind.n_params, generator=generator)
    curvature = torch.autograd.functional.hessian(
        lambda p: kind.kl(p[None], params[None]).sum(), params
    )
    n = 100_000  # samples of the Fisher matrix
    rows = params.expand(n, -1).clone().requires_grad_()
    action = kind.sample(rows, kind.noise(n, generator)).detach()
    (scores,) = torch.autograd.grad(kind.evaluate(rows, action)[0].sum(), rows)
    # The largest entries are near 3: a hundredth of that is what sampling leaves.
    torch.testing.assert_close(curvature, scores.T @ scores / n, atol=0.05, rtol=0.03)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_samples_follow_the_distribution(kind: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    n = 20_000
    params = torch.randn(kind.n_params, generator=generator).expand(n, -1)
    action = kind.sample(params, kind.noise(n, generator))
    if isinstance(kind, Gaussian):
        mean, log_std = params[0].chunk(2)
        torch.testing.assert_close(action.mean(0), mean, atol=0.03, rtol=0.03)
        torch.testing.assert_close(action.std(0), log_std.exp(), atol=0.03, rtol=0.03)
        return
    rows, counts = action.unique(dim=0, return_counts=True)
    log_prob, _ = kind.evaluate(params[: len(rows)], rows)
    torch.testing.assert_close(counts / n, log_prob.exp(), atol=0.015, rtol=0.0)
    assert torch.equal(kind.mode(params)[0], rows[log_prob.argmax()])


def test_extreme_parameters_stay_finite() -> None:
    for kind in KINDS[:3]:
        params = torch.full((1, kind.n_params), 300.0)
        params[:, ::2] = -300.0
        action = kind.mode(params)
        assert all(torch.isfinite(x).all() for x in kind.evaluate(params, action))
        assert torch.isfinite(kind.kl(params, -params)).all()


def test_every_action_space_has_one() -> None:
    found = [
        make_distribution(space)
        for space in (
            spaces.Discrete(3),
            spaces.MultiDiscrete([2, 3]),
            spaces.MultiBinary(4),
            spaces.Box(-1, 1, (2, 3), np.float32),
        )
    ]
    assert [type(entry) for entry in found] == [Categorical, MultiCategorical, Bernoulli, Gaussian]
    assert [each.size for each in found] == [1, 2, 4, 6]
    with pytest.raises(UserError, match="Text"):
        make_distribution(spaces.Text(3))
