"""An environment that does not answer is named, with the method that is waited for."""

from __future__ import annotations

import threading
import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from rltune.agents.envs import waiting
from rltune.agents.envs.vector import Envs

GATES: dict[str, threading.Event] = {}


class GatedEnv(gymnasium.Env[Any, Any]):
    """Answers when the gate of the method is open."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        GATES["constructor"].wait()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        GATES["reset()"].wait()
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        GATES["step()"].wait()
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("method", ["constructor", "reset()", "step()"])
def test_what_does_not_answer_is_told_and_that_it_has(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0.2)
    monkeypatch.setattr(waiting, "LOOK_EVERY", 0.02)
    for name in ("constructor", "reset()", "step()"):
        GATES[name] = threading.Event()
        if name != method:
            GATES[name].set()
    told: list[tuple[str, bool]] = []

    def tell(name: str, seconds: float | None) -> None:
        told.append((name, seconds is None))
        assert seconds is None or seconds >= 0.2
        GATES[name].set()

    with waiting.Watch(tell):
        envs = Envs("test_waiting:GatedEnv", 1, seed=0)
        envs.reset()
        envs.step(np.zeros(1, np.int64))
        envs.close()
        until = time.monotonic() + 5
        while len(told) < 2 and time.monotonic() < until:
            time.sleep(0.01)
    assert told == [(method, False), (method, True)]
    assert waiting.longest() is None


def test_a_method_that_raises_is_waited_for_no_longer() -> None:
    def fail() -> None:
        with waiting.calling("constructor"):
            with waiting.calling("reset()"):
                pass
            now = waiting.longest()
            assert now is not None
            assert now[0] == "constructor"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert waiting.longest() is None
