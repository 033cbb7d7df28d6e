"""The stock parts fail where ours pass: Ray Tune's OptunaSearch and ASHA, driven by hand.

Each test shows both. When one fails on the stock side, Ray has mended the defect.
"""

import math
import statistics
import uuid
from types import SimpleNamespace

import optuna
import pytest
from rltune.samplers.proposer import open_study
from rltune.schedulers.asha import ASHA
from rltune.space.space import Space
from rltune.study.optuna_log import quiet

schedulers = pytest.importorskip("ray.tune.schedulers")
OptunaSearch = pytest.importorskip("ray.tune.search.optuna").OptunaSearch

BUDGET = 100
SPACE = Space.from_dict({"x": {"uniform": [0.0, 1.0]}, "y": {"uniform": [0.0, 1.0]}})


@pytest.fixture
def ours(tmp_path):
    return open_study(tmp_path / "study.db", SPACE)


@pytest.fixture
def stock():
    with quiet():
        distribution = optuna.distributions.FloatDistribution(0.0, 1.0)
        space = {"x": distribution, "y": distribution}
        yield OptunaSearch(space, metric="objective", mode="max", seed=0)


def result(value, iteration):
    return {"objective": value, "training_iteration": iteration}


def run_stock(search, trial_id, value, iteration):
    """Tune's message to its searcher when the scheduler stops a trial, or when it ends."""
    search.suggest(trial_id)
    search.on_trial_result(trial_id, result(value, iteration))
    search.on_trial_complete(trial_id, result(value, iteration))


def stock_asha(reduction_factor=4):
    return schedulers.ASHAScheduler(
        metric="objective",
        mode="max",
        max_t=BUDGET,
        grace_period=1,
        reduction_factor=reduction_factor,
    )


def stock_decisions(asha, values):
    decisions = []
    for value in values:
        trial = SimpleNamespace(trial_id=str(uuid.uuid4()))
        asha.on_trial_add(None, trial)
        decisions.append(asha.on_trial_result(None, trial, result(value, 1)))
    return decisions


def test_1_a_trial_stopped_early_is_pruned_and_never_the_best(stock, ours):
    run_stock(stock, "full", 10.0, BUDGET)
    run_stock(stock, "lucky, stopped at one percent", 99.0, 1)
    trials = stock._ot_study.trials
    assert [t.state.name for t in trials] == ["COMPLETE", "COMPLETE"]
    assert stock._ot_study.best_trial.number == 1

    full, lucky = ours.ask().number, ours.ask().number
    ours.report(full, BUDGET, 10.0)
    ours.tell(full, "COMPLETE", 10.0)
    ours.report(lucky, 1, 99.0)
    ours.tell(lucky, "PRUNED", 99.0, "stopped at rung 1")
    assert [t.state for t in ours.trials()] == ["COMPLETE", "PRUNED"]
    assert ours.trials()[lucky].intermediate == {1: 99.0}
    assert ours.incumbent().number == full


def test_2_nan_is_a_failure_with_a_reason(stock, ours):
    run_stock(stock, "nan", math.nan, 1)
    assert stock._ot_study.trials[0].state.name == "RUNNING"

    number = ours.ask().number
    ours.report(number, 1, math.nan)
    ours.tell(number, "COMPLETE", math.nan)
    [record] = ours.trials()
    assert (record.state, record.reason) == ("FAIL", "diverged: the objective was nan")
    assert ours.unfinished() == []


def test_2_the_sampler_stays_away_from_where_trials_diverge(tmp_path):
    """Half of the space diverges. Optuna's TPE ignores failed trials, and spends itself there."""
    names = ("x", "y")

    def objective(config):
        return math.nan if config["x"] > 0.5 else -sum((config[n] - 0.4) ** 2 for n in names)

    def stock_share(seed):
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=8, multivariate=True, group=True, constant_liar=True
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(lambda t: objective({n: t.suggest_float(n, 0, 1) for n in names}), 40)
        return share([trial.params["x"] for trial in study.trials])

    def our_share(seed):
        study = open_study(tmp_path / f"{seed}.db", SPACE, seed=seed)
        for _ in range(40):
            trial = study.ask()
            study.tell(trial.number, "COMPLETE", objective(trial.config))
        return share([record.config["x"] for record in study.trials()])

    def share(values):
        return statistics.mean(x > 0.5 for x in values[10:])

    with quiet():
        stock, ours = (
            statistics.mean(f(seed) for seed in (0, 1)) for f in (stock_share, our_share)
        )
    assert stock > 0.6
    assert ours < 0.5 * stock, (ours, stock)


def test_3_asha_stops_nan_and_survives_a_missing_value():
    stock = stock_asha()
    assert stock_decisions(stock, [1.0, 2.0, 3.0, 4.0, 5.0, math.nan])[-1] == "CONTINUE"
    with pytest.raises(TypeError):
        stock_decisions(stock, [None])

    ours = ASHA([1, BUDGET], reduction_factor=4, min_population=5)
    decisions = [ours.decide(n, 1, value) for n, value in enumerate([1.0, 2.0, 3.0, 4.0, 5.0])]
    assert decisions == ["continue"] * 5
    assert ours.decide(5, 1, math.nan) == "stop"
    assert ours.decide(6, 1, None) == "stop"


def snapshot_of(controller_class, **attributes):
    """The state that Tune saves of its controller, without a cluster; dropped keys exist, too."""
    controller = object.__new__(controller_class)
    controller.__dict__.update(attributes)
    for _ in range(100):
        try:
            return controller.__getstate__()
        except KeyError as missing:
            controller.__dict__[missing.args[0]] = None
        except AttributeError as missing:
            controller.__dict__[missing.name] = None
    raise AssertionError("no snapshot")


def test_4_the_rungs_survive_a_restore(ours):
    from ray.tune.execution.tune_controller import TuneController

    stock = stock_asha()
    stock_decisions(stock, [1.0, 2.0, 3.0, 4.0, 5.0])
    # The scheduler is left out of the experiment's snapshot; a restore makes a new one.
    assert "_scheduler_alg" not in snapshot_of(TuneController, _scheduler_alg=stock)
    assert stock_decisions(stock_asha(), [0.0]) == ["CONTINUE"]
    assert stock_decisions(stock, [0.0]) == ["STOP"]

    asha = ASHA([1, BUDGET], min_population=5)
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        number = ours.ask().number
        ours.report(number, 1, value)
        asha.decide(number, 1, value)
    restored = ASHA([1, BUDGET], min_population=5)
    restored.restore(ours.reports())
    assert restored.decide(9, 1, 0.0) == asha.decide(9, 1, 0.0) == "stop"


def test_5_a_rung_stops_no_one_before_it_has_a_population():
    values = [0.0, -1.0, -2.0, -3.0]
    assert stock_decisions(stock_asha(), values) == ["CONTINUE", "STOP", "STOP", "STOP"]
    ours = ASHA([1, BUDGET], reduction_factor=4)
    assert [ours.decide(n, 1, value) for n, value in enumerate(values)] == ["continue"] * 4
