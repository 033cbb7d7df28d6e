"""`rltune show`: what a reader finds, from run directories in every state."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys

import pytest
from rich.console import Console
from rltune.agents.errors import UserError
from rltune.analysis.show import _dimension, show
from rltune.answer.model import Circumstances, Finalist
from rltune.answer.ranking import build_answer
from rltune.cli import main
from rltune.reporting.page import ranking
from rltune.runs.directory import RunDir
from rltune.runs.history import HistoryWriter
from rltune.runs.trials_table import write_trials

SPEC = {
    "agent": "ppo",
    "env": "CartPole-v1",
    "budget": 50_000,
    "trials": 6,
    "space": {
        "space": {"learning_rate": {"log": [1e-5, 1e-2]}, "optimizer": {"choice": ["adam", "sgd"]}}
    },
}
DEFAULTS = {"learning_rate": 3e-4, "optimizer": "adam", "n_envs": 8}


def trial(number, state, origin="sampler", objective=None, config=None, **more):
    values = {**DEFAULTS, **(config or {})}
    return {
        "trial": number,
        "state": state,
        "origin": origin,
        "objective": objective,
        "started": 1000.0,
        **{f"config.{name}": value for name, value in values.items()},
        **more,
    }


TRIALS = [
    trial(0, "COMPLETE", "default", 480.0),
    trial(1, "COMPLETE", "start:0", 500.0, {"learning_rate": "lin_1e-3"}, objective_mean=300.0),
    trial(2, "COMPLETE", objective=500.0, config={"learning_rate": 1.5e-3}, objective_mean=400.0),
    trial(3, "PRUNED", objective=20.0, rung=5556, reason="stopped at rung 5,556: 20 < 98"),
    trial(4, "PRUNED", objective=30.0, rung=16667),
    trial(5, "FAIL", reason="non-finite policy_loss at 12,288 env_steps"),
    trial(6, "FAIL", reason="non-finite policy_loss at 12,288 env_steps"),
    trial(7, "FAIL", reason="RuntimeError: boom\nmore"),
]


def history_row(number, seed, env_steps, **more):
    return {
        **{"trial": number, "seed": seed, "role": "tune", "iteration": 1, "env_steps": env_steps},
        **{"mean_reward": 100.0, "best_reward": 120.0, "time": 30.0, "timestamp": 1060.0},
        **more,
    }


@pytest.fixture
def search(tmp_path):
    """A search that was killed: trials and history, but no answer."""
    run = RunDir.create(tmp_path / "my-search", SPEC)
    write_trials(run.trials_path, TRIALS)
    writer = HistoryWriter(run.path)
    writer.append(history_row(0, 0, 50_000), [])
    writer.append(history_row(3, 0, 5_600), [])
    writer.close()
    return run


def finish(run, scores):
    """Write what the end of a search writes; ``scores``: trial -> scores on test seeds."""
    finalists = [
        Finalist(
            trial=number,
            origins=(TRIALS[number]["origin"],),
            config={**DEFAULTS, "learning_rate": TRIALS[number]["config.learning_rate"]},
            objective=TRIALS[number]["objective"],
            seeds={100 + i: score for i, score in enumerate(values)},
        )
        for number, values in scores.items()
    ]
    answer = build_answer(finalists, Circumstances(full_budget_trials=3))
    run.write_yaml("best/answer.yaml", answer.to_dict())
    run.write_yaml("best/config.yaml", answer.best.config)
    run.write_text("best/command.txt", "rltune train ppo --env CartPole-v1 -n 50000 --seed 100\n")
    run.write_text("best/checkpoint.pt", "")


def shown(path, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(path, console=console)
    return console.file.getvalue()


def test_a_finished_search(search, monkeypatch):
    finish(search, {0: [300, 310, 320, 330, 340], 2: [480, 490, 495, 500, 500]})
    monkeypatch.chdir(search.path.parent)
    page = shown("my-search")
    folded = " ".join(page.split())
    assert "finished · 8 trials · 50,000 env steps a trial" in page
    assert "Use trial 2: it beats the agent's defaults, 495.0 against 320.0 (+175.0, 90 %" in folded
    assert "> trial 2" in page
    assert "480.0 to 500.0" in page
    assert "! Only 3 trials ran the whole budget" in page
    assert "Configuration of trial 2" in page
    row = next(line for line in page.splitlines() if line.startswith("  learning_rate"))
    assert row.split() == ["learning_rate", "0.0015", "0.0003", "1e-05", "to", "0.01,", "log"]
    assert "n_envs" not in page  # neither searched nor changed
    assert "1 at 5,556 env steps, 1 at 16,667 env steps" in page
    assert "trials 5, 6: non-finite policy_loss at 12,288 env_steps" in page
    assert "trial 7: RuntimeError: boom" in page
    assert "55,600 env steps, 1:00 of training in 1:00 on the clock" in page
    assert "rltune play my-search" in page
    assert "\n  rltune train ppo --env CartPole-v1 -n 50000 --seed 100\n" in page
    assert "resume" not in page


@pytest.mark.parametrize(("trials", "status"), [(8, "finished"), (9, "stopped before its end")])
def test_who_waits_beyond_the_last_trial_is_not_waited_for(search, trials, status):
    finish(search, {0: [300, 310, 320, 330, 340], 2: [480, 490, 495, 500, 500]})
    spec = {**search.content["spec"], "trials": trials}
    search.write_yaml("run.yaml", {**search.content, "spec": spec})
    write_trials(search.trials_path, [*TRIALS, trial(8, "WAITING", "start:1")])
    page = shown(search.path)
    assert f"{status} · 8 trials" in page
    assert ("1  not tried" in page) == ("resume" not in page) == (status == "finished")


def test_the_time_in_which_nobody_drove_the_run_does_not_count(search):
    writer = HistoryWriter(search.path)
    writer.append(history_row(2, 0, 50_000, timestamp=5045.0), [])
    writer.close()
    search.write_yaml(
        "run.yaml", {**search.content, "resumes": [{"resumed": "1970-01-01T01:23:20+0000"}]}
    )
    assert "of training in 1:45 on the clock" in shown(search.path)


def test_a_search_of_failures_alone_is_not_to_be_resumed_for_ever(search):
    failed = [trial(n, "FAIL", reason="error: NaN") for n in (0, 1)]
    write_trials(search.trials_path, [*failed, trial(2, "RUNNING")])
    page = shown(search.path)
    assert "Every trial has failed so far" in page
    assert "rltune resume" not in page
    assert "No trial has run its whole budget yet" not in page
    write_trials(search.trials_path, [trial(0, "FAIL", reason="worker died (out of memory?)")])
    page = shown(search.path)
    assert "rltune resume" in page  # it may have been chance
    assert "Every trial has failed" not in page


def test_ties_are_marked_and_explained(search):
    finish(search, {0: [500] * 5, 1: [500] * 5, 2: [381, 467, 500, 500, 500]})
    page = shown(search.path)
    assert "> the defaults" in page
    assert "= known-good settings 1" in page
    assert "= trial 2" in page
    assert "= the best one's lead over it is not proven" in page
    assert "Configuration of the defaults" in page
    assert (
        f"# prove the lead, if it is real\n  rltune resume {search.path} --test-seeds 33\n" in page
    )


def test_scores_that_are_all_alike_are_no_interval(search):
    finish(search, {0: [500] * 5, 1: [500] * 5, 2: [381, 467, 500, 500, 500]})
    page = shown(search.path)
    row = next(line for line in page.splitlines() if "> the defaults" in line)
    assert "all 500.0" in row
    assert "500.0 to" not in row
    assert "95 % interval" in page
    assert "scores that are all alike give no interval" in " ".join(page.split())


def test_a_column_without_intervals_is_headed_scores(search):
    finish(search, {0: [300, 310], 2: [480, 490]})
    page = shown(search.path)
    assert "95 % interval" not in page.partition("Ranking")[2]
    assert next(line for line in page.splitlines() if "IQM" in line).split()[:2] == [
        "IQM",
        "scores",
    ]


def test_where_all_finalists_diverged_no_row_is_marked(search):
    finalists = [
        Finalist(trial=n, origins=(origin,), config=DEFAULTS, seeds={100: math.nan, 101: math.nan})
        for n, origin in ((0, "default"), (1, "start:0"))
    ]
    answer = build_answer(finalists, Circumstances())
    search.write_yaml("best/answer.yaml", answer.to_dict())
    page = shown(search.path)
    assert "There is no answer" in page
    assert "all diverged" in page
    assert "= " not in page
    assert "> the answer" not in page
    table = ranking(answer)
    assert [row.cells[1] for row in table.rows] == ["", ""]
    assert "not proven" not in table.note.lower()


def test_a_tournament_that_was_cut_short_has_its_planned_seeds_first(search):
    search.write_yaml(
        "run.yaml", {**search.content, "spec": {**search.content["spec"], "test_seeds": 5}}
    )
    finish(search, {0: [500, 490], 2: [381, 467]})
    assert f"rltune resume {search.path} --test-seeds 5\n" in shown(search.path)


def test_a_tie_of_equal_scores_is_left_alone(search):
    finish(search, {0: [500] * 5, 1: [500] * 5, 2: [500] * 5})
    assert "prove the lead" not in shown(search.path)


def test_a_search_that_was_killed_says_how_to_go_on_and_trusts_nothing_yet(search):
    write_trials(search.trials_path, [*TRIALS, trial(8, "RUNNING")])
    search.write_yaml("best/scores.yaml", {0: {100: 500.0}, 2: {100: 381.0}})
    page = shown(search.path)
    assert "stopped before its end" in page
    assert "  1  interrupted" in page
    assert "The tournament on test seeds has begun: 2 trainings done." in page
    assert "So far" in page
    assert "Trial 2 scored 500.0, the best of the search." in page
    assert "one tuning seed" in page
    assert f"rltune resume {search.path}" in page
    assert "Configuration of trial 2" in page
    assert "--learning-rate 0.0015 --eval-freq 5556 --seed 0" in page


def test_a_running_search(search):
    with search.lock():
        page = shown(search.path)
    assert page.splitlines()[1].startswith("running")
    assert "resume" not in page


def test_a_search_without_a_tournament(search):
    search.write_yaml("best/config.yaml", {**DEFAULTS, "learning_rate": 1.5e-3})
    search.write_text("best/command.txt", "rltune train ppo --seed 0\n")
    page = shown(search.path)
    assert "finished" in page
    assert "Answer" in page
    assert "on its one tuning seed: expect less on others" in " ".join(page.split())
    assert "rltune train ppo --seed 0" in page


def test_an_empty_search(tmp_path):
    run = RunDir.create(tmp_path / "empty", SPEC)
    page = shown(run.path)
    assert "No trial has run its whole budget yet" in page
    assert "0 trials" in page
    assert "Cost" not in page


def test_a_training(tmp_path):
    spec = {"agent": "ppo", "env": "CartPole-v1", "total_timesteps": 10_000, "config": DEFAULTS}
    run = RunDir.create(tmp_path / "my-training", spec, kind="train")
    assert "Nothing has been recorded yet." in shown(run.path)
    writer = HistoryWriter(run.path)
    for iteration, score in enumerate((90.0, 480.0, 450.0)):
        steps = 2_000 * (iteration + 1)
        more = {"iteration": iteration, "role": "train", "eval_return": score}
        writer.append(history_row(0, 0, steps, **more), [])
    writer.close()
    page = shown(run.path)
    assert "6,000 of 10,000 env steps" in page
    lines = {line.split()[0]: line for line in page.splitlines() if "evaluation " in line}
    assert "450.0" in lines["last"]
    assert "480.0  after 4,000 env steps" in lines["best"]
    assert f"rltune resume {run.path}" in page


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_nothing_but_commands_is_wider_than_the_terminal(search, width):
    finish(search, {0: [300, 310, 320, 330, 340], 2: [480, 490, 495, 500, 500]})
    page = shown(search.path, width)
    prose = page.split("\nFiles")[0].splitlines()
    assert max(map(len, prose)) <= width
    assert not any(line.endswith(" ") for line in page.splitlines())


def test_many_places_where_trials_were_stopped_are_all_there(search):
    places = [trial(8 + n, "PRUNED", objective=1.0, rung=1000 * (n + 1)) for n in range(9)]
    write_trials(search.trials_path, [*TRIALS, *places])
    page = shown(search.path, 60)
    assert "stopped early" in page
    for n in range(9):
        assert f"1 at {n + 1},000 env steps" in " ".join(page.split())


def test_json_holds_the_answer_and_no_nan(search, capsys):
    finish(search, {0: [300, 310, 320, 330, 340], 2: [float("nan"), 490, 495, 500, 500]})
    assert main(["show", str(search.path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert data["status"] == "finished"
    assert data["trials"] == {"COMPLETE": 3, "PRUNED": 2, "FAIL": 3}
    assert data["stopped_at"] == {"5556": 1, "16667": 1}
    assert data["answer"]["winner"] == data["best_trial"] == 0
    assert data["best_config"] == DEFAULTS
    assert data["failures"][0]["trials"] == [5, 6]
    assert data["answer"]["ranking"][0]["scores"]["100"] is None


def test_json_of_a_training_and_of_an_empty_search(tmp_path, capsys):
    RunDir.create(tmp_path / "train", {"agent": "ppo", "total_timesteps": 10}, kind="train")
    RunDir.create(tmp_path / "empty", SPEC)
    for name in ("train", "empty"):
        assert main(["show", str(tmp_path / name), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["name"] == name


def test_what_is_no_run_is_one_sentence(tmp_path, capsys):
    with pytest.raises(UserError, match="no run directory"):
        show(tmp_path)
    assert main(["show", str(tmp_path / "nowhere")]) == 2
    assert main(["show", str(tmp_path), "--colour"]) == 2
    assert "--colour" in capsys.readouterr().err


def test_colours_only_where_they_are_wanted(search, monkeypatch, capsys):
    finish(search, {0: [500] * 5})
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["show", str(search.path)])
    assert "\x1b[" in capsys.readouterr().out
    main(["show", str(search.path), "--plain"])
    assert "\x1b[" not in capsys.readouterr().out
    monkeypatch.delenv("FORCE_COLOR")
    main(["show", str(search.path)])  # no terminal
    assert "\x1b[" not in capsys.readouterr().out


def test_show_imports_none_of_the_heavy_libraries(search):
    finish(search, {0: [500] * 5})
    code = (
        "import sys; from rltune.cli import main; main(['show', sys.argv[1]]); "
        "print(sorted({'ray', 'torch', 'optuna', 'gymnasium', 'wandb'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(search.path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


def test_a_whole_number_on_a_logarithmic_scale_has_its_range():
    assert _dimension({"int": [4, 128], "log": True}) == "4 to 128, int"
    assert _dimension({"log": [1e-5, 0.01]}) == "1e-05 to 0.01, log"
