"""Population based training: its decisions, and populations that really train."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rltune
from rltune.agents.config import hyperparameters
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.answer.model import Answer
from rltune.backends.registry import config_class
from rltune.cli import main
from rltune.execution.messages import PAYLOAD, TASK
from rltune.execution.trainable import AgentTrainable
from rltune.objectives.metrics import objective_of
from rltune.runs.search_spec import SearchSpec
from rltune.schedulers.explorers import Explorer, PopulationMember, perturb
from rltune.schedulers.registry import rungs_of
from rltune.search.search import Search
from rltune.space.dimensions import parse_dimension
from rltune.space.space import Space
from rltune.space.yaml_lines import SourceText
from rltune.study.lineage import lineage
from serial import Serial, changes

HERE = Path(__file__).parents[1]
RNG = np.random.default_rng(0)
SPACE: dict[str, Any] = {"space": {"rate": {"log": [1e-3, 1.0]}, "width": {"choice": [2, 4]}}}
POPULATION: dict[str, Any] = {
    "agent": "toy:DescentAgent",
    "env": "toy:ToyEnv",
    "space": SPACE,
    "budget": 300,
    "evaluations": 6,
    "trials": 6,
    "scheduler": "pbt",
    "objective": "last",
    "eval_episodes": 1,
    "test_seeds": 1,
    "finalists": 1,
}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the toy agents importable."""
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Serial:
    """A population that was never stopped, with its tournament."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE)
        patch.syspath_prepend(str(HERE))
        search = Serial(tmp_path_factory.mktemp("whole"), **POPULATION)
        search.go_on()
    return search


# ---------------------------------------------------------------------------- single decisions


def dimension(**spec: Any) -> Any:
    return parse_dimension("x", spec, SourceText("test"), ("x",))


@pytest.mark.parametrize(
    ("spec", "value", "lower", "higher"),
    [
        ({"log": [1e-5, 1e-2]}, 1e-3, 8e-4, 1.25e-3),
        ({"log": [1e-5, 1e-2]}, 1e-2, 8e-3, 1e-2),  # at its end
        ({"one_minus_log": [0.9, 0.9999]}, 0.99, 0.992, 0.9875),
        ({"uniform": [-1.0, 1.0]}, 0.0, -0.2, 0.2),
        ({"int": [1, 20]}, 10, 8, 12),
        ({"int": [0, 3]}, 1, 0, 2),
        ({"int": [0, 100], "step": 50}, 50, 0, 100),
        ({"int": [1, 1000], "log": True}, 2, 1, 3),
        ({"int": [1, 1000], "log": True}, 100, 80, 125),
        ({"pow2": [32, 2048]}, 64, 32, 128),
        ({"choice": [4, 10, 20]}, 10, 4, 20),
        ({"choice": [20, 4, 10]}, 20, 10, 20),
        ({"choice": ["a", "b"]}, "a", "a", "a"),
        ({"choice": [True, False]}, True, True, True),
        ({"log": [1e-5, 1e-2]}, "lin_1e-3", "lin_1e-3", "lin_1e-3"),  # no value of its own
        ({"log": [1e-5, 1e-2]}, 0.0, 0.0, 0.0),
    ],
)
def test_a_change_is_a_step_on_the_dimensions_own_scale(
    spec: dict[str, Any], value: Any, lower: Any, higher: Any
) -> None:
    seen = {perturb(dimension(**spec), value, RNG, resample=0.0) for _ in range(40)}
    assert sorted(seen, key=str) == sorted({lower, higher}, key=str)


def test_values_are_drawn_anew_as_often_as_asked() -> None:
    lr = dimension(log=[1e-5, 1e-2])
    anew = [perturb(lr, 1e-3, RNG, resample=0.5) not in (8e-4, 1.25e-3) for _ in range(400)]
    assert 0.4 < np.mean(anew) < 0.6
    assert {perturb(dimension(choice=["a", "b"]), "a", RNG, 1.0) for _ in range(40)} == {"a", "b"}


def explorer(space: dict[str, Any], resample: float = 0.25) -> tuple[Explorer, dict[str, Any]]:
    search = Search("ppo", "CartPole-v1", space, budget=100)
    known = hyperparameters(config_class("ppo"))
    return Explorer(search.space, known, resample), search.starts[0].config


def test_only_what_a_training_can_change_is_changed() -> None:
    space = {
        "space": {
            "learning_rate": {"log": [1e-5, 1e-2]},
            "net_arch": {"choice": [[64, 64], [32]]},
            "n_envs": {"pow2": [1, 8]},
        },
        "fixed": {"gamma": 0.9},
    }
    found, config = explorer(space, resample=1.0)
    parent = PopulationMember(
        0, {**config, "optimizer": "rmsprop"}, 1.0, False
    )  # another one than the space
    for _ in range(20):
        new = found.explore(parent, 1, RNG)
        assert new["learning_rate"] != config["learning_rate"]
        assert {**new, "learning_rate": 0} == {**parent.config, "learning_rate": 0}


def test_constraints_conditions_and_derived_values_hold_after_a_change() -> None:
    space = {
        "space": {
            "n_steps": {"pow2": [8, 64]},
            "n_minibatches": {"pow2": [1, 16]},
            "target_kl": {"log": [0.003, 0.1], "when": {"normalize_advantage": True}},
            "normalize_advantage": {"choice": [True, False]},
        },
        "fixed": {"n_envs": 2},
        "derived": {"batch_size": "n_steps * n_envs // n_minibatches"},
        "constraints": ["batch_size >= 8"],
    }
    found, config = explorer(space, resample=0.5)
    config.update(n_envs=2, n_steps=8, n_minibatches=1, batch_size=16, target_kl=0.0)
    seen = set()
    for _ in range(200):
        config = found.explore(PopulationMember(0, config, 1.0, False), 1, RNG)
        assert config["batch_size"] == config["n_steps"] * 2 // config["n_minibatches"] >= 8
        seen.add((config["normalize_advantage"], config["target_kl"]))
    assert len(seen) > 20
    assert {advantage for advantage, _ in seen} == {True, False}


def test_what_no_change_can_satisfy_stays() -> None:
    space = {
        "space": {"n_steps": {"pow2": [8, 16]}, "batch_size": {"pow2": [32, 64]}},
        "constraints": ["batch_size <= n_steps"],
    }
    known = hyperparameters(config_class("ppo"))
    found = Explorer(Space.from_dict(space), known, 0.25)
    config = {"n_steps": 16, "batch_size": 64, "gamma": 0.9}
    assert found.explore(PopulationMember(0, config, 1.0, False), 1, RNG) == config


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"space": {"width": {"choice": [2, 4]}}},
            "none can change then; search another one, such as",
        ),
        ({"scheduler_options": {"population_size": 4}}, "--trials 6 and population_size 4"),
        ({"trials": 2}, "give --trials 3 or more"),
        ({"scheduler_options": {"interval": 300}}, "never change anything"),
        ({"evaluations": 1}, "raise --evaluations"),
        ({"scheduler_options": {"quantile": 0.7}}, "quantile must be a number between 0.01 and"),
        ({"scheduler_options": {"resample": -1}}, "resample must be a number between 0 and 1"),
        ({"scheduler_options": {"intervall": 9}}, "did you mean 'interval'"),
        ({"scheduler": "pb2", "space": {"momentum": {"choice": ["no", "yes"]}}}, "pb2 needs a num"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        Search(storage_path=tmp_path, **{**POPULATION, **changes})
    assert list(tmp_path.iterdir()) == []


def test_rllibs_agents_are_refused() -> None:
    with pytest.raises(UserError, match="RLlib's can't do here"):
        Search("rllib:PPO", "CartPole-v1", {"lr": {"log": [1e-5, 1e-2]}}, budget=9, scheduler="pbt")


def test_the_command_line_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "toy:DescentAgent", "--env", "toy:ToyEnv", "--rate", "1e-3", "1.0", "--dry-run"]
    line += ["--budget", "900", "--scheduler", "pb2"]
    assert main([*line, "--scheduler-options", "{population_size: 5, interval: 300}"]) == 0
    out = capsys.readouterr().out
    assert "5 trials of 900 env steps" in out
    assert "scheduler pb2 at 300, 600 env steps" in out
    assert main([*line, "--trials", "4", "--scheduler-options", "{population_size: 5}"]) == 2
    assert "leave one out" in capsys.readouterr().err
    assert main(line) == 0
    assert "8 trials of" in capsys.readouterr().out


def test_a_pause_is_the_first_evaluation_at_or_after_each_interval() -> None:
    spec = SearchSpec(agent="a", env="e", space={}, budget=900, scheduler="pbt")
    assert rungs_of(spec) == [100, 200, 300, 400, 500, 600, 700, 800, 900]
    every = {"interval": 250}
    spec = SearchSpec(
        agent="a", env="e", space={}, budget=900, scheduler="pbt", scheduler_options=every
    )
    assert rungs_of(spec) == [300, 500, 800, 900]


# --------------------------------------------------------------------------- whole populations


def test_a_population_changes_its_hyperparameters(whole: Serial) -> None:
    records = whole.records()
    assert [record[1] for record in records] == ["COMPLETE"] * 6
    rates = {change["config"]["rate"] for change in changes(records)}
    assert len(rates) >= 5
    assert records[0][4] is None  # the defaults stay as they are


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["pbt", "pb2"])
def test_a_population_finds_more_than_any_constant_leads_to(tmp_path: Path, scheduler: str) -> None:
    options = {**POPULATION, "scheduler": scheduler, "trials": 8, "budget": 900, "evaluations": 9}
    best = []
    for seed in range(5):
        search = Serial(tmp_path / str(seed), **options, seed=seed, tournament=False)
        search.go_on()
        best.append(max(record[2] for record in search.records()))
    assert np.mean(best) > max(descend([rate] * 90) for rate in np.geomspace(1e-3, 1, 500))


def descend(rates: list[float]) -> float:
    error = 1.0
    for rate in rates:
        error = (1 - rate) ** 2 * error + rate**2 * 0.3
    return -math.log10(error)


def test_what_was_trained_is_what_is_recorded(whole: Serial) -> None:
    """The return follows from the schedule alone: every mutation has reached the agent."""
    trials = {trial.number: trial for trial in whole.study.trials()}
    for number, trial in trials.items():
        config, later = lineage(trials, number)
        rates = []
        for env_steps in range(0, 300, 10):
            due = [c["config"] for c in later if c["env_steps"] <= env_steps]
            rates.append([v["rate"] for v in (config, *due) if "rate" in v][-1])
        assert trial.value == pytest.approx(descend(rates), abs=0.02)


def test_the_table_and_the_history_tell_who_had_what_when(whole: Serial) -> None:
    whole.driver.parts.recorder.write_trials_table(force=True)
    run = rltune.open(whole.run.path)
    table, history = run.trials(), run.history()
    for number, record in enumerate(whole.records()):
        rows = history[(history["trial"] == number) & (history["role"] == "tune")]
        assert list(rows["iteration"]) == list(range(1, 7))
        for change in record[4] or []:
            after = rows[rows["env_steps"] > change["env_steps"]].iloc[0]
            assert after["rate"] == pytest.approx(change["config"]["rate"])
            assert f'"parent": {change["parent"]}' in table["schedule"][number]
            parent = trials_value(whole, change["parent"], change["env_steps"])
            assert parent > trials_value(whole, number, change["env_steps"])


def trials_value(search: Serial, number: int, env_steps: int) -> float:
    return float(search.study.trials()[number].intermediate[env_steps])


def test_the_tournament_trains_the_schedule_from_the_start(whole: Serial) -> None:
    best = max(whole.study.trials(), key=lambda trial: trial.value or 0)
    finalists = {
        finalist.trial: finalist for finalist in whole.driver.retesting.tournament().results()
    }
    assert finalists[best.number].changes
    assert not finalists[0].changes
    # Without chance in this training, the scores are those of the search.
    assert finalists[best.number].seeds[100] == pytest.approx(best.value, abs=0.02)


@pytest.mark.parametrize("scheduler", ["pbt", "pb2"])
def test_a_killed_population_decides_like_one_that_was_not(
    tmp_path: Path, whole: Serial, scheduler: str
) -> None:
    options = {**POPULATION, "scheduler": scheduler, "tournament": False}
    expected = whole.records()
    if scheduler == "pb2":
        undisturbed = Serial(tmp_path / "pb2", **options)
        undisturbed.go_on()
        expected = undisturbed.records()
    for results in (3, 8, 13, 10_000):
        search = Serial(tmp_path / "killed", slots=3, **options)
        search.go_on(results)
    assert search.records() == expected
    history = rltune.open(search.run.path).history()
    for _, rows in history.groupby("trial"):
        assert list(rows["iteration"]) == list(range(1, 7))


def test_a_kill_between_the_copies_and_the_record_changes_nothing(
    tmp_path: Path, whole: Serial, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Serial(tmp_path, **POPULATION, tournament=False)

    def killed(news: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search.study, "annotate", killed)
    with pytest.raises(KeyboardInterrupt):
        search.go_on()
    search.history.close()
    search.study.close()
    search = Serial(tmp_path)
    search.go_on()
    assert search.records() == whole.records()


def test_evaluations_that_are_cut_off_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltune.agents.envs.vector.LONGEST_EPISODE", 30)
    endless = {**POPULATION, "env": "toy:EndlessEnv", "trials": 3}
    search = Serial(tmp_path, **endless, tournament=False)
    search.go_on()
    said = "cut off after 30 steps: toy:EndlessEnv has no time limit"
    assert sum(said in text for text in search.driver.parts.view.messages) == 1


def test_a_member_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    search = Serial(tmp_path, **POPULATION, tournament=False)
    decide, failed = search.driver.on_result, []

    def on_result(job: str, result: Any) -> bool:
        if job == "3" and result.iteration == 2 and not failed:
            failed.append(job)
            result.diverged = "non-finite loss"
        return decide(job, result)

    search.driver.on_result = on_result  # type: ignore[method-assign]
    search.go_on()
    states = [record[1] for record in search.records()]
    assert states == ["COMPLETE"] * 3 + ["FAIL"] + ["COMPLETE"] * 2
    assert all(
        change["parent"] != 3 for change in changes(search.records()) if change["env_steps"] > 50
    )


def test_a_time_limit_ends_the_waiting_ones_and_a_resume_goes_on(
    tmp_path: Path, whole: Serial
) -> None:
    search = Serial(tmp_path, **POPULATION, tournament=False)
    search.go_on(16)  # some wait, some are on their way
    search = Serial(tmp_path)
    driver, ending = search.driver, search.driver.ending
    original = ending.search_time_is_up
    ending.search_time_is_up = lambda: (  # type: ignore[method-assign]
        sum(map(driver.judge.waits, driver.running.trials.values())) >= 3
    )
    jobs = []
    while task := search.driver.next_job():
        job = AgentTrainable({TASK: task})
        jobs.append(job)
        while not search.driver.on_result(task["job"], job.step()[PAYLOAD]):
            pass
        job.cleanup()
    assert search.driver.exhausted()
    assert original() is False
    search.driver.finish()
    trials = search.study.trials()
    assert {trial.state for trial in trials} == {"PRUNED"}
    assert all(trial.reason.startswith("time limit") for trial in trials)
    search.history.close()
    search.study.close()
    search = Serial(tmp_path)
    search.go_on()
    assert search.records() == whole.records()


def test_a_replay_says_why_it_can_not(whole: Serial) -> None:
    whole.driver.parts.recorder.write_trials_table(force=True)
    for scheduler in (None, "asha", "pbt"):
        with pytest.raises(UserError, match="pbt can't be replayed"):
            rltune.replay(whole.run.path, scheduler)


def test_a_population_can_not_grow(whole: Serial) -> None:
    with pytest.raises(UserError, match="can't add members"):
        rltune.resume(whole.run.path, trials=9)


# ------------------------------------------------------------------------- with agents of ours


def test_the_schedule_of_a_real_agent_repeats_what_the_search_saw(tmp_path: Path) -> None:
    """Bit for bit, on the tuning seed: from the start, without any checkpoint of the search."""
    search = Serial(
        tmp_path,
        agent="ppo",
        env="CartPole-v1",
        space={
            "learning_rate": {"log": [1e-4, 1e-2]},
            "gamma": {"one_minus_log": [0.9, 0.999]},
            "n_steps": {"pow2": [16, 64]},
            "clip_range": {"uniform": [0.1, 0.4]},
        },
        budget=600,
        evaluations=3,
        eval_episodes=2,
        trials=4,
        scheduler="pbt",
        scheduler_options={"quantile": 0.5},
        tournament=False,
    )
    search.go_on()
    trials = {trial.number: trial for trial in search.study.trials()}
    schedules = {number: lineage(trials, number) for number in trials}
    changed = max(schedules, key=lambda number: len(schedules[number][1]))
    config, later = schedules[changed]
    assert later
    agent = Agent(
        "ppo", "CartPole-v1", config, total_timesteps=600, seed=search.spec.tune_seed, device="cpu"
    )
    returns = []
    for point in search.spec.evaluate_at:
        for change in later:
            if change["env_steps"] <= agent.env_steps:
                config = {**config, **change["config"]}
        agent = agent.with_config(config)
        agent.learn(point)
        returns.append(agent.evaluate(2).mean)
    assert objective_of(returns, search.spec.objective) == trials[changed].value
    rows = rltune.open(search.run.path).history()
    mine = rows[rows["trial"] == changed]
    assert mine["eval_return"].iloc[-1] == returns[-1]


def test_an_answer_keeps_its_schedule(whole: Serial) -> None:
    from rltune.answer.ranking import build_answer

    answer = build_answer(whole.driver.retesting.tournament().results())
    again = Answer.from_dict(answer.to_dict())
    assert [ranked.changes for ranked in again.ranking] == [
        entry.changes for entry in answer.ranking
    ]
    assert any(each.changes for each in again.ranking)
