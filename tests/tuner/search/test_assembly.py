"""Assembly: a search gives its driver the same as a resume reads from run.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rltune
from rltune.search.request import starts
from rltune.space.space import Space

OWN = {
    "space": {"learning_rate": {"log": [1e-5, 1e-2]}, "n_steps": {"pow2": [16, 256]}},
    "fixed": {"net_arch": [32, 32]},
    "derived": {"batch_size": "n_steps // 2"},
    "start": [{"learning_rate": 3e-4, "n_steps": 64}],
}


@pytest.mark.parametrize(
    ("agent", "env", "space"),
    [("ppo", "CartPole-v1", None), ("sac", "Pendulum-v1", None), ("ppo", "CartPole-v1", OWN)],
)
def test_the_space_in_run_yaml_is_the_one_that_is_searched(
    tmp_path: Path, agent: str, env: str, space: Any
) -> None:
    search = rltune.Search(agent, env, space, budget=2000, name="run", storage_path=tmp_path)
    again = Space.from_dict(search.spec.space)
    assert repr(again) == repr(search.space)  # types and orders, too
    assert repr(starts(again, env, search.config_class)) == repr(search.starts)
    rngs = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(20):
        mine, theirs = search.space.sample(rngs[0]), again.sample(rngs[1])
        assert repr(search.space.resolve(mine)) == repr(again.resolve(theirs))
