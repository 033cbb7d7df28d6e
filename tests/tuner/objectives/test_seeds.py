from __future__ import annotations

import numpy as np
import pytest
from rltune.agents.errors import UserError
from rltune.objectives.seeds import SeedNoise, SeedRun, TrialSeeds, judged, make_plan, parse_seeds

POINTS = [100, 200, 300, 400, 500, 600, 700, 800, 900]
RUNGS = [100, 300, 900]


def train(seeds: TrialSeeds, seed: int, until: int, value: float = 1.0) -> None:
    """Train a run; it is at its end when it has reached the budget."""
    run = seeds.run(seed)
    for point in POINTS:
        if max(run.values, default=0) < point <= until:
            run.values[point] = value
    run.done = until == POINTS[-1]


def settle(seeds: TrialSeeds) -> list[tuple[int, list[float]]]:
    found = []
    while not seeds.finished and (due := seeds.due()) is not None:
        seeds.settled = due[0]
        found.append(due)
    return found


@pytest.mark.parametrize(
    ("seeds", "count", "most"),
    [(1, 1, 1), ("3", 3, 3), ("racing", 1, 3), ("racing:5", 1, 5), ("racing:2", 1, 2)],
)
def test_who_has_how_many_seeds(seeds: str | int, count: int, most: int) -> None:
    plan = make_plan(seeds, POINTS, RUNGS)
    assert plan.stops == (100, 300, 900)
    assert (plan.count, plan.most, plan.races) == (count, most, most > count)


def test_a_stage_ends_at_the_first_evaluation_in_the_rung() -> None:
    plan = make_plan("racing", POINTS, [111, 333, 900], first=4)
    assert plan.stops == (200, 400, 900)
    assert plan.seeds(plan.count) == [4]
    assert plan.seeds(plan.most) == [4, 5, 6]
    assert [plan.stop_after(at) for at in (0, 199, 200, 400, 900)] == [200, 200, 400, 900, 900]


@pytest.mark.parametrize("seeds", ["0", "11", "many", "racing:1", "racing:x", "-1", "1.5"])
def test_mistakes_in_seeds(seeds: str) -> None:
    with pytest.raises(UserError, match=f"--seeds {seeds}: write a number from 1 to 10"):
        parse_seeds(seeds)


def test_racing_needs_rungs() -> None:
    with pytest.raises(UserError, match="none: use asha"):
        make_plan("racing", POINTS, [])


def test_one_seed_is_judged_at_every_evaluation() -> None:
    seeds = TrialSeeds(make_plan(1, POINTS, RUNGS))
    assert seeds.to_train() == [0]
    train(seeds, 0, 200, 7.0)
    assert settle(seeds) == [(100, [7.0]), (200, [7.0])]
    assert seeds.to_train() == [0]
    train(seeds, 0, 900)
    settle(seeds)
    assert seeds.finished
    assert seeds.to_train() == []


def test_the_best_get_further_seeds_and_all_of_them_the_same() -> None:
    seeds = TrialSeeds(make_plan("racing", POINTS, RUNGS))
    train(seeds, 0, 900)
    assert settle(seeds)[-1] == (900, [1.0])
    assert seeds.finished
    assert seeds.to_train() == []
    seeds.race()
    assert not seeds.finished
    assert seeds.to_train() == [1, 2]
    train(seeds, 1, 900, 3.0)
    train(seeds, 2, 800, 5.0)
    assert settle(seeds) == []  # it waits for seed 2
    assert seeds.waits(1)
    assert seeds.to_train() == [2]
    train(seeds, 2, 900, 5.0)
    assert settle(seeds) == [(900, [1.0, 3.0, 5.0])]
    assert seeds.finished


def test_all_seeds_of_a_stage_meet_at_its_end() -> None:
    seeds = TrialSeeds(make_plan(2, POINTS, RUNGS))
    train(seeds, 0, 100)
    assert settle(seeds) == []
    assert seeds.waits(0)
    assert seeds.to_train() == [1]
    train(seeds, 1, 100, 3.0)
    assert settle(seeds) == [(100, [1.0, 3.0])]
    train(seeds, 0, 200)
    assert seeds.to_train() == [1, 0]  # the furthest behind first


def test_a_run_that_ends_early_keeps_its_last_value() -> None:
    seeds = TrialSeeds(make_plan(1, POINTS, RUNGS))
    train(seeds, 0, 200)
    seeds.run(0).done = True
    assert settle(seeds) == [(100, [1.0]), (200, [1.0])]
    assert seeds.finished

    seeds = TrialSeeds(make_plan(2, POINTS, RUNGS))
    train(seeds, 0, 100, 5.0)
    seeds.run(0).done = True
    assert seeds.to_train() == [1]
    train(seeds, 1, 300)
    assert settle(seeds)[-1] == (300, [5.0, 1.0])
    assert not seeds.finished


def test_what_was_jumped_over_is_not_made_up() -> None:
    seeds = TrialSeeds(make_plan(2, POINTS, RUNGS))
    for seed in (0, 1):
        seeds.run(seed).values = {200: 1.0, 400: 2.0}
    assert settle(seeds) == [(200, [1.0, 1.0]), (400, [2.0, 2.0])]
    assert sorted(seeds.to_train()) == [0, 1]


def test_runs_survive_the_study() -> None:
    plan = make_plan(2, POINTS, RUNGS)
    seeds = TrialSeeds(plan)
    train(seeds, 0, 300)
    train(seeds, 1, 100)
    settle(seeds)
    again = TrialSeeds.from_dict(plan, seeds.to_dict(), seeds.settled)
    assert again.runs == seeds.runs
    assert again.to_train() == seeds.to_train()


def test_the_luck_of_seeds_is_learned_over_all_trials() -> None:
    plan = make_plan(3, POINTS, RUNGS)
    noise, rng = SeedNoise(), np.random.default_rng(0)
    assert noise.standard_error(100, 1) == 0.0
    for trial in range(200):
        seeds = TrialSeeds(plan, {s: SeedRun({100: trial + rng.normal(0, 5)}) for s in range(3)})
        noise.learn(trial, seeds)
        noise.learn(trial, seeds)  # once more changes nothing
    assert noise.standard_error(100, 1) == pytest.approx(5, rel=0.1)
    assert noise.standard_error(100, 4) == pytest.approx(2.5, rel=0.1)
    assert noise.standard_error(300, 1) == 0.0


def test_what_counts_of_several_seeds() -> None:
    values = [0.0, 10.0, 20.0, 30.0, 500.0]
    assert judged(values) == 20.0
    assert judged(values, "mean") == 112.0
    assert judged(values, "worst") == 0.0
    assert judged(values, "q25") == 10.0
    for wrong in ("iqr", "q", "25", "q1.5"):
        with pytest.raises(UserError, match="--over-seeds"):
            judged(values, wrong)
    with pytest.raises(UserError, match="between q0 and q100"):
        judged(values, "q101")
