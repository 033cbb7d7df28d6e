import json
import math
import os
import sqlite3
import stat
import subprocess
import sys
import time
import warnings

import numpy as np
import optuna
import pytest
from rltune.agents.config import config_hash
from rltune.agents.errors import UserError
from rltune.samplers.proposer import open_study
from rltune.schedulers.asha import ASHA
from rltune.space.space import Space
from rltune.study.records import StartConfig

SPACE = Space.from_dict(
    {
        "fixed": {"n_envs": 8},
        "space": {
            "learning_rate": {"log": [1e-5, 1e-2]},
            "gamma": {"one_minus_log": [0.9, 0.9999]},
            "n_steps": {"pow2": [32, 2048]},
        },
    }
)
DEFAULT = {"n_envs": 8, "learning_rate": 3e-4, "gamma": 0.99, "n_steps": 2048}
ZOO = {"n_envs": 8, "learning_rate": "lin_1e-3", "gamma": 0.98, "n_steps": 48}
STARTS = [StartConfig("default", DEFAULT), StartConfig("start:0", ZOO)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


@pytest.fixture
def study(path):
    return open_study(path, SPACE)


def stored(path):
    """The study as any Optuna tool reads it."""
    return optuna.load_study(study_name="search", storage=f"sqlite:///{path}")


def test_the_starts_come_first_exactly_as_they_are(path):
    study = open_study(path, SPACE, starts=STARTS)
    assert [t.state for t in study.trials()] == ["WAITING", "WAITING"]
    first, second, third = (study.ask() for _ in range(3))
    assert (first.number, first.origin, first.config) == (0, "default", DEFAULT)
    assert (second.number, second.origin, second.config) == (1, "start:0", ZOO)
    assert (third.number, third.origin) == (2, "sampler")
    assert study.trials()[0].hash == config_hash(DEFAULT)
    # What lies outside of its range is a parameter to Optuna's tools, too: a schedule's beginning.
    default, zoo, _ = stored(path).trials
    assert default.params == {
        "learning_rate": 3e-4,
        "gamma": 0.99,
        "n_steps": 2048,
    }
    assert zoo.params == {"learning_rate": 1e-3, "gamma": 0.98, "n_steps": 48}
    assert zoo.user_attrs["configuration"] == ZOO


def test_optunas_tools_show_the_real_values_and_the_samplers_their_own(path, study):
    for value in (1.0, 3.0, 2.0):
        study.tell(study.ask().number, "COMPLETE", value)
    best = study.trials()[1].config
    assert stored(path).best_params == {n: best[n] for n in SPACE.dimensions}
    known = [(trial.params, trial.distributions) for trial in study._database.trials]
    again = open_study(path, SPACE)._database.trials
    assert [(trial.params, trial.distributions) for trial in again] == known
    assert list(known[0][0]) == list(study._proposer.parameters.distributions)


def test_optunas_tools_show_starts_outside_of_the_ranges_and_survive_them(tmp_path):
    """And what the samplers see, of this process and of the next one, is what it was."""
    space = Space.from_dict(
        {
            "learning_rate": {"log": [1e-5, 1e-2]},
            "ent_coef": {"log": [1e-8, 0.1]},
            "gamma": {"one_minus_log": [0.9, 0.9999]},
            "n_steps": {"pow2": [32, 2048]},
            "n_epochs": {"int": [2, 20], "step": 2},
            "net": {"choice": [[64], [64, 64]]},
            "clip": {"uniform": [0.1, 0.4]},
        }
    )
    config = {"learning_rate": "lin_1e-3", "ent_coef": 0.0, "gamma": 1.0, "n_steps": 100}
    config |= {"n_epochs": 31, "net": [256, 256], "clip": None}
    starts = [StartConfig("start:0", config)]
    study = open_study(tmp_path / "study.db", space, starts=starts, sampler="random")
    study.tell(study.ask().number, "COMPLETE", 9.0)
    for n in range(12):
        study.tell(study.ask().number, "COMPLETE", float(n % 5))
    read = stored(tmp_path / "study.db")
    assert read.best_params == {
        **{"learning_rate": 1e-3, "ent_coef": 0.0, "gamma": 1.0, "n_steps": 100, "n_epochs": 31},
        "net": "[256, 256]",
    }
    assert read.best_trial.user_attrs["configuration"] == config
    in_one_range = {"learning_rate", "gamma", "n_steps", "n_epochs", "net"}  # 0 has no logarithm
    assert in_one_range <= optuna.importance.get_param_importances(read).keys()
    copied = optuna.create_study()
    copied.add_trials(read.trials)  # it checks every value against its distribution
    for plot in (
        optuna.visualization.plot_slice,
        optuna.visualization.plot_parallel_coordinate,
        optuna.visualization.plot_contour,
        optuna.visualization.plot_param_importances,
    ):
        assert plot(read).data
    known = [(trial.params, trial.distributions) for trial in study._database.trials]
    assert known[0] == ({}, {})
    again = open_study(tmp_path / "study.db", space, starts=starts)._database.trials
    assert [(trial.params, trial.distributions) for trial in again] == known


def as_they_are(self, trial):
    for name, distribution in trial.distributions.items():
        yield name, trial.params[name], distribution


def test_a_study_of_an_earlier_version_goes_on(path, monkeypatch):
    """Its file has the parameters as the samplers see them."""
    with monkeypatch.context() as patched:
        patched.setattr("rltune.study.stored_parameters.StoredParameters.to_file", as_they_are)
        study = open_study(path, SPACE)
        for value in (1.0, 3.0):
            study.tell(study.ask().number, "COMPLETE", value)
        assert "log2(n_steps)" in stored(path).best_params
        trials = [(t.params, t.distributions) for t in study._database.trials]
        study.close()
    again = open_study(path, SPACE)
    assert [(t.params, t.distributions) for t in again._database.trials] == trials
    again.tell(again.ask().number, "COMPLETE", 4.0)
    assert "n_steps" in stored(path).best_params


def test_the_queue_survives_and_is_filled_once(path):
    study = open_study(path, SPACE, starts=STARTS)
    study.ask()
    again = open_study(path, SPACE, starts=STARTS)
    assert [t.state for t in again.trials()] == ["RUNNING", "WAITING"]
    assert again.ask().origin == "start:0"
    assert again.ask().origin == "sampler"


def test_a_kill_while_the_starts_are_written_loses_and_doubles_none(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("rltune.study.database.Database.set_study_attr", _killed)
        with pytest.raises(KeyboardInterrupt):
            open_study(path, SPACE, starts=STARTS[:1])
    study = open_study(path, SPACE, starts=STARTS)
    assert [t.origin for t in study.trials()] == ["default", "start:0"]


def _killed(*args):
    raise KeyboardInterrupt


def test_starts_with_the_same_configuration_run_once_and_keep_all_origins(path):
    twin = StartConfig("start:7", dict(reversed(DEFAULT.items())))
    study = open_study(path, SPACE, starts=[*STARTS, twin])
    assert [t.origins for t in study.trials()] == [("default", "start:7"), ("start:0",)]


def test_states_are_honest(path, study):
    a, b, c, d, e = (study.ask().number for _ in range(5))
    for number, value in ((a, 1.0), (b, 99.0), (c, 3.0)):
        study.report(number, 1_000, value)
    study.report(a, 9_000, 7.0)
    study.tell(a, "COMPLETE", 7.0)
    study.tell(b, "PRUNED", 99.0, "stopped at rung 1,000: ...")
    study.tell(c, "FAIL", 3.0, "diverged: policy_loss is nan", {"traceback": "Traceback ..."})
    study.tell(d, "PRUNED", None, "time limit")
    records = study.trials()
    assert [r.state for r in records] == ["COMPLETE", "PRUNED", "FAIL", "PRUNED", "RUNNING"]
    assert [r.value for r in records] == [7.0, 99.0, None, None, None]
    assert records[0].intermediate == {1_000: 1.0, 9_000: 7.0}
    assert records[1].reason == "stopped at rung 1,000: ..."
    assert records[2].attrs["traceback"] == "Traceback ..."
    assert study.incumbent().number == a
    assert [t.number for t in study.unfinished()] == [e]
    assert study.stopped() == [b]
    assert study.reports() == {a: {1_000: 1.0, 9_000: 7.0}, b: {1_000: 99.0}, c: {1_000: 3.0}}
    # Any Optuna tool sees the same.
    theirs = stored(path)
    assert [t.state.name for t in theirs.trials] == [r.state for r in records]
    assert [t.value for t in theirs.trials] == [r.value for r in records]
    assert theirs.best_trial.number == a
    assert theirs.trials[1].intermediate_values == {1_000: 99.0}
    assert theirs.trials[2].user_attrs["reason"].startswith("diverged")
    assert not theirs.trials_dataframe().empty


def test_what_a_time_limit_cut_is_reopened_and_nothing_else(path, study):
    for state, reason in (
        ("PRUNED", "time limit at 200 env_steps"),
        ("PRUNED", "stopped at rung 100"),
        ("COMPLETE", ""),
        ("FAIL", "error"),
    ):
        number = study.ask().number
        study.report(number, 100, 1.0)
        study.tell(number, state, 1.0, reason, {"seconds": 3.0})
    study.reopen_cut()
    study.close()
    again = open_study(path, SPACE)
    assert [t.state for t in again.trials()] == ["RUNNING", "PRUNED", "COMPLETE", "FAIL"]
    assert [asked.number for asked in again.unfinished()] == [0]
    cut = again.trials()[0]
    assert (cut.value, cut.reason, cut.finished) == (None, "", None)
    assert cut.intermediate == {100: 1.0}
    assert again.tell(0, "COMPLETE", 2.0)
    trial = stored(path).trials[0]
    assert (trial.state, trial.value) == (optuna.trial.TrialState.COMPLETE, 2.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_complete_without_a_finite_objective_is_a_failure(study, value):
    number = study.ask().number
    study.tell(number, "COMPLETE", value)
    [record] = study.trials()
    assert (record.state, record.value) == ("FAIL", None)
    assert record.reason == f"diverged: the objective was {value}"


def test_nan_never_enters(path, study):
    number = study.ask().number
    for step, value in enumerate((math.nan, math.inf, -math.inf)):
        study.report(number, step, value)
    study.tell(number, "FAIL", math.nan, "diverged", {"objective_mean": math.nan, "l": [math.inf]})
    assert study.reports() == {}
    assert study.trials()[0].attrs["objective_mean"] is None
    text = sqlite3.connect(path).execute("select value_json from trial_user_attributes").fetchall()
    for (value,) in text:
        json.loads(value, parse_constant=pytest.fail)


def test_repeated_and_late_reports_are_silent(path, study):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        number = study.ask().number
        study.report(number, 10, 1.0)
        study.report(number, 10, 2.0)
        study.tell(number, "COMPLETE", 2.0)
        study.report(number, 10, 3.0)
    assert study.trials()[0].intermediate == {10: 2.0}
    assert stored(path).trials[0].intermediate_values == {10: 2.0}


def test_the_first_verdict_stands(study):
    number = study.ask().number
    assert study.tell(number, "PRUNED", None, "stopped")
    assert not study.tell(number, "COMPLETE", 3.0)
    assert study.trials()[0].state == "PRUNED"


def test_attributes_add_up_and_are_plain(path, study):
    number = study.ask().number
    study.annotate({number: {"retries": 1, "seeds": (0,)}})
    study.annotate({number: {"retries": np.int64(2)}})
    study.tell(number, "COMPLETE", 1.0, attrs={"seconds": np.float32(1.5), "path": path})
    for attrs in (study.trials()[0].attrs, stored(path).trials[0].user_attrs["attrs"]):
        attrs = {k: v for k, v in attrs.items() if k != "proposal"}
        assert attrs == {"retries": 2, "seeds": [0], "seconds": 1.5, "path": str(path)}


def test_ties_are_named_and_broken_by_the_mean_of_all_evaluations(study):
    told = [(500.0, 300.0), (500.0, 450.0), (499.0, 499.0), (500.0, None), (500.0, 450.0)]
    for value, mean in told:
        study.tell(study.ask().number, "COMPLETE", value, attrs={"objective_mean": mean})
    assert study.incumbent().number == 1
    assert [record.number for record in study.ties()] == [1, 4, 0, 3]


def test_minimize(path):
    study = open_study(path, SPACE, direction="minimize")
    for value, mean in ((3.0, 1.0), (1.0, 9.0), (1.0, 2.0)):
        study.tell(study.ask().number, "COMPLETE", value, attrs={"objective_mean": mean})
    assert [record.number for record in study.ties()] == [2, 1]
    assert stored(path).best_value == 1.0


def test_only_the_largest_budget_competes(study):
    for value, budget in ((9.0, 1_000), (1.0, 5_000), (2.0, 5_000)):
        study.tell(study.ask().number, "COMPLETE", value, attrs={"budget": budget})
    assert study.incumbent().number == 2


def test_an_empty_study_has_no_incumbent(study):
    assert study.incumbent() is None
    assert (study.ties(), study.trials(), study.unfinished(), study.reports()) == ([], [], [], {})


def test_records_tell_when(study):
    before = time.time()
    number = study.ask().number
    assert study.trials()[0].finished is None
    study.tell(number, "COMPLETE", 1.0)
    record = study.trials()[0]
    assert before <= record.started <= record.finished <= time.time()


def test_reopening_gives_the_same_records(path, study):
    for i in range(12):
        number = study.ask().number
        study.report(number, 10, float(i))
        study.tell(number, ("COMPLETE", "PRUNED", "FAIL")[i % 3], i, "why", {"seconds": i})
    study.ask()
    assert open_study(path, SPACE).trials() == study.trials()


CHILD = """
import sys
from rltune.space.space import Space
from rltune.study.records import StartConfig
from rltune.samplers.proposer import open_study
space = Space.from_dict({space!r})
study = open_study({path!r}, space, starts=[StartConfig("default", {default!r})], seed=7)
for trial in study.unfinished():
    print("again", trial.number, flush=True)
    study.tell(trial.number, "COMPLETE", 0.0)
while True:
    trial = study.ask()
    print("asked", trial.number, flush=True)
    for step in range(1, 4):
        study.report(trial.number, step, step)
        print("reported", trial.number, step, flush=True)
    study.tell(trial.number, "COMPLETE", 3.0)
    print("told", trial.number, flush=True)
"""


def test_kill_9_loses_nothing(path):
    """Whatever the child has printed is in the file, and no trial is half there."""
    code = CHILD.format(space=SPACE.to_dict(), path=str(path), default=DEFAULT)
    lines = []
    for kill_after in (2, 9, 17):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        mine = [child.stdout.readline().split() for _ in range(kill_after)]
        child.kill()
        # Not communicate(): it passes over what readline() has read ahead, half a line maybe.
        with child.stdout as rest:
            lines += mine + [line.split() for line in rest if line.endswith("\n")]
        child.wait()
        study = open_study(path, SPACE)
        records = study.trials()
        assert [r.number for r in records] == list(range(len(records)))
        for record in records:
            assert record.config.keys() == DEFAULT.keys()
            assert len(record.hash) == 12
        assert len([r for r in records if r.state == "RUNNING"]) <= 1
        study.close()
    by_number = dict(enumerate(records))
    for what, number, *step in lines:
        if what == "reported":
            assert by_number[int(number)].intermediate[int(step[0])] == int(step[0])
        elif what == "told":
            assert by_number[int(number)].state == "COMPLETE"
    assert len({record.hash for record in records}) == len(records)


def test_asha_is_rebuilt_from_the_study(path, study):
    asha = ASHA([10, 100], min_population=3)
    for value in (3.0, 2.0, 1.0, 5.0):
        number = study.ask().number
        study.report(number, 10, value)
        if asha.decide(number, 10, value) == "stop":
            study.tell(number, "PRUNED", None, asha.reason(number))
    again = open_study(path, SPACE)
    restored = ASHA([10, 100], min_population=3)
    restored.restore(again.reports(), again.stopped())
    assert restored.table() == asha.table()
    assert asha.table()[0].stopped == 1
    assert [t.number for t in again.unfinished()] == [0, 1, 3]


def test_closing_leaves_one_file(path, study):
    study.tell(study.ask().number, "COMPLETE", 1.0)
    study.close()
    assert [p.name for p in path.parent.iterdir()] == ["study.db"]


def test_a_path_with_odd_characters(tmp_path):
    folder = tmp_path / "a {b} ?c=%20 d#e"
    folder.mkdir()
    study = open_study(folder / "study.db", SPACE)
    study.ask()
    assert (folder / "study.db").exists()


def test_a_file_that_is_no_study(path):
    path.write_text("no database" * 1000)
    with pytest.raises(UserError, match=r"study\.db: cannot be opened.*not a database"):
        open_study(path, SPACE)


def test_a_study_of_another_optuna(path, study):
    study.close()
    with sqlite3.connect(path) as connection:
        connection.execute("update alembic_version set version_num = 'v99.0.0'")
    with pytest.raises(UserError, match=r"study\.db: cannot be opened.*no longer compatible"):
        open_study(path, SPACE)


def test_a_missing_folder(tmp_path):
    with pytest.raises(UserError, match="unable to open database file"):
        open_study(tmp_path / "none" / "study.db", SPACE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(path, study):
    study.close()
    path.chmod(stat.S_IRUSR)
    with pytest.raises(UserError, match="readonly"):
        open_study(path, SPACE).ask()


def test_a_full_disk_is_one_sentence_and_the_study_stays_readable(small_disk):
    study = open_study(small_disk / "study.db", SPACE)

    def fill():
        for _ in range(2_000):
            study.tell(study.ask().number, "COMPLETE", 1.0, attrs={"traceback": "x" * 5_000})

    with pytest.raises(UserError, match=r"study\.db: cannot be written: .*full"):
        fill()
    states = [trial.state.name for trial in stored(small_disk / "study.db").trials]
    assert states == [record.state for record in study.trials()]


def test_neither_ray_nor_torch_is_imported():
    code = (
        "import rltune.study.study, rltune.schedulers.asha, sys\n"
        "print({'ray', 'torch'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def test_writing_is_fast(study):
    """Loose bounds, ten times what a quiet machine needs; docs have the figures."""
    number = study.ask().number
    start = time.process_time()
    for step in range(100):
        study.report(number, step, 1.0)
    assert (time.process_time() - start) / 100 < 0.01
    start = time.process_time()
    study.tell(number, "COMPLETE", 1.0)
    assert time.process_time() - start < 0.1


@pytest.mark.slow
def test_asking_and_reopening_a_study_of_500_trials_is_fast(path, study):
    for i in range(500):
        number = study.ask().number
        for step in range(1, 11):
            study.report(number, step, float(i))
        study.tell(number, "COMPLETE" if i % 3 == 0 else "PRUNED", float(i))
    study.close()
    start = time.process_time()
    study = open_study(path, SPACE)
    assert time.process_time() - start < 4
    start = time.process_time()
    for _ in range(5):
        study.ask()
    assert (time.process_time() - start) / 5 < 0.15
