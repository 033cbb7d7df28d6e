"""The order of trials: the sort keys that everything uses."""

from __future__ import annotations

from rltune.study.records import merit, quality


def test_the_objective_decides_and_the_mean_among_ties() -> None:
    assert quality((2.0,), 0.0) > quality((1.0,), 9.0)
    assert quality((1.0,), 5.0) > quality((1.0,), 4.0) > quality((1.0,), None)
    assert quality((1.0,), None) > quality((None,), 9.0)


def test_of_several_objectives_the_first_decides_each_in_its_direction() -> None:
    both = (False, True)
    assert quality((2.0, 9.0), None, both) > quality((1.0, 0.0), None, both)
    assert quality((1.0, 3.0), None, both) > quality((1.0, 4.0), 9.0, both)
    assert quality((1.0,), 2.0, (True,)) > quality((1.0,), 3.0, (True,))


def test_a_trial_that_got_further_is_better_and_a_failed_one_the_worst() -> None:
    whole, late, early = merit("COMPLETE", -9.0), merit("PRUNED", 1.0, 90), merit("PRUNED", 5.0, 10)
    assert whole > late > early > merit("PRUNED", 4.0, 10) > merit("FAIL", 99.0)
