"""Rounds of a search over several agents."""

from __future__ import annotations

import pytest
from rltune.agents.errors import UserError
from rltune.selection import rounds


def test_each_round_leaves_the_better_half_down_to_two() -> None:
    assert rounds.sizes(8) == [8, 4, 2]
    assert rounds.sizes(6) == [6, 3, 2]
    assert rounds.sizes(3) == [3, 2]
    assert rounds.sizes(2) == [2]


@pytest.mark.parametrize("agents", [2, 3, 5, 6, 8])
def test_all_agents_together_have_twice_the_trials_of_one(agents: int) -> None:
    until = rounds.trials_until(agents, 60)
    spent, before = 0, 0
    for size, now in zip(rounds.sizes(agents), until, strict=True):
        spent += size * (now - before)
        before = now
    assert spent == pytest.approx(120, abs=agents)


def test_an_agent_has_three_trials_at_least() -> None:
    assert rounds.trials_until(6, 1) == [3, 3, 3]


@pytest.mark.parametrize("agents", [2, 3, 6, 7])
def test_rounds_are_equally_long_and_fill_the_time(agents: int) -> None:
    left, sizes = 600.0, rounds.sizes(agents)
    for i, size in enumerate(sizes):
        before = left
        for waiting in range(size, 0, -1):
            left -= rounds.seconds_of(left, size, waiting, len(sizes) - 1 - i)
        assert before - left == pytest.approx(600 / len(sizes))
    assert left == pytest.approx(0)


def test_a_time_limit_that_starts_nothing_is_refused_with_one_that_does() -> None:
    rounds.check_time(6, None, 30)
    rounds.check_time(6, 6 * 60, 0)
    rounds.check_time(6, 24 * 60, 30)
    with pytest.raises(UserError, match=r"too short for 6 agents.* Give 6m or fewer") as error:
        rounds.check_time(6, 60, 0)
    assert "3 seconds in the first round and needs 20." in str(error.value)
    with pytest.raises(UserError, match=r"needs 80\. Give 24m, a shorter --trial-time or fewer"):
        rounds.check_time(6, 23 * 60, 30)


def test_those_with_the_best_trials_go_on_in_the_order_of_their_names() -> None:
    objectives = {"a2c": [3.0], "ppo": [9.0, 1.0], "sac": [-1.0, -1.0]}
    assert rounds.survivors(objectives, ["sac", "ppo", "a2c"], 2) == ["ppo", "a2c"]
    assert rounds.survivors({"sac": [1.0], "ppo": []}, ["sac", "ppo"], 2) == ["sac"]
    assert rounds.survivors({}, ["sac", "ppo"], 2) == []


def test_of_agents_with_equal_best_trials_those_go_on_that_reach_it_more_often() -> None:
    objectives = {"a2c": [500.0, 480.0], "acer": [500.0], "ppo": [500.0, 500.0, 20.0]}
    assert rounds.survivors(objectives, ["a2c", "acer", "ppo"], 2) == ["a2c", "ppo"]
    assert rounds.survivors(objectives, ["a2c", "acer", "ppo"], 1) == ["ppo"]
