import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rltune.agents.errors import UserError
from rltune.schedulers.asha import ASHA
from rltune.schedulers.base import NoScheduler, Rung
from rltune.schedulers.halving import default_rungs
from rltune.schedulers.hyperband import Hyperband
from rltune.schedulers.registry import make_scheduler, scheduler_class


def decide_all(scheduler, values, env_steps):
    return [scheduler.decide(trial, env_steps, value) for trial, value in enumerate(values)]


def test_default_rungs_end_with_the_full_budget():
    assert default_rungs(50_000) == [5_556, 16_667, 50_000]
    assert default_rungs(100, 4, 2) == [25, 100]
    assert default_rungs(2, 3, 5) == [1, 2]


def test_no_one_is_stopped_before_the_rung_has_its_minimum_population():
    asha = ASHA([10, 100], reduction_factor=4, min_population=5)
    assert decide_all(asha, [0, -1, -2, -3], 10) == ["continue"] * 4
    assert asha.decide(4, 10, -4) == "stop"


def test_the_best_third_goes_on_and_the_reason_says_so():
    asha = ASHA([5_556, 50_000], reduction_factor=3, min_population=5)
    decide_all(asha, [50.0, 60.0, 70.0, 110.0, 120.0, 130.0, 140.0, 10.0], 5_556)
    assert asha.decide(8, 5_560, 37.2) == "stop"
    assert asha.reason(8) == "stopped at rung 5,556: 37.2 < 120, the best third of 9"
    assert asha.decide(9, 5_556, 125.0) == "continue"
    assert asha.reason(9) == ""


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_who_is_among_the_best_of_those_with_a_whole_budget(name):
    scheduler = make_scheduler(name, 900, {})
    numbers = range(60)
    if name == "hyperband":  # a bracket compares its own trials
        numbers = [n for n in numbers if scheduler.bracket_of(n) is scheduler.brackets[0]]
    few, best, worst = list(numbers[:4]), numbers[4], numbers[5]
    for number, value in zip(few, [1.0, 2.0, 3.0, 4.0], strict=True):
        scheduler.decide(number, 900, value)
    assert not any(map(scheduler.is_among_best, few))  # too few to tell
    scheduler.decide(best, 900, 3.5)
    assert scheduler.is_among_best(best)
    scheduler.decide(best, 900, 2.5)  # on further seeds
    assert not scheduler.is_among_best(best)
    scheduler.decide(worst, 300, 9.0)
    assert not scheduler.is_among_best(worst)  # it has not run its whole budget
    assert not make_scheduler("none", 900).is_among_best(0)


def test_equal_values_do_not_let_everybody_through():
    asha = ASHA([10, 100])
    verdicts = decide_all(asha, [-500.0] * 200, 10)
    assert verdicts[:4] == ["continue"] * 4
    assert 0.25 < verdicts.count("continue") / 200 < 0.42  # early ones get through more easily
    stopped = verdicts.index("stop")
    assert asha.reason(stopped).endswith("-500 like the best third of 5, decided by chance")
    assert asha.table()[0].cutoff == -500
    assert sorted(asha.places(n)[0].rank for n in range(200)) == list(range(1, 201))
    restored = ASHA([10, 100])
    restored.restore({n: {10: -500.0} for n in range(200)})
    for more in range(200, 230):
        assert asha.decide(more, 10, -500.0) == restored.decide(more, 10, -500.0)


def test_of_equal_values_the_higher_training_return_goes_on():
    asha = ASHA([10, 100])
    returns = [-500.0, -480.0, None, -490.0, -470.0, -499.0, -460.0]
    verdicts = [asha.decide(n, 10, -500.0, training=value) for n, value in enumerate(returns)]
    assert verdicts == ["continue"] * 5 + ["stop", "continue"]
    assert asha.reason(5).endswith("-500 like the best third of 6, decided by training return")
    restored = ASHA([10, 100])
    known = {n: {10: entry} for n, entry in enumerate(returns) if entry is not None}
    restored.restore({n: {10: -500.0} for n in range(7)}, training=known)
    assert restored.decide(7, 10, -500.0, training=-485.0) == "stop"
    assert restored.decide(8, 10, -500.0, training=-465.0) == "continue"
    assert restored.decide(9, 10, -499.0) == "continue"


def test_where_seeds_leave_a_doubt_equal_values_go_on():
    asha = ASHA([10, 100])
    verdicts = [asha.decide(n, 10, -500.0, standard_error=1.0) for n in range(20)]
    assert verdicts == ["continue"] * 20


def test_no_one_is_stopped_at_the_full_budget():
    asha = ASHA([10, 100], min_population=1)
    assert decide_all(asha, [3.0, 2.0, 1.0, 0.0], 100) == ["continue"] * 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_stops_the_trial_and_leaves_no_trace(value):
    asha = ASHA([10, 100], min_population=3)
    assert asha.decide(0, 3, value) == "stop"
    assert asha.decide(1, 10, value) == "stop"
    assert str(value) in asha.reason(1)
    assert asha.table()[0].entered == 0


def test_a_missing_value_is_the_worst_one():
    asha = ASHA([10, 100], min_population=3)
    assert asha.decide(0, 10, None) == "continue"  # too few to judge by
    decide_all(asha, [1.0, 2.0, 3.0], 10)
    assert asha.decide(7, 10, None) == "stop"
    assert asha.decide(8, 5, None) == "continue"  # no rung here


def test_a_missing_value_leaves_the_rung_open():
    asha = ASHA([10, 100], min_population=9)
    asha.decide(0, 10, None)
    asha.decide(0, 20, 1.0)
    assert asha.table()[0].entered == 1


def test_a_trial_is_judged_once_per_rung():
    asha = ASHA([10, 100], min_population=2)
    assert asha.decide(0, 10, 1.0) == "continue"
    assert decide_all(asha, [None, 5.0, 6.0, 7.0], 10)[1:] == ["continue"] * 3
    assert asha.decide(0, 20, 0.0) == "continue"


def test_a_trial_that_jumps_over_rungs_enters_the_highest_alone():
    asha = ASHA([10, 30, 100], min_population=1)
    asha.decide(0, 40, 1.0)
    assert [rung.entered for rung in asha.table()] == [0, 1, 0]


def test_minimize_turns_the_order_around():
    asha = ASHA([10, 100], min_population=3, direction="minimize")
    decide_all(asha, [1.0, 2.0], 10)
    assert asha.decide(2, 10, 3.0) == "stop"
    assert "3 > 1" in asha.reason(2)
    assert asha.decide(3, 10, 0.5) == "continue"


def test_table_has_budget_entered_stopped_and_cutoff():
    asha = ASHA([10, 100], min_population=3)
    decide_all(asha, [1.0, 2.0, 0.0], 10)
    asha.decide(1, 100, 9.0)
    assert asha.table() == [Rung(10, 3, 1, 2.0), Rung(100, 1, 0, None)]


def test_restore_knows_who_was_stopped_where():
    asha = ASHA([10, 30, 100], min_population=1)
    asha.restore({0: {10: 1.0, 30: 2.0}, 1: {10: 0.0}}, stopped=[0, 1])
    assert [(rung.entered, rung.stopped) for rung in asha.table()] == [(2, 1), (1, 1), (0, 0)]


def test_a_report_repeated_after_a_resume_is_not_judged_again_unless_it_was_the_last():
    asha = ASHA([10, 30, 100], min_population=2)
    asha.decide(0, 10, 1.0)
    asha.decide(0, 20, 1.0)
    decide_all(asha, [None, 5.0, 6.0], 10)
    assert asha.decide(0, 10, 1.0) == "continue"  # it got past this rung before
    assert asha.decide(3, 10, 2.0) == "stop"
    assert asha.decide(3, 10, 2.0) == "stop"  # killed before the verdict was written
    assert asha.table()[0].entered == 4


VALUES = st.one_of(st.integers(-5, 5).map(float), st.just(math.nan), st.none())
POINTS = [5, 9, 27, 60, 81]


@settings(max_examples=300, deadline=None)
@given(
    events=st.lists(st.tuples(st.integers(0, 12), VALUES), max_size=120),
    cut=st.integers(0, 120),
    min_population=st.integers(1, 5),
    direction=st.sampled_from(["maximize", "minimize"]),
    kind=st.sampled_from([ASHA, Hyperband]),
)
def test_a_restored_scheduler_decides_like_one_that_was_never_stopped(
    events, cut, min_population, direction, kind
):
    """The study is what survives: finite values by trial and env_steps."""

    def make():
        return kind([9, 27, 81], 3, min_population, direction)

    scheduler, whole = make(), make()
    study, position, ended = {}, {}, set()
    for i, (trial, value) in enumerate(events):
        if i == cut:
            scheduler = make()
            scheduler.restore(study, [t for t in ended if whole.reason(t)])
            stops = [rung.stopped for rung in whole.table()]
            if not any("nan" in whole.reason(t) for t in ended):
                assert [rung.stopped for rung in scheduler.table()] == stops
        if trial in ended or position.get(trial, 0) == len(POINTS):
            continue
        env_steps = POINTS[position.get(trial, 0)]
        position[trial] = position.get(trial, 0) + 1
        if value is not None and math.isfinite(value):
            study.setdefault(trial, {})[env_steps] = value
        verdict = whole.decide(trial, env_steps, value)
        assert scheduler.decide(trial, env_steps, value) == verdict
        assert scheduler.reason(trial) == whole.reason(trial)
        if verdict == "stop":
            ended.add(trial)
    fields = [(rung.entered, rung.cutoff) for rung in whole.table()]
    assert [(rung.entered, rung.cutoff) for rung in scheduler.table()] == fields


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 8))
def test_whoever_goes_on_is_among_the_best_third_or_came_early(values, min_population):
    asha = ASHA([10, 100], 3, min_population)
    for trial, value in enumerate(values):
        so_far = sorted(values[: trial + 1], reverse=True)
        best_third = so_far[math.ceil(len(so_far) / 3) - 1]
        verdict = asha.decide(trial, 10, float(value))
        if len(so_far) < min_population or value > best_third:
            assert verdict == "continue"
        elif value < best_third:
            assert verdict == "stop"


def test_median_stops_below_the_median_of_those_who_got_there():
    median = make_scheduler("median", 1_000)
    assert [rung.budget for rung in median.table()] == list(range(200, 1_001, 100))
    assert decide_all(median, [1.0, 2.0, 3.0, 4.0], 200) == ["continue"] * 4
    assert median.decide(4, 200, 1.5) == "stop"
    assert median.decide(5, 200, 3.0) == "continue"
    assert "the best half of 5" in median.reason(4)


def test_hyperband_gives_its_brackets_about_the_same_budget():
    hyperband = make_scheduler("hyperband", 900, {"min_population": 1})
    first, _, third = hyperband.brackets
    assert [rung.budget for rung in first.table()] == [100, 300, 900]
    assert [rung.budget for rung in third.table()] == [900]
    brackets = [hyperband.brackets.index(hyperband.bracket_of(trial)) for trial in range(1700)]
    assert [brackets.count(b) for b in range(3)] == pytest.approx([900, 500, 300], abs=3)
    assert set(brackets[:6]) == {0, 1, 2}
    trials = {b: [t for t in range(60) if brackets[t] == b] for b in range(3)}
    for b, mine in trials.items():  # each bracket judges its own, worse and worse ones
        verdicts = [hyperband.decide(t, 100, -float(n)) for n, t in enumerate(mine)]
        assert ("stop" in verdicts) == (b == 0)
    last = trials[0][-1]
    assert hyperband.reason(last).startswith("stopped at rung 100")
    n = len(trials[0])
    assert hyperband.table()[0] == Rung(100, n, n - 1, 1.0 - math.ceil(n / 3))
    assert hyperband.decide(trials[2][0], 900, 1.0) == "continue"
    assert hyperband.table()[2].entered == 1


def test_none_stops_no_one():
    scheduler = make_scheduler("none", 100)
    assert isinstance(scheduler, NoScheduler)
    assert decide_all(scheduler, [1.0, None, math.nan], 100) == ["continue"] * 3
    scheduler.restore({0: {1: 1.0}})
    assert (scheduler.table(), scheduler.reason(0)) == ([], "")


def test_options_reach_the_scheduler():
    asha = make_scheduler("asha", 64, {"reduction_factor": 2, "n_rungs": 2, "min_population": 1})
    assert [rung.budget for rung in asha.table()] == [32, 64]
    assert decide_all(asha, [2.0, 1.0], 32) == ["continue", "stop"]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ahsa", {}, "did you mean 'asha'"),
        ("asha", {"reduction": 3}, "did you mean 'reduction_factor'"),
        ("asha", {"reduction_factor": 1}, "at least 1.1"),
        ("asha", {"min_population": 2.5}, "whole number"),
        ("asha", {"n_rungs": "3"}, "must be a whole number"),
        ("asha", {"min_population": True}, "whole number"),
        ("median", {"seconds": 0}, "at least 0.001"),
        ("asha", {"seconds": "2m"}, "seconds must be a number"),
        ("none", {"n_rungs": 3}, "has no options"),
    ],
)
def test_bad_options_are_said_in_one_sentence(name, options, words):
    with pytest.raises(UserError, match=words):
        scheduler_class(name).checked(options)


def test_bad_rungs_are_refused():
    with pytest.raises(UserError, match="rungs"):
        ASHA([])
    with pytest.raises(UserError, match="rungs"):
        ASHA([0, 10])


@pytest.mark.parametrize("name", ["asha", "median", "hyperband"])
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_cutoff_is_known_before_the_trial_is_judged(name, direction):
    scheduler = make_scheduler(name, 90, direction=direction)
    rng, sign = random.Random(0), 1 if direction == "maximize" else -1
    stopped = 0
    for trial in range(60):
        for point in range(10, 90, 10):
            value, cutoff = rng.gauss(0, 1), scheduler.cutoff(trial, point)
            judged = any(place.rung == point for place in scheduler.places(trial))
            verdict = scheduler.decide(trial, point, value)
            if not judged and any(place.rung == point for place in scheduler.places(trial)):
                good = cutoff is None or sign * value > sign * cutoff
                assert verdict == ("continue" if good else "stop")
                assert scheduler.cutoff(trial, point) == cutoff  # whatever its own value is
            if verdict == "stop":
                stopped += 1
                break
    assert stopped > 20
    assert scheduler.cutoff(60, 90) is None
    by_the_clock = make_scheduler("asha", 90, {"seconds": 60}, direction)
    by_the_clock.restore({trial: {10: float(trial)} for trial in range(9)})
    assert by_the_clock.cutoff(9, 10) is None
    assert NoScheduler().cutoff(0, 10) is None
