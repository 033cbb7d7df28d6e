"""Learning behind the policy that acted: the correction of V-trace, against its definition."""

from __future__ import annotations

import numpy as np
from rltune.agents.algorithms.returns import generalised_advantages


def v_trace(reward, value, next_value, terminated, ended, gamma, lam, ratio):  # type: ignore[no-untyped-def]
    """Espeholt et al. 2018, equation 1, summed as it stands there: what the values are off by."""
    n, rho = len(reward), np.minimum(ratio, 1)
    off = np.zeros(n)
    for s in range(n):
        weight = 1.0
        for t in range(s, n):
            delta = rho[t] * (reward[t] + gamma * next_value[t] * (not terminated[t]) - value[t])
            off[s] += weight * delta
            if ended[t]:
                break
            weight *= gamma * lam * rho[t]
    return off


def test_corrected_advantages_are_those_of_v_trace() -> None:
    rng = np.random.default_rng(0)
    n, gamma, lam = 12, 0.95, 0.9
    reward, value, next_value = (rng.normal(size=n).astype(np.float32) for _ in range(3))
    terminated, truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    terminated[4] = truncated[8] = True
    ratio = rng.uniform(0.2, 1.0, n).astype(np.float32)
    columns = [array[:, None] for array in (reward, value, next_value, terminated, truncated)]
    found = generalised_advantages(*columns, gamma, lam, ratio[:, None])[:, 0]
    ended = terminated | truncated
    wanted = v_trace(reward, value, next_value, terminated, ended, gamma, lam, ratio)
    assert np.allclose(found * ratio, wanted, atol=1e-5)


def test_a_policy_that_acted_itself_needs_no_correction() -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(9, 2)).astype(np.float32) for _ in range(3)]
    ends = np.zeros((9, 2), np.bool_)
    plain = generalised_advantages(*arrays, ends, ends, 0.99, 0.95)
    same = generalised_advantages(*arrays, ends, ends, 0.99, 0.95, np.ones((9, 2), np.float32))
    assert np.array_equal(plain, same)
