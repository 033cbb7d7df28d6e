import numpy as np
import pytest
from rltune.agents.algorithms.returns import generalised_advantages


def naive(reward, value, next_value, terminated, truncated, gamma, lam):  # type: ignore[no-untyped-def]
    """The definition: a sum of discounted temporal differences up to the end of the episode."""
    n_steps, n_envs = reward.shape
    result = np.zeros((n_steps, n_envs))
    for env in range(n_envs):
        for start in range(n_steps):
            weight = 1.0
            for t in range(start, n_steps):
                bootstrap = 0.0 if terminated[t, env] else gamma * next_value[t, env]
                result[start, env] += weight * (reward[t, env] + bootstrap - value[t, env])
                if terminated[t, env] or truncated[t, env]:
                    break
                weight *= gamma * lam
    return result


@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0)])
def test_against_the_definition(gamma: float, lam: float) -> None:
    rng = np.random.default_rng(0)
    shape = (20, 3)
    reward, value, next_value = rng.normal(size=(3, *shape)).astype(np.float32)
    terminated, truncated = rng.random((2, *shape)) < 0.15
    arguments = (reward, value, next_value, terminated, truncated, gamma, lam)
    ours = generalised_advantages(*arguments)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, naive(*arguments), rtol=1e-4, atol=1e-5)
