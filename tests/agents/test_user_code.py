from __future__ import annotations

import numpy as np
import pytest
from rltune.agents.envs.vector import Envs
from rltune.agents.user_code import fault


def test_a_fault_of_an_installed_environment_is_placed_in_it() -> None:
    envs = Envs("CartPole-v1", 1, seed=0)
    envs.reset()
    with pytest.raises(AssertionError) as raised:
        envs.step(np.array([7]))
    envs.close()
    error = raised.value
    assert error.__traceback__ is not None
    within = error.with_traceback(error.__traceback__.tb_next)  # without this test's own frame
    assert fault(within).startswith("the environment's cartpole.py, line ")
