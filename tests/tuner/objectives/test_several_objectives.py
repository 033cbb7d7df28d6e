"""Searches with several objectives: their fronts, their study, and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.objectives.goals import FurtherObjectives, Goal, parse_goal
from rltune.objectives.seeds import TrialSeeds, make_plan
from rltune.samplers.proposer import Proposer, open_study
from rltune.samplers.registry import for_several
from rltune.schedulers.pareto_asha import ParetoASHA
from rltune.space.space import Space
from rltune.study.records import StartConfig
from rltune.study.study import SearchStudy
from toy_trade import TradeAgent

TRADE: dict[str, Any] = {
    "space": {"quality": {"choice": [0.2, 0.6, 1.0]}, "waste": {"choice": [0.0, 1.0]}}
}
NUMBERS = Space.from_dict(
    {"space": {"quality": {"uniform": [0.0, 1.0]}, "waste": {"uniform": [0.0, 1.0]}}}
)
PRICE = Goal("price", minimize=True)


def trade(folder: Path, **options: Any) -> rltune.SearchResult:
    """Search with all points of a grid, unless told otherwise."""
    values: dict[str, Any] = {"budget": 300, "evaluations": 3, "eval_episodes": 1}
    values |= {"trials": 7, "sampler": "grid", "scheduler": "none", "against": ["-price"]}
    values |= {
        "wandb": "off",
        "report": False,
        "screen": "none",
        "name": "run",
        "space": TRADE,
        **options,
    }
    return rltune.Search("toy_trade:TradeAgent", "toy:ToyEnv", storage_path=folder, **values).run()


def points(frame: pd.DataFrame) -> set[tuple[float, float]]:
    rows = frame[frame["on_front"]]
    return set(zip(rows["config.quality"], rows["config.waste"], strict=True))


BEST = {(0.2, 0.0), (0.6, 0.0), (1.0, 0.0)}


@pytest.mark.usefixtures("no_ray")
def test_a_search_finds_the_front_and_tests_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = trade(tmp_path, test_seeds=4)
    trials, front = result.trials(), result.front()
    assert points(trials) == points(front) == BEST
    assert list(trials["objective.price"]) == pytest.approx(
        trials["config.quality"] + trials["config.waste"]
    )
    assert list(front["config.quality"]) == [1.0, 0.6, 0.5, 0.2]  # the best return comes first
    assert front["label"][2] == "the defaults"
    assert list(map(len, front["dominated_by"])) == [0, 0, 2, 0]
    assert set(front["dominated_by"][2]) == set(front["trial"][:2])
    assert (front["eval_return.low"] < front["eval_return"]).all()
    assert list(front["price"]) == pytest.approx([1.0, 0.6, 1.5, 0.2])
    tests = result.history().query("role == 'test'")
    assert len(tests.groupby(["trial", "seed"])) == 4 * 4  # nobody is left behind for one value
    assert result.best is not None
    assert (result.best["quality"], result.best["waste"]) == (1.0, 0.0)
    command = (result.path / "best" / "command.txt").read_text().strip()
    assert command == front["command"][0]
    assert "--quality 1.0 --waste 0.0 --eval-freq 100 --eval-episodes 1 --seed 10" in command
    assert (result.path / "best" / "checkpoint.pt").exists()

    study = optuna.load_study(study_name="search", storage=f"sqlite:///{result.path}/study.db")
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert {trial.number for trial in study.best_trials} == set(trials["trial"][trials["on_front"]])
    assert study.trials[0].values == [trials["objective"][0], 1.5]

    assert main(["show", str(result.path), "--plain"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "4 configurations trained again on test seeds, 3 are on the front" in page
    assert "Dominated beyond chance: the defaults." in page
    assert page.count("rltune train toy_trade:TradeAgent") == 3
    assert main(["show", str(result.path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["best_trial"] == front["trial"][0]
    assert [member["on_front"] for member in shown["front"]["members"]] == [True, True, False, True]

    text = rltune.export(result.path)
    assert f"trial {front['trial'][0]}, on the front of the search 'run'" in text
    assert re.search(r"# test score eval_return \S+, price 1: interquartile mean of 4 seeds", text)
    assert "--quality 1.0" in text
    assert command.split()[-1] == text.split("--seed ")[1].split()[0]
    text = rltune.export(result.path, trial=int(front["trial"][2]))
    assert "(the defaults) of the search 'run'" in text


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("cost", ["seconds", "cpu_seconds"])
def test_costs_are_of_the_whole_training(tmp_path: Path, cost: str) -> None:
    space = {**TRADE, "fixed": {"pace": 0.01}}
    result = trade(tmp_path, space=space, against=cost, tournament=False, trials=4)
    table, history = result.trials(), result.history()
    column = {"seconds": "time", "cpu_seconds": "cpu_time"}[cost]
    ends = history.groupby("trial")[column].max()
    assert list(table[f"objective.{cost}"]) == pytest.approx(list(ends))
    if cost == "seconds":  # 30 updates take 0.3 seconds per price, but the defaults have no pace
        prices = table["config.quality"] + table["config.waste"]
        assert (table["objective.seconds"] >= 0.3 * prices)[1:].all()
    assert set(result.front()["trial"]) == set(table["trial"][table["on_front"]])
    assert "eval_return.low" not in result.front()  # nothing was tested
    assert result.best is not None


@pytest.mark.usefixtures("no_ray")
def test_asha_stops_fronts_behind_and_a_replay_repeats_it(tmp_path: Path) -> None:
    about = {"sampler": "tpe", "scheduler": "asha", "trials": 24, "tournament": False}
    result = trade(tmp_path, space=NUMBERS.to_dict(), evaluations=9, **about)
    trials = result.trials()
    stopped = trials[trials["state"] == "PRUNED"]
    assert len(stopped) > 5
    assert stopped["reason"].str.match(r"stopped at rung \d+: .*best third of \d+").all()
    assert not trials["on_front"][stopped.index].any()
    again = rltune.replay(result.path)
    assert [fate.trial for fate in again.fates if fate.stopped_at] == list(stopped["trial"])
    assert all(fate.same for fate in again.fates)
    with pytest.raises(UserError, match="'median' compares one number only"):
        rltune.replay(result.path, "median")
    # The file is one that Optuna could have written, so its own samplers can go on with it.
    copy = shutil.copy(result.path / "study.db", tmp_path / "copy.db")
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=5)
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{copy}", sampler=sampler)
    pruned = [trial for trial in study.trials if trial.state.name == "PRUNED"]
    assert [trial.number for trial in pruned] == list(stopped["trial"])
    assert all(len(trial.values) == 2 and not trial.intermediate_values for trial in pruned)
    study.optimize(lambda trial: (trial.suggest_float("quality", 0, 1), 1.0), n_trials=1)


@pytest.mark.usefixtures("no_ray")
def test_a_metric_that_nobody_reports_ends_the_search(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--against: no metric 'prize' was reported; there are"):
        trade(tmp_path, against="-prize", trials=2)


@pytest.mark.usefixtures("no_ray")
def test_who_leads_by_when_is_a_view_on_any_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = trade(tmp_path, against=(), test_seeds=2, finalists=1, objective="last")
    front = result.front("env_steps")
    assert list(front["env_steps"]) == [100, 200, 300]
    assert front["objective"].is_monotonic_increasing
    best = result.history().query("role == 'tune'").groupby("step")["eval_return"].max()
    assert list(front["objective"]) == list(best)
    assert list(front["seeds"]) == [2, 2, 2]
    assert (front["test"] - front["objective"]).abs().max() < 0.1
    assert main(["show", str(result.path), "--against", "env_steps", "--plain"]) == 0
    assert "expect less" in capsys.readouterr().out
    with pytest.raises(UserError, match="only env_steps can be looked at"):
        result.front("seconds")
    with pytest.raises(UserError, match="has one objective"):
        result.front()


REFUSED = {
    "env_steps": ({"against": "env_steps"}, "rltune show RUN --against env_steps"),
    "sign": ({"against": "-seconds"}, "write seconds"),
    "none": ({"against": "-"}, "needs a cost"),
    "twice": ({"against": ["seconds", "seconds"]}, "an objective already"),
    "first": ({"against": "-eval_return"}, "an objective already"),
    "hyperband": ({"scheduler": "hyperband"}, "'hyperband' compares one number only"),
    "median": ({"scheduler": "median"}, "with --against use asha or none"),
    "pbt": ({"scheduler": "pbt"}, "'pbt' compares one number only"),
    "pb2": ({"scheduler": "pb2"}, "'pb2' compares one number only"),
    "cmaes": ({"sampler": "cmaes", "space": NUMBERS.to_dict()}, "knows one objective only"),
    "cost-aware": ({"sampler": "cost-aware"}, "with --against use tpe, gp"),
}


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_work_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        trade(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_ray")
def test_a_warm_start_is_refused(tmp_path: Path) -> None:
    earlier = trade(tmp_path / "a", against=(), trials=2, tournament=False)
    with pytest.raises(UserError, match="--from ranks earlier trials by one objective"):
        trade(tmp_path / "b", warm_start=[earlier.path])
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("sampler", for_several())
def test_samplers_learn_from_every_kind_of_trial(tmp_path: Path, sampler: str) -> None:
    """A study that is opened anew for every trial proposes what one that stays open does."""

    def reopened(path: str) -> SearchStudy:
        starts = [StartConfig("default", {"quality": 0.5, "waste": 2.0})]
        return open_study(
            tmp_path / path, NUMBERS, sampler=sampler, starts=starts, other_directions=["minimize"]
        )

    def step(study: SearchStudy) -> dict[str, Any]:
        asked = study.ask()
        assert asked is not None
        quality, price = asked.config["quality"], sum(asked.config.values())
        number = asked.number
        study.report(number, 1, quality / 2, [price / 2])
        if number % 5 == 3:
            study.tell(number, "FAIL", None, "diverged: loss is nan")
        elif number % 3 == 1:
            study.tell(number, "PRUNED", None, "stopped at rung 1")
        else:
            study.tell(number, "COMPLETE", quality, "", point=2, others=[price])
        return asked.config

    whole = reopened("whole.db")
    expected = [step(whole) for _ in range(11)]
    again = []
    for n in (7, 3, 1):
        study = reopened("again.db")
        again += [step(study) for _ in range(n)]
        study.close()
    assert again == expected
    records = whole.trials()
    assert [trial.values for trial in reopened("again.db").trials()] == [r.values for r in records]
    assert records[2].intermediate == {1: records[2].config["quality"] / 2, 2: records[2].value}
    assert records[1].values == (records[1].intermediate[1], *records[1].other_intermediate[1])
    assert records[3].values is None
    assert records[-1].attrs.get("proposal") == sampler


def test_tpe_goes_where_the_front_is(tmp_path: Path) -> None:
    study = open_study(tmp_path / "study.db", NUMBERS, other_directions=["minimize"])
    wastes = []
    for _ in range(40):
        asked = study.ask()
        assert asked is not None
        wastes.append(asked.config["waste"])
        price = sum(asked.config.values())
        study.tell(asked.number, "COMPLETE", asked.config["quality"], point=1, others=[price])
    assert sum(wastes[-20:]) < 0.6 * sum(wastes[:8]) * 20 / 8  # waste is on no front
    best = study.incumbent()
    assert best is not None
    assert best.value == max(trial.value or 0 for trial in study.trials())


def test_the_sampler_is_named_that_can_not() -> None:
    with pytest.raises(UserError, match="sampler 'cost-aware' knows one objective only"):
        Proposer(NUMBERS, "cost-aware", {}, 0, "maximize", other_directions=["minimize"])


def rung_of(values: list[tuple[float, float]], min_population: int = 1) -> list[str]:
    """Let trials come to a rung, and return what becomes of each."""
    others = FurtherObjectives([PRICE])
    scheduler = ParetoASHA([10, 100], 3, min_population, 1, others)
    verdicts = []
    for trial, (value, price) in enumerate(values):
        others.values[trial] = {10: (price,)}
        verdicts.append(scheduler.decide(trial, 10, value))
    return verdicts


def test_a_rung_lets_whole_fronts_go_on() -> None:
    go, stop = "continue", "stop"
    # Three of a front; then one behind it, and one before all.
    line = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert rung_of([*line, (0.5, 4.0), (4.0, 0.5)], 5) == [go, go, go, go, go]
    assert rung_of([*line, (4.0, 0.5), (0.5, 4.0)], 5)[-1] == stop
    # Six on a front: the two that go on are its ends.
    front = [(float(n), float(n)) for n in (1, 6, 2, 3, 4, 5)]
    assert rung_of(front, 6)[-1] == stop
    assert rung_of([*front[1:], front[0]], 6)[-1] == go
    # Twins of one that goes on do not go on for that reason.
    assert 3 <= rung_of([(1.0, 1.0)] * 9).count(go) < 9


def test_a_rung_says_why_and_is_rebuilt() -> None:
    others = FurtherObjectives([PRICE])
    values = {trial: (float(trial), float(9 - trial)) for trial in range(1, 7)}

    def fresh() -> ParetoASHA:
        return ParetoASHA([10, 100], 3, 5, 1, others)

    scheduler = fresh()
    for trial, (value, price) in values.items():
        others.values[trial] = {10: (price,)}
        scheduler.decide(trial, 10, value)
    others.values[7] = {10: (7.0,)}
    assert scheduler.decide(7, 10, 1.0) == "stop"
    why = "stopped at rung 10: 5 fronts behind, not in the best third of 7"
    assert scheduler.reason(7) == why
    # By the luck of its seeds it may be better than the others: at most two are.
    assert scheduler.decide(7, 10, 1.0, standard_error=6.0) == "continue"
    again = fresh()
    again.restore({trial: {10: value} for trial, (value, _) in values.items()}, [])
    assert again.decide(7, 10, 1.0) == "stop"
    assert (again.reason(7), again.table()) == (why, scheduler.table())


def test_metrics_are_put_together_like_the_objective_and_costs_are_not() -> None:
    plan = make_plan(2, [10, 20, 30], [])
    rows = {0: [(5.0, 1.0), (1.0, 2.0), (2.0, 3.0)], 1: [(9.0, 3.0), (9.0, 4.0), (9.0, 5.0)]}

    def judge(objective: str, over_seeds: str) -> tuple[float, ...]:
        goals = [PRICE, Goal("loss", minimize=False), Goal("seconds", minimize=True)]
        others = FurtherObjectives(goals, objective, over_seeds)
        seeds = TrialSeeds(plan)
        for seed, values in rows.items():
            for point, (price, seconds) in zip(plan.points, values, strict=True):
                row = {"price": price, "loss": price, "time": seconds}
                leg = seeds.run(seed)
                leg.values[point], leg.measured[point] = 0.0, others.measure(row)
        again = TrialSeeds.from_dict(plan, json.loads(json.dumps(seeds.to_dict())), 0)
        found = others.judge(0, again, 30)
        assert others.values == {0: {30: found}}
        assert found == others.judge(0, seeds, 30)
        return found

    assert judge("last", "mean") == (5.5, 5.5, 4.0)
    assert judge("best", "mean") == (5.0, 7.0, 4.0)  # the best price is the lowest
    assert judge("last:2", "mean") == (5.25, 5.25, 4.0)
    assert judge("last", "worst") == (9.0, 2.0, 4.0)  # and the worst the highest
    with pytest.raises(ValueError, match="price is inf"):
        FurtherObjectives([PRICE]).measure({"price": float("inf")})


def test_goals_are_written_like_metrics() -> None:
    assert parse_goal("-kl") == Goal("kl", minimize=True)
    assert parse_goal("entropy") == Goal("entropy", minimize=False)
    assert parse_goal("cpu_seconds") == Goal("cpu_seconds", minimize=True)
    assert parse_goal("cpu_seconds").is_cost
    assert TradeAgent.Config(quality=0.5).waste == 1.0


def test_the_command_line_says_what_it_weighs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "ppo", "--env", "CartPole-v1", "--against", "cpu_seconds", "--against=-entropy"]
    assert main([*words, "--dry-run"]) == 0
    assert "against cpu_seconds, against entropy" in capsys.readouterr().out
    assert main(["run", "ppo", "--env", "CartPole-v1", "--against", "env_steps"]) == 2
    assert "rltune show RUN --against env_steps" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
