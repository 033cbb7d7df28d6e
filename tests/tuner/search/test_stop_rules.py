"""Stop rules: every fault is named, and what only looks like one is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from rltune.runs.history import HistoryWriter, read_episodes, read_history
from rltune.search.stop_rules import Health, Stop, least_entropy

BUDGET = 9000
CARTPOLE = least_entropy(spaces.Discrete(2))


def row(iteration: int, evaluation: float | None = 9.4, **metrics: float | str) -> dict[str, Any]:
    """Return one of nine rows of a trial on CartPole that has come to nothing."""
    values: dict[str, Any] = {
        "iteration": iteration,
        "env_steps": 1000 * iteration,
        "time": 10.0 * iteration,
        "timestamp": 1e9 + 10.0 * iteration,
        "env_steps_per_second": 100.0,
        "memory": 0.02,
        "memory_in_use": 0.3,
        "learning_rate": 1e-3,
        **metrics,
    }
    if evaluation is not None:
        values |= {"eval_return": evaluation, "eval_std": 0.5, "eval_episodes": 10}
    return values


BEGINNING = [15.0, 20.0, 25.0, 18.0, 22.0] * 2
BAD = [9.0, 10.0, 8.0]


def judged(rows: list[dict[str, Any]], returns: list[float] = BAD, trial: int = 0) -> Stop | None:
    """Return the verdict on a trial with these rows."""
    health = Health(BUDGET, CARTPOLE)
    for i, row in enumerate(rows):
        stop = health.judge((trial, 0), row, BEGINNING + returns if i == 0 else returns)
        if stop:
            return stop
    return None


def noisy(i: int) -> float:
    """Return evaluations that are no good, but not all the same."""
    return 9.0 + i % 3 / 2


def test_a_collapsed_policy() -> None:
    rows = [row(i, noisy(i), entropy=0.3 if i < 3 else 0.001) for i in range(1, 10)]
    stop = judged(rows)
    # Three evaluations with the sign, however early it begins.
    assert stop == ("PRUNED", "entropy collapse: 0.001 < 0.0069 nats at 5,000 env_steps")


def test_the_end_of_a_solved_task_is_no_collapse() -> None:
    rows = [row(i, 500.0, entropy=1e-6, explained_variance=0.0) for i in range(1, 10)]
    assert judged(rows, [500.0, 500.0]) is None


def test_a_policy_that_was_good_for_a_moment_goes_on() -> None:
    rows = [row(i, 60.0 if i % 3 == 0 else 9.4, entropy=0.001) for i in range(1, 10)]
    assert judged(rows) is None
    rows = [row(i, noisy(i), entropy=0.001) for i in range(1, 10)]
    assert judged(rows) is not None
    assert judged(rows, [9.0, 60.0]) is None  # training is on average better than its beginning


def test_exploding_values() -> None:
    for name, value, factor in (("value_loss", 1e9, 10), ("q_value", -1e5, 2)):
        rows = [row(i, noisy(i), **{name: value * factor**i}) for i in range(1, 10)]
        stop = judged(rows)
        assert stop is not None
        assert stop.state == "FAIL"
        assert stop.reason.startswith(f"diverged: exploding {name}, ")
        shrinking = [row(i, noisy(i), **{name: value * 1e9 / factor**i}) for i in range(1, 10)]
        assert judged(shrinking) is None
    # Large, but the returns are, too.
    assert judged([row(i, 2e5, value_loss=1e9) for i in range(1, 10)], [2e5]) is None


def test_kl_blow_up() -> None:
    assert judged([row(i, noisy(i), approx_kl=0.05) for i in range(1, 10)]) is None
    stop = judged([row(i, noisy(i), approx_kl=5.0) for i in range(1, 10)])
    assert stop == ("PRUNED", "KL blow-up: 5 > 1 nats an update at 3,000 env_steps")
    once = [row(i, noisy(i), approx_kl=5.0 if i % 3 == 0 else 0.05) for i in range(1, 10)]
    assert judged(once) is None


def test_a_dead_value_function() -> None:
    rows = [row(i, noisy(i), explained_variance=-0.01) for i in range(1, 10)]
    stop = judged(rows)
    assert stop == ("PRUNED", "dead value function: explained variance -0.01 at 5,000 env_steps")
    alive = [row(i, noisy(i), explained_variance=0.2 * (i == 4)) for i in range(1, 8)]
    assert judged(alive) is None


def test_where_all_returns_are_equal_there_is_nothing_to_explain() -> None:
    rows = [row(i, -500.0, explained_variance=-2.0, entropy=1.0) for i in range(1, 10)]
    health = Health(BUDGET, CARTPOLE)
    assert not any(health.judge((0, 0), result, [-500.0] * 5) for result in rows)


def test_a_frozen_return() -> None:
    stop = judged([row(i) for i in range(1, 10)])
    assert stop is not None
    assert stop.state == "PRUNED"
    assert stop.reason == ("return frozen: 9.4 again and again, 20 at first, at 5,000 env_steps")


def test_a_frozen_return_of_a_few_episodes_is_another_one() -> None:
    few = {"eval_episodes": 3, "eval_std": 0.4}
    rows = [{**row(i, 9.0), **few} if 3 < i < 7 else row(i) for i in range(1, 10)]
    stop = judged(rows)
    assert stop is not None
    assert stop.reason.startswith("return frozen: 9 again and again, 20 at first, at 5,000")
    assert judged([*rows[:3], *({**row(i, noisy(i)), **few} for i in range(4, 10))]) is None


@pytest.mark.parametrize("floor", [-500.0, -200.0, -21.0])
def test_a_floor_where_the_trial_began_may_wait_for_its_first_reward(floor: float) -> None:
    rows = [row(i, floor, entropy=1.0) for i in range(1, 10)]
    health = Health(BUDGET, CARTPOLE)
    assert not any(health.judge((0, 0), result, [floor] * 5) for result in rows)


def test_before_the_first_update_nothing_is_judged() -> None:
    rows = [{k: v for k, v in row(i).items() if k != "learning_rate"} for i in range(1, 8)]
    rows += [row(i) for i in range(8, 10)]
    assert judged(rows) is None


def test_rows_between_the_updates_of_long_rollouts_are_no_signs() -> None:
    rows = [row(i, noisy(i), **({"entropy": 0.001} if i % 2 else {})) for i in range(1, 10)]
    for result in rows[1::2]:
        del result["learning_rate"]
    stop = judged(rows)
    assert stop is not None
    assert stop.reason.startswith("entropy collapse")


def test_a_trial_without_a_finished_episode_is_not_judged() -> None:
    health = Health(BUDGET, CARTPOLE)
    assert not any(health.judge((0, 0), row(i, entropy=0.0), []) for i in range(1, 10))


def throughput(own: float, other: float, node: str = "a") -> Stop | None:
    """Return the verdict on a trial that gets slow beside another one."""
    health = Health(100_000, CARTPOLE)
    time = 0.0
    for i in range(1, 16):
        slow = i > 10
        time += 1000 / (own if slow else 100.0)
        about: dict[str, float | str] = {"time": time, "timestamp": 1e9 + time}
        speed = {"env_steps_per_second": other if slow else 200.0}
        beside = row(i, 50.0, node="a", **about, **speed)
        assert health.judge((1, 0), beside, [50.0]) is None
        mine = {"env_steps_per_second": own if slow else 100.0, "node": node}
        stop = health.judge((0, 0), row(i, 50.0, **about, **mine), [])
        if stop:
            return stop
    return None


def test_throughput_collapse() -> None:
    stop = throughput(own=2.0, other=190.0)
    assert stop is not None
    assert stop.state == "PRUNED"
    assert stop.reason.startswith("throughput collapse: 2 env_steps a second, 2.0% of its own")
    assert throughput(own=20.0, other=190.0) is None  # a sixth of it happens
    assert throughput(own=2.0, other=20.0) is None  # the machine is busy with something else
    assert throughput(own=2.0, other=190.0, node="b") is None  # it may be: nobody else is on it


def test_exploration_that_learning_follows_is_no_throughput_collapse() -> None:
    health = Health(BUDGET, CARTPOLE)
    for i in range(1, 16):
        mine = row(i, 50.0, env_steps_per_second=1e4 if i < 8 else 50.0)
        if i < 8:
            del mine["learning_rate"]
        mine["time"] = 0.1 * i if i < 8 else 100.0 * i
        assert health.judge((1, 0), row(i, 50.0), [50.0]) is None
        assert health.judge((0, 0), mine, [50.0]) is None


def test_the_largest_trial_goes_before_the_machine_is_full() -> None:
    health = Health(BUDGET, CARTPOLE)
    assert health.judge((0, 0), row(1, memory=0.2, memory_in_use=0.6), []) is None
    assert health.judge((1, 0), row(1, memory=0.3, memory_in_use=0.7), []) is None
    assert health.judge((0, 0), row(2, memory=0.3, memory_in_use=0.93), []) is not None
    health.forget(0)
    assert health.judge((2, 0), row(1, memory=0.2, memory_in_use=0.95), []) is None  # 1 has more
    stop = health.judge((1, 0), row(2, memory=0.5, memory_in_use=0.95), [])
    assert stop is not None
    assert stop.state == "FAIL"
    assert stop.reason.startswith("out of memory: the worker took 50% of a machine that was 95%")


def test_memory_and_speed_are_compared_on_the_same_machine() -> None:
    health = Health(BUDGET, CARTPOLE)
    full = {"memory_in_use": 0.95}
    assert health.judge((0, 0), row(1, memory=0.7, node="b"), []) is None  # larger, elsewhere
    assert health.judge((1, 0), row(1, memory=0.2, node="a"), []) is None
    assert health.judge((1, 0), row(2, memory=0.6, node="a", **full), []) is not None
    # Others fill this machine; that trials fill the other one is no reason.
    assert health.judge((2, 0), row(1, memory=0.1, node="c"), []) is None
    assert health.judge((2, 0), row(2, memory=0.3, node="c", **full), []) is None


def test_a_trial_is_not_blamed_for_the_size_of_the_worker_that_it_got() -> None:
    rows = [row(i, 50.0, memory=0.6, memory_in_use=0.95) for i in range(1, 10)]
    assert judged(rows) is None


def test_trials_are_not_blamed_for_what_other_programs_take() -> None:
    assert judged([row(i, 50.0, memory=0.1, memory_in_use=0.95) for i in range(1, 10)]) is None


def test_a_retry_undoes_the_rows_after_its_checkpoint() -> None:
    rows = [row(i, noisy(i), entropy=0.001) for i in (1, 2)]
    health = Health(BUDGET, CARTPOLE)
    for result in [rows[0], rows[1], rows[1], rows[0], rows[1], rows[1]]:
        assert health.judge((0, 0), result, BEGINNING) is None


def test_a_resumed_search_decides_as_the_killed_one(tmp_path: Path) -> None:
    rows = [row(i, noisy(i), entropy=0.4 if i < 4 else 0.001) for i in range(1, 10)]
    expected = judged(rows)
    assert expected is not None
    for cut in range(1, 6):
        folder = tmp_path / str(cut)
        writer = HistoryWriter(folder)
        for trial, role in ((0, "tune"), (1, "tune"), (0, "test")):
            seed = 100 if role == "test" else 0
            for i, result in enumerate(rows[:cut]):
                returns = (BEGINNING if i == 0 else []) + BAD
                about = {"trial": trial, "seed": seed, "role": role}
                episodes = [{"env_steps": i, "episode_return": r, "length": 9} for r in returns]
                writer.append({**about, **result}, episodes)
        resumed = Health(BUDGET, CARTPOLE)
        resumed.restore(read_history(folder), read_episodes(folder), [0])
        writer.close()
        assert list(resumed.trials) == [(0, 0)]
        # The worker repeats the last row of its checkpoint.
        stops = [resumed.judge((0, 0), entry, BAD if i else BEGINNING + BAD)
                 for i, entry in list(enumerate(rows))[cut - 1 :]]  # fmt: skip
        assert next(stop for stop in stops if stop) == expected


def test_the_least_entropy() -> None:
    assert least_entropy(spaces.Discrete(2)) == pytest.approx(0.01 * np.log(2))
    assert least_entropy(spaces.MultiDiscrete([2, 3])) == pytest.approx(0.01 * np.log(6))
    assert least_entropy(spaces.MultiBinary(3)) == pytest.approx(0.01 * np.log(8))
    unit = least_entropy(spaces.Box(-1, 1, (3,)))
    assert unit == pytest.approx(3 * (0.5 * np.log(2 * np.pi * np.e) + np.log(0.01)))
    assert least_entropy(spaces.Box(-5, 5, (3,))) == pytest.approx(unit)
    assert least_entropy(spaces.Box(-np.inf, np.inf, (3,))) is None
    assert least_entropy(spaces.Dict({})) is None


RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "health_rows.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("training", RECORDED, ids=lambda training: training["name"])
def test_recorded_trainings(training: dict[str, Any]) -> None:
    """Rows of real trainings: with known-good settings, and with a fault in the settings.

    Some with a fault learn nevertheless, at a KL of up to 3 nats, and are not to be stopped.
    """
    env = gymnasium.make(training["env"])
    health = Health(training["budget"], least_entropy(env.action_space))
    stop = None
    for row, returns in zip(training["rows"][:-1], training["returns"][:-1], strict=True):
        stop = stop or health.judge((0, 0), row, returns)
    assert (stop.reason.split(":")[0] if stop else "") == training["ends"]
    assert not (stop and training["name"].startswith("zoo"))
