from __future__ import annotations

import pytest
from rltune.agents.loop.controls import Controls, Monitor


def watch(monitor: Monitor, returns: list[float]) -> Monitor:
    for number, value in enumerate(returns, start=1):
        if monitor.stop_reason is None:
            monitor.episode(value, env_steps=10 * number)
    return monitor


def test_the_mean_is_of_the_last_episodes() -> None:
    monitor = watch(Monitor(Controls(reward_buffer_size=2)), [1.0, 2.0, 4.0, 0.0])
    assert monitor.mean_reward == 2.0
    assert monitor.best_reward == 3.0
    assert Monitor(Controls()).mean_reward is None


def test_nothing_happens_unless_asked_for() -> None:
    monitor = watch(Monitor(Controls()), [1.0] * 1000)
    assert monitor.stop_reason is None
    assert monitor.learning_rate_factor == 1.0


def test_target_reward_needs_a_full_buffer() -> None:
    controls = Controls(target_reward=5.0, reward_buffer_size=3)
    assert watch(Monitor(controls), [9.0, 9.0]).stop_reason is None
    assert watch(Monitor(controls), [9.0, 9.0, 9.0]).stop_reason is not None
    assert watch(Monitor(controls), [1.0, 5.0, 5.0]).stop_reason is None


def test_plateaus_reduce_and_then_stop() -> None:
    controls = Controls(
        reward_buffer_size=1, plateau_patience=3, plateau_factor=0.5, early_stop_patience=2
    )
    once = watch(Monitor(controls), [2.0, 1.0, 1.0, 1.0])
    assert once.learning_rate_factor == 0.5
    assert once.stop_reason is None
    saved = watch(Monitor(controls), [2.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    assert saved.learning_rate_factor == 1.0  # a new best in time
    twice = watch(Monitor(controls), [2.0] * 8)
    assert twice.learning_rate_factor == 0.25
    assert twice.stop_reason == "no better mean reward after 2 reductions"


def test_monitoring_starts_later() -> None:
    controls = Controls(
        target_reward=1.0, reward_buffer_size=1, plateau_patience=1, monitor_from=35
    )
    monitor = watch(Monitor(controls), [9.0, 9.0, 9.0])  # at 10, 20 and 30 env_steps
    assert monitor.stop_reason is None
    assert monitor.reductions == 0
    assert monitor.best_reward is None
    monitor.episode(9.0, env_steps=40)
    assert monitor.stop_reason is not None


@pytest.mark.parametrize("stop", [2, 3, 5])
def test_the_state_is_complete(stop: int) -> None:
    controls = Controls(reward_buffer_size=2, plateau_patience=2)
    returns = [1.0, 0.0, 3.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    whole = watch(Monitor(controls), returns)
    first, second = watch(Monitor(controls), returns[:stop]), Monitor(controls)
    second.load_state_dict(first.state_dict())
    assert watch(second, returns[stop:]).state_dict() == whole.state_dict()
