"""`rltune compare`: who is ahead, how surely, and what is not said."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.answer.front import Front, FrontMember
from rltune.answer.model import Circumstances, Finalist
from rltune.answer.ranking import build_answer
from rltune.cli import main
from rltune.comparing.entries import Entry
from rltune.comparing.figures import charts, plot_history
from rltune.comparing.random_baseline import random_entries
from rltune.objectives.goals import Goal
from rltune.reporting.panels import learning_curve
from rltune.runs.directory import RunDir
from rltune.runs.history import HistoryWriter
from rltune.stats.estimates import Estimate

CONFIG = {"learning_rate": 0.001, "gamma": 0.99}


def make_training(
    folder: Path, agent: str, seed: int, value: float, *, env: str = "CartPole-v1",
    steps: int = 10_000, planned: int = 10_000, config: Mapping[str, Any] = CONFIG,
    name: str | None = None, **last: float,
) -> Path:  # fmt: skip
    """A training whose ten evaluations rise evenly up to ``value``."""
    spec = {"agent": agent, "env": env, "total_timesteps": planned, "seed": seed,
            "config": dict(config)}  # fmt: skip
    path = folder / "runs" / (name or f"{agent}-{env}-{seed}")
    run = RunDir.create(path, spec, kind="train")
    writer = HistoryWriter(run.path)
    for k in range(1, steps * 10 // planned + 1):
        row = {"trial": 0, "seed": seed, "role": "train", "iteration": k, "time": 2.0 * k,
               "env_steps": planned * k // 10, "mean_reward": value * k / 20,
               "eval_return": value * k / 10, "timestamp": 1000.0 + k}  # fmt: skip
        writer.append({**row, **(last if k == 10 else {})}, [])
    writer.close()
    return path


def make_search(
    folder: Path, name: str = "search", winner: Sequence[float] = (480, 470, 475, 490, 485),
    default: Sequence[float] = (300, 310, 290, 305, 295), **spec: Any,
) -> Path:  # fmt: skip
    """A search with its defaults (trial 0) and a finalist (trial 4) on five test seeds."""
    about = {"agent": "ppo", "env": "CartPole-v1", "budget": 9000, "space": {"space": {}}, **spec}
    run = RunDir.create(folder / "runs" / name, about)
    writer = HistoryWriter(run.path)
    finalists = []
    for trial, scores, origin in ((0, default, "default"), (4, winner, "sampler")):
        seeds = {100 + k: value for k, value in enumerate(scores)}
        for seed, value in seeds.items():
            for k in range(1, 10 if math.isfinite(value) else 3):
                row = {"trial": trial, "seed": seed, "role": "test", "iteration": k,
                       "env_steps": 1000 * k, "time": float(k), "timestamp": 1000.0 + k,
                       "eval_return": value if math.isfinite(value) else 500.0}  # fmt: skip
                writer.append(row, [])
        config = {**CONFIG, "learning_rate": 1e-3 * (1 + trial)}
        finalists.append(Finalist(trial=trial, origins=(origin,), config=config, seeds=seeds))
    writer.close()
    run.write_yaml("best/answer.yaml", build_answer(finalists, Circumstances()).to_dict())
    return run.path


@pytest.fixture
def two_agents(tmp_path: Path) -> list[str]:
    """PPO at 460 to 500, A2C at 100 to 140, five seeds each."""
    paths = [make_training(tmp_path, "ppo", seed, 460 + 10 * seed) for seed in range(5)]
    paths += [make_training(tmp_path, "a2c", seed, 100 + 10 * seed) for seed in range(5)]
    return [str(path) for path in paths]


def test_seeds_of_an_agent_are_one_entry(two_agents: list[str]) -> None:
    found = rltune.compare(two_agents, scales={"CartPole-v1": (20, 475)})
    (one,) = found.environments
    ppo, a2c = one.rows
    assert (ppo.label, a2c.label) == ("ppo", "a2c")
    # The mean of the last three of ten evaluations that rise evenly: 0.9 of the last one.
    assert ppo.scores == pytest.approx([0.9 * (460 + 10 * seed) for seed in range(5)])
    assert ppo.iqm.value == pytest.approx(0.9 * 480)
    assert ppo.iqm.low == pytest.approx(0.9 * 460)
    assert ppo.env_steps == (10_000, 10_000)
    (pair,) = one.pairs
    assert pair.probability.value == 1
    assert pair.p_value == pytest.approx(2 / math.comb(10, 5))
    assert pair.surely
    assert found.sentences == (
        "CartPole-v1: ppo scores highest, 432.0 (95 % interval 414.0 to 450.0, 5 seeds), above "
        "a2c beyond chance.",
    )
    assert found.warnings == ()
    assert a2c.optimality_gap == pytest.approx(1 - (0.9 * 120 - 20) / (475 - 20))
    assert rltune.compare(two_agents).environments[0].rows[1].optimality_gap is None


def test_objective_and_until(two_agents: list[str]) -> None:
    (best,) = rltune.compare(two_agents[:1], objective="best").environments
    assert best.rows[0].scores == pytest.approx([460])
    (early,) = rltune.compare(two_agents[:1], objective="last", until=5500).environments
    assert early.rows[0].scores == pytest.approx([230])
    with pytest.raises(UserError, match="nothing before 1,000 env steps"):
        rltune.compare(two_agents, until=10)
    (minus,) = rltune.compare(two_agents[:1], metric="-mean_reward", objective="last").environments
    assert minus.rows[0].scores == pytest.approx([-230])


def test_few_seeds_and_other_lengths_are_said(tmp_path: Path) -> None:
    paths = [
        make_training(tmp_path, "ppo", 0, 500),
        make_training(tmp_path, "ppo", 1, 480, steps=4000),
        make_training(tmp_path, "a2c", 0, 100, planned=5000, steps=5000),
    ]
    found = rltune.compare(paths)
    assert all(not math.isfinite(row.iqm.low) for row in found.environments[0].rows)
    said = " ".join(found.warnings)
    assert "ppo and a2c have fewer than 5 seeds" in said
    assert "no difference between 2 entries can be shown" in said
    assert "ppo-CartPole-v1-1 has had 4,000 of its 10,000 env steps" in said
    assert "ppo 4,000 to 10,000; a2c 5,000 env steps" in said
    alike = " ".join(rltune.compare(paths, until=4000).warnings)
    assert "of its" not in alike
    assert "differ in length" not in alike


def test_a_diverged_training_is_the_worst_there_is(tmp_path: Path) -> None:
    paths = [make_training(tmp_path, "ppo", seed, 500) for seed in range(4)]
    paths.append(make_training(tmp_path, "ppo", 4, 500, diverged=1.0))
    found = rltune.compare(paths, scales={"CartPole-v1": (500, 0)})  # even of costs
    (row,) = found.environments[0].rows
    assert row.optimality_gap == math.inf
    assert row.scores[4] == -math.inf
    assert row.iqm.low == -math.inf
    assert "1 training of ppo diverged or failed" in " ".join(found.warnings)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))


def test_other_hyperparameters_are_another_entry(tmp_path: Path) -> None:
    fast = {**CONFIG, "learning_rate": 0.01}
    paths = [make_training(tmp_path, "ppo", seed, 400, name=f"slow-{seed}") for seed in (0, 1)]
    paths.append(make_training(tmp_path, "ppo", 0, 300, name="fast-0", config=fast))
    found = rltune.compare(paths)
    assert found.labels == ["ppo, learning_rate 0.001", "ppo, learning_rate 0.01"]
    mixed = rltune.compare({"ppo": paths})
    assert mixed.labels == ["ppo"]
    assert "2 different configurations" in " ".join(mixed.warnings)


def test_the_same_training_counts_once(tmp_path: Path) -> None:
    first = make_training(tmp_path, "ppo", 0, 400)
    again = make_training(tmp_path, "ppo", 0, 400, name="again")
    found = rltune.compare([first, again, first])
    assert len(found.environments[0].rows[0].scores) == 1
    assert "ppo: 2 trainings with the configuration, seed and length of another" in " ".join(
        found.warnings
    )


def test_other_arguments_are_another_environment(tmp_path: Path) -> None:
    first = make_training(tmp_path, "ppo", 0, 400)
    second = RunDir.open(make_training(tmp_path, "ppo", 1, 400))
    spec = {**second.content["spec"], "env_kwargs": {"sutton_barto_reward": True}}
    second.write_yaml("run.yaml", {**second.content, "spec": spec})
    found = rltune.compare([first, second])
    names = [environment.env for environment in found.environments]
    assert names == ["CartPole-v1", "CartPole-v1 (sutton_barto_reward=True)"]
    assert found.environments[1].scale is None


def test_a_search_counts_by_its_answer_on_test_seeds(tmp_path: Path) -> None:
    search = make_search(tmp_path)
    found = rltune.compare([search], defaults=True)
    tuned, default = found.environments[0].rows
    assert (tuned.label, default.label) == ("ppo tuned", "ppo defaults")
    assert sorted(tuned.scores) == [470, 475, 480, 485, 490]
    assert default.iqm.value == pytest.approx(300)
    assert "The answer of search came out best of 2 finalists" in found.warnings[0]
    assert len(rltune.compare([search]).labels) == 1

    other = make_search(tmp_path, "other", objective="best", metric="success_rate")
    found = rltune.compare([search, other], defaults=True)
    assert sorted(found.labels) == ["other", "ppo defaults", "search"]
    said = " ".join(found.warnings)
    assert "other was tuned for another objective: best of success_rate" in said
    # Both searches trained the same defaults on the same seeds: they count once.
    assert "ppo defaults: 5 trainings" in said


def test_of_a_search_that_finds_nothing_the_answer_is_the_defaults(tmp_path: Path) -> None:
    search = make_search(tmp_path, winner=(300, 310, 290, 305, -math.inf))
    found = rltune.compare([search], defaults=True)
    assert found.labels == ["ppo tuned"]
    assert "The answer of search is the agent's own defaults." in found.warnings

    broken = make_search(
        tmp_path, "broken", winner=[1] * 5, default=(300, 310, 290, 305, -math.inf)
    )
    (row,) = rltune.compare([broken]).environments[0].rows
    assert min(row.scores) == -math.inf


def test_of_a_front_the_highest_return_counts(tmp_path: Path) -> None:
    search = make_search(tmp_path)
    (search / "best" / "answer.yaml").unlink()
    members = [
        FrontMember(
            trial=trial, origins=(origin,), config={}, tuning={},
            scores={"eval_return": {100 + k: value for k in range(5)}},
            estimates={"eval_return": Estimate(value, value, value)},
        )
        for trial, origin, value in ((4, "sampler", 480.0), (0, "default", 300.0))
    ]  # fmt: skip
    found = Front(goals=(Goal("eval_return", minimize=False),), members=tuple(members), tested=True)
    RunDir.open(search).write_yaml("best/front.yaml", found.to_dict())
    tuned, default = rltune.compare([search], defaults=True).environments[0].rows
    assert (tuned.label, tuned.scores) == ("ppo tuned", (480, 470, 475, 490, 485))
    assert (default.label, len(default.scores)) == ("ppo defaults", 5)


def test_several_environments_are_put_together(tmp_path: Path) -> None:
    for env, low in (("CartPole-v1", 300.0), ("Acrobot-v1", -200.0)):
        for seed in range(5):
            make_training(tmp_path, "ppo", seed, low + 20 * seed, env=env)
            make_training(tmp_path, "a2c", seed, low - 60 + 25 * seed, env=env)
    scales = {"CartPole-v1": (0.0, 500.0), "Acrobot-v1": (-500.0, -100.0)}
    found = rltune.compare(tmp_path / "runs", scales=scales, objective="last")
    overall = found.overall
    assert overall is not None
    assert overall.envs == ("Acrobot-v1", "CartPole-v1")
    scores = [(300 + 20 * s) / 500 for s in range(5)] + [(300 + 20 * s) / 400 for s in range(5)]
    assert overall.rows["ppo"]["mean"].value == pytest.approx(np.mean(scores))
    assert overall.rows["ppo"]["IQM"].low < overall.rows["ppo"]["IQM"].value
    assert [(pair.a, pair.b) for pair in overall.pairs] == [("ppo", "a2c")]
    assert found.sentences[0].startswith("Over 2 environments, ppo has the highest")
    assert {chart.name for chart in charts(found)} == {
        "scores", "curves", "aggregate", "profile", "improvement"
    }  # fmt: skip
    improvement = charts(found)[-1].panels[0]
    assert sum(len(s.x) for s in improvement.series if s.label == "an environment") == 2

    make_training(tmp_path, "td3", 0, -300, env="Pendulum-v1")
    found = rltune.compare(tmp_path / "runs")
    assert [environment.scale and environment.scale.high for environment in found.environments] == [
        -100,
        475,
        None,
    ]
    assert found.overall is None
    said = " ".join(found.warnings)
    assert "Which return solves Pendulum-v1? With --scale Pendulum-v1=LOW:HIGH" in said
    assert "There are no aggregates: not everyone was trained on" in said


def test_a_suite_is_one_entry_on_each_of_its_environments(tmp_path: Path) -> None:
    env = "CartPole-v1=0:500,Acrobot-v1=-500:-100"
    last = {"eval_return/CartPole-v1": 400.0, "eval_return/Acrobot-v1": -90.0}
    path = make_training(tmp_path, "ppo", 0, 0.5, env=env, name="suite", **last)
    found = rltune.compare([path])
    assert [(each.env, each.rows[0].scores) for each in found.environments] == [
        ("CartPole-v1", (400.0,)), ("Acrobot-v1", (-90.0,)),
    ]  # fmt: skip
    assert found.environments[0].rows[0].env_steps == (5000, 5000)
    assert found.overall is not None
    assert found.overall.rows["ppo"]["mean"].value == pytest.approx((0.8 + 410 / 400) / 2)


def test_learning_curves_and_plot_history(two_agents: list[str]) -> None:
    (chart,) = [drawn for drawn in charts(rltune.compare(two_agents)) if drawn.name == "curves"]
    ppo, a2c = chart.panels[0].series
    assert ppo.label == "ppo"
    assert list(ppo.x) == [1000.0 * k for k in range(1, 11)]
    assert ppo.y[-1] == pytest.approx(480)
    assert ppo.low is not None
    assert ppo.low[-1] == pytest.approx(460)
    assert ppo.colour != a2c.colour

    figure = plot_history(two_agents[:6], axis="time", metric="mean_reward")
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert figure.axes[0].get_xlabel() == "seconds"
    assert figure.axes[0].get_ylabel() == "return of training episodes"
    assert lines["ppo"].get_ydata()[-1] == pytest.approx(240)
    assert len(figure.axes[0].collections) == 1  # one seed has no band
    with pytest.raises(UserError, match="unknown axis 'steps'"):
        plot_history(two_agents, axis="steps")


def test_a_curve_is_drawn_where_all_seeds_have_a_value() -> None:
    long, short = ([1, 2, 3, 4], [0, 10, 20, 30]), ([1.5, 3], [5, 5])
    found = learning_curve([long, short], "both", "#000000")
    assert found is not None
    assert list(found.x) == [1.5, 2, 3]
    assert list(found.y) == pytest.approx([5, 7.5, 12.5])
    assert learning_curve([long, ([5, 6], [1, 1])], "apart", "#000000") is None


def test_the_command(
    two_agents: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *two_agents, "--plain"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"ppo > a2c +100 % +6\d to 100 % +0.0079 +beyond chance", printed), printed
    assert max(map(len, printed.splitlines())) <= 100

    out = tmp_path / "new" / "out"
    assert main(["compare", *two_agents, "--json", "--out", str(out)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["environments"][0]["entries"][0]["label"] == "ppo"
    assert {file.name for file in out.iterdir()} == {
        "index.html", "summary.md", "scores.png", "curves.png", "improvement.png"
    }  # fmt: skip
    page = (out / "index.html").read_text()
    assert "above a2c beyond chance" in page
    assert "All trainings" in page
    assert "| ppo | 432.0 | 414.0 to 450.0 |" in (out / "summary.md").read_text()


def test_labels(two_agents: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = rltune.compare(
        ["good=ppo-CartPole-v1-0", f"good={two_agents[1]}", "bad=runs/a2c-CartPole-v1-0"]
    )
    assert found.labels == ["good", "bad"]
    assert len(found.environments[0].rows[0].scores) == 2


def test_names_of_runs_cannot_become_code_of_the_page(tmp_path: Path) -> None:
    path = make_training(tmp_path, "ppo", 0, 100)
    nasty = "</script><script>alert(1)</script>"
    page = rltune.compare({nasty: path}).write(tmp_path / "out").read_text()
    assert "<script>alert" not in page
    assert "alert(1)" in page


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nowhere"], "no run 'nowhere' here or in 'runs'"),
        (["{tmp}"], "is no run directory of rltune and has no logs of Stable-Baselines3"),
        (["=x"], "write LABEL=PATH, with both"),
        (["{run}", "--metric", "quality"], "has no metric 'quality'; it has eval_"),
        (["{run}", "--objective", "worst"], "unknown objective 'worst'"),
        (["{run}", "--scale", "CartPole-v1=1:1"], "--scale CartPole-v1=1:1: write ENV=LOW:HIGH"),
        (["{run}", "--scale", "Pong=0:1"], "--scale Pong: there are only CartPole-v1"),
        (["{run}", "--until", "0"], "--until"),
        (["{run}", "--quick"], "does not know '--quick'"),
        (["{run}", "--out", "{run}/run.yaml"], "run.yaml"),
        (["{empty}"], "has recorded nothing yet"),
        (["{search}"], "has no answer on test seeds yet"),
    ],
)
def test_a_mistake_is_one_sentence(
    argv: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_training(tmp_path / "some", "ppo", 0, 100)
    search = make_search(tmp_path / "some")
    (search / "best" / "answer.yaml").unlink()
    empty = RunDir.create(tmp_path / "other" / "empty", {"agent": "ppo", "env": "x"}, kind="train")
    (tmp_path / "bare").mkdir()
    places = {"tmp": tmp_path / "bare", "run": run, "empty": empty.path, "search": search}
    assert main(["compare", *(argument.format(**places) for argument in argv)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1


def test_it_reads_with_no_learner_loaded(two_agents: list[str]) -> None:
    code = (
        "import rltune, sys; rltune.compare(sys.argv[1:]); print({'ray', 'torch'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code, *two_agents], capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout.strip() == "set()"


def test_actions_at_random_are_a_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [make_training(tmp_path, "ppo", seed, 400 + seed) for seed in range(6)]
    found = rltune.compare(good, random=True)
    (cartpole,) = found.environments
    assert [row.label for row in cartpole.rows] == ["ppo", "random actions"]
    assert len(cartpole.rows[1].scores) == 6
    assert all(10 < score < 40 for score in cartpole.rows[1].scores)
    assert cartpole.pairs[0].surely
    # Nothing is imported of what a run names.
    entries, remarks = random_entries([Entry("ppo", "mine:Env", ())], "eval_return")
    assert entries == []
    assert "mine:Env: no actions at random" in remarks[0]
    assert main(["compare", str(good[0]), "--random", "--metric=mean_length"]) == 2
    assert main(["compare", str(good[0]), "--random", "--metric=-eval_return"]) == 2
    assert "actions at random have a return alone" in capsys.readouterr().err
