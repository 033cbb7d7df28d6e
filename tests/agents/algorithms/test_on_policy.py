from __future__ import annotations

import numpy as np
import pytest
import torch
from rltune.agents.algorithms.on_policy import Rollout
from torch import Tensor


def explained(target: Tensor, value: Tensor) -> float:
    rows = torch.zeros(len(target))
    return Rollout(rows[:, None], rows[:, None], rows, value, rows, target).explained_variance()


@pytest.mark.parametrize("n", [5, 2048])
@pytest.mark.parametrize("constant", [0.0, 0.1, -1600.0])
def test_targets_that_differ_by_rounding_explain_nothing(n: int, constant: float) -> None:
    target = np.full(n, constant, np.float32)
    target[::3] = np.nextafter(target[::3], np.float32(np.inf)) if constant else 0.0
    value = torch.linspace(-1, 1, n)
    assert explained(torch.from_numpy(target), value) == 0


@pytest.mark.parametrize("offset", [0.0, 1600.0])
def test_explained_variance_is_the_part_that_the_values_tell(offset: float) -> None:
    target = offset + torch.linspace(-1, 1, 2048)
    assert explained(target, target.clone()) == pytest.approx(1)
    assert explained(target, target / 2) == pytest.approx(0.75, abs=1e-3)
    assert explained(target, torch.zeros(2048)) == pytest.approx(0, abs=1e-3)
    assert explained(target, 2 * offset - target) == pytest.approx(-3, abs=1e-3)
