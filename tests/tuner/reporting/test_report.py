"""The report: what it says, and how a browser shows it."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rltune
from matplotlib.figure import Figure
from rltune.analysis.summary import Summary
from rltune.answer.front import Front, FrontMember
from rltune.answer.model import Circumstances, Finalist
from rltune.answer.ranking import build_answer
from rltune.cli import main
from rltune.objectives.goals import Goal
from rltune.reporting import optuna_chart, parameters
from rltune.reporting.charts import Chart, Panel, Series
from rltune.reporting.figures import charts, learning_curves
from rltune.reporting.optuna_chart import OptunaChart
from rltune.reporting.panels import lower_edge
from rltune.runs.directory import RunDir
from rltune.runs.history import HistoryWriter
from rltune.runs.trials_table import write_trials
from rltune.stats.estimates import Estimate

SPACE = {
    "learning_rate": {"log": [1e-5, 1e-2]},
    "gamma": {"one_minus_log": [0.9, 0.999]},
    "n_steps": {"pow2": [32, 256]},
    "optimizer": {"choice": ["adam", "rmsprop"]},
    "rms_alpha": {"uniform": [0.9, 0.99], "when": {"optimizer": "rmsprop"}},
}
SPEC = {"agent": "ppo", "env": "CartPole-v1", "budget": 9000, "space": {"space": SPACE},
        "sampler": "tpe", "scheduler": "asha"}  # fmt: skip
NASTY = "error: </script><script>alert(1)</script>"


def make_run(folder: Path, trials: int = 24) -> RunDir:
    """A search that was killed: trials and histories, but no answer yet."""
    run = RunDir.create(folder / "run", SPEC)
    rng = np.random.default_rng(0)
    writer = HistoryWriter(run.path)
    rows: list[dict[str, Any]] = []
    for number in range(trials):
        stopped, failed = number % 3 == 1, number % 12 == 11
        rms = number % 2 == 0
        value = float(rng.uniform(20, 500))
        end = 3000 if stopped else 9000
        rows.append(
            {
                "trial": number,
                "state": "FAIL" if failed else "PRUNED" if stopped else "COMPLETE",
                "origin": "default" if number == 0 else "start:0" if number == 2 else "sampler",
                "reason": NASTY if failed else "",
                "objective": None if failed else value,
                "budget_reached": end,
                "rung": 3000 if stopped else None,
                "seconds": float(rng.uniform(5, 60)),
                "started": 1000.0 + 10 * number,
                "config.learning_rate": "lin_1e-3" if number == 2 else 10 ** rng.uniform(-5, -2),
                "config.gamma": 1 - 10 ** rng.uniform(-3, -1),
                "config.n_steps": int(2 ** rng.integers(5, 9)),
                "config.optimizer": "rmsprop" if rms else "adam",
                "config.rms_alpha": float(rng.uniform(0.9, 0.99)) if rms else None,
            }
        )
        add_curve(writer, number, 0, "tune", value, end)
    write_trials(run.trials_path, rows)
    writer.close()
    return run


def add_curve(
    writer: HistoryWriter, trial: int, seed: int, role: str, value: float, end: int
) -> None:
    for k in range(1, end // 1000 + 1):
        about = {"trial": trial, "seed": seed, "role": role, "iteration": k}
        more = {"mean_reward": value * k / 10, "eval_return": value * k / 9, "eval_std": 1.0}
        at = {"env_steps": 1000 * k, "time": float(k), "timestamp": 1000.0 + 10 * trial + k}
        writer.append({**about, **more, **at}, [])


def finish(run: RunDir, seeds: int = 5) -> None:
    """Write what the end of a search writes."""
    scores = {0: 300.0, 2: 320.0, 6: 480.0}
    writer = HistoryWriter(run.path)
    finalists = []
    for (trial, score), origin in zip(
        scores.items(), ("default", "start:0", "sampler"), strict=True
    ):
        values = {100 + k: score + 3 * k for k in range(seeds)}
        for seed, value in values.items():
            add_curve(writer, trial, seed, "test", value, 9000)
        config = {"learning_rate": 0.001 * (1 + trial), "gamma": 0.99}
        finalists.append(
            Finalist(trial=trial, origins=(origin,), config=config, objective=490, seeds=values)
        )
    writer.close()
    answer = build_answer(finalists, Circumstances(full_budget_trials=9))
    assert answer.winner == 6
    run.write_yaml("best/answer.yaml", answer.to_dict())
    run.write_yaml("best/config.yaml", {"gamma": 0.99})
    run.write_text("best/command.txt", "rltune train ppo --env CartPole-v1 -n 9000 --seed 100\n")


def test_the_report_of_a_finished_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path)
    finish(run)
    assert main(["report", str(run.path)]) == 0
    listed = [Path(line) for line in capsys.readouterr().out.split()]
    assert all(file.exists() for file in listed)
    names = {file.stem for file in listed if file.suffix == ".png"}
    assert names == {"history", "test-scores", "learning-curves", "stopping", "slices", "parallel",
                     "contour", "rank", "costs", "timeline", "importances"}  # fmt: skip
    page = (run.path / "report" / "index.html").read_text()
    text = html.unescape(page)
    assert (
        "Use trial 6: it beats the agent's defaults, 486.0 against 306.0 (+180.0, 90 % interval "
        in text
    )
    assert "rltune train ppo --env CartPole-v1 -n 9000 --seed 100" in text
    assert "Above known-good settings 1 it scores with a probability of 100 %" in text
    # Nothing is loaded from elsewhere, and nothing that a run says becomes part of the page.
    ours = page.replace(plotly_code(page), "")
    assert not re.search(r'(src|href)="(?!#)', ours)
    assert "<script>alert" not in ours
    assert "alert(1)" in ours
    assert (run.path / "report" / "importances.parquet").exists()
    summary = (run.path / "report" / "summary.md").read_text()
    assert "| **trial 6** | **the answer** | **486.0** |" in summary
    assert "![The search](history.png)" in summary


def plotly_code(page: str) -> str:
    found = max(re.findall(r"<script>(.*?)</script>", page, re.DOTALL), key=len)
    assert len(found) > 1_000_000
    return found


def test_charts_show_what_the_tables_say(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    finish(run)
    summary = Summary(rltune.open(run.path))
    drawn = {chart.name: chart for chart in charts(summary)}
    trials = summary.trials
    by_label = {series.label: series for series in drawn["history"].panels[0].series}
    for label, state in (("whole budget", "COMPLETE"), ("stopped early", "PRUNED")):
        wanted = trials[trials["state"] == state]
        assert list(by_label[label].x) == list(wanted["trial"])
        assert list(by_label[label].y) == list(wanted["objective"])
    record = by_label["best so far"].y
    assert list(record) == sorted(record)
    assert record[-1] == trials.loc[trials["state"] == "COMPLETE", "objective"].max()

    panels = {panel.title: panel for panel in drawn["slices"].panels}
    assert set(panels) == set(SPACE)
    alphas = [value for series in panels["rms_alpha"].series for value in series.x]
    known = trials[trials["state"] != "FAIL"]["config.rms_alpha"].dropna()
    assert sorted(alphas) == sorted(known)  # inactive ones have no point
    assert panels["optimizer"].x_ticks == {1: "adam", 2: "rmsprop"}
    rates = [value for series in panels["learning_rate"].series for value in series.x]
    assert -3 in [round(rate, 9) for rate in rates]  # the schedule, by what it begins with
    lines = drawn["parallel"].plotly()["data"][0]
    axes = {axis["label"]: axis for axis in lines["dimensions"]}
    assert set(axes) == {"return", *SPACE}
    whole = trials[trials["state"] == "COMPLETE"]
    assert [round(2**place) for place in axes["n_steps"]["values"]] == [*whole["config.n_steps"]]
    assert axes["gamma"]["values"] == pytest.approx(-np.log10(1 - whole["config.gamma"]))
    named = dict(
        zip(axes["learning_rate"]["tickvals"], axes["learning_rate"]["ticktext"], strict=True)
    )
    assert named[-3] == "1e-3"
    without = whole["config.rms_alpha"].isna()
    nowhere = np.array(axes["rms_alpha"]["values"])[without.to_numpy()]
    assert set(nowhere) == {axes["rms_alpha"]["range"][0]}
    pairs = drawn["contour"].plotly()["layout"]
    logarithmic = {axis["title"]["text"] for name, axis in pairs.items()
                   if "axis" in name and axis.get("type") == "log" and "title" in axis}  # fmt: skip
    assert logarithmic == {"1 - gamma", "learning_rate", "n_steps"} & {*drawn["contour"].params}
    assert "24 trials" not in drawn["parallel"].says
    assert f"{(trials['state'] == 'COMPLETE').sum()} trials" in drawn["parallel"].says

    curve = drawn["learning-curves"].panels[0].series[0]
    assert curve.label == "trial 6, 5 seeds"
    assert curve.y[-1] == pytest.approx(486)
    assert curve.low is not None
    assert curve.low[-1] < 486 < curve.high[-1]


def test_a_front_is_drawn_with_its_intervals(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    members = [
        FrontMember(
            trial=trial, origins=("sampler",), config={}, tuning={}, on_front=trial != 6,
            scores={"eval_return": {100: value}, "seconds": {100: seconds}},
            estimates={"eval_return": Estimate(value, value - 9, value + 5),
                       "seconds": Estimate(seconds, seconds, seconds)},
        )
        for trial, value, seconds in ((3, 400.0, 30.0), (6, 200.0, 20.0), (9, 300.0, 10.0))
    ]  # fmt: skip
    goals = (Goal("eval_return", minimize=False), Goal("seconds", minimize=True))
    found = Front(goals=goals, members=tuple(members), tested=True, sentences=("Two lead.",))
    run.write_yaml("best/front.yaml", found.to_dict())
    drawn = {chart.name: chart for chart in charts(Summary(rltune.open(run.path)))}
    beaten, on_it = drawn["front"].panels[0].series
    assert (list(beaten.x), list(beaten.y)) == ([20], [200])
    assert (list(on_it.x), list(on_it.y)) == ([10, 30], [300, 400])
    assert (on_it.low, on_it.high) == ([291, 391], [305, 405])
    page = rltune.report(run.path, pictures=False).read_text()
    assert "Two lead." in page
    assert "391.0 to 405.0" in page


def test_few_seeds_have_no_band(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    finish(run, seeds=3)
    chart = learning_curves(Summary(rltune.open(run.path)))
    assert chart is not None
    assert all(series.low is None for series in chart.panels[0].series)
    assert "few" in chart.says


def test_reports_of_unfinished_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    page = rltune.report(run.path, pictures=False).read_text()
    assert "the best of the search so far" in page
    assert "Test return" not in page
    assert 'id="test-scores"' not in page

    empty = RunDir.create(tmp_path / "empty", SPEC)
    page = rltune.report(empty.path).read_text()
    assert "nothing can be said" in page
    assert "<figure" not in page

    spec = {"agent": "ppo", "env": "CartPole-v1", "seed": 3, "config": {"gamma": 0.9}}
    training = RunDir.create(tmp_path / "training", spec, kind="train")
    writer = HistoryWriter(training.path)
    add_curve(writer, 0, 3, "train", 100.0, 5000)
    writer.close()
    page = rltune.report(training.path).read_text()
    assert 'id="training"' in page
    assert (training.path / "report" / "training.png").exists()


def test_a_mistake_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert main(["report", "latest", "--png"]) == 2
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    assert "'--png'" in errors


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_a_browser_draws_every_figure(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    finish(run)
    page = rltune.report(run.path, pictures=False)
    dom, console = browse(page)
    assert "NaN" not in console
    assert 'data-title="Share chart' not in dom  # it would send the data elsewhere
    assert 'role="img"' not in dom.replace(plotly_code(page.read_text()), "")
    assert dom.count('class="main-svg"') >= len(charts(Summary(rltune.open(run.path))))
    data = json.loads(re.search(r'id="history-data">(.*?)</script>', dom).group(1))  # type: ignore[union-attr]
    assert data["data"][0]["name"] == "stopped early"


def browse(page: Path) -> tuple[str, str]:
    """Return the page's DOM as a browser without a display has made it, and its console."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,9000"]
    command += [
        f"--user-data-dir={page.parent}/browser",
        "--disable-background-networking",
        "--virtual-time-budget=30000",  # a busy machine has drawn nothing yet after 5 s
        "--dump-dom",
        "--enable-logging=stderr",
    ]
    for _ in range(3):
        done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=True)
        if 'class="main-svg"' in done.stdout:
            break
    return done.stdout, done.stderr


def test_no_text_of_a_picture_lies_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    finish(run)
    drawn: dict[str, Any] = {}
    for chart in charts(Summary(rltune.open(run.path))):
        if isinstance(chart, OptunaChart):
            with monkeypatch.context() as patch:
                patch.setattr(optuna_chart, "as_png", lambda figure: drawn.update(
                    {chart.name: texts_of(figure)}) or b"")  # noqa: B023  # fmt: skip
                chart.png()
        else:
            drawn[chart.name] = texts_of(chart._drawn(Figure()))
    assert {"contour", "rank", "parallel", "stopping", "timeline"} <= set(drawn)
    for name, texts in drawn.items():
        for (this, text), (other, beside) in itertools.combinations(texts, 2):
            assert not this.overlaps(other), f"{name}: {text!r} on {beside!r}"


def texts_of(figure: Any) -> list[tuple[Any, str]]:
    """Return the texts of a picture with their boxes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks() if axes.get_visible() else []
            texts += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
    shown = [entry for entry in texts if entry.get_visible() and entry.get_text().strip()]
    upright = [shown_text for shown_text in shown if not shown_text.get_rotation() % 90]
    renderer = canvas.get_renderer()
    return [
        (upright_text.get_window_extent(renderer).shrunk(0.97, 0.9), upright_text.get_text())
        for upright_text in upright
    ]


def test_marks_that_are_close_are_below_each_other() -> None:
    marks = [(100, "3 stopped"), (120, "12 stopped"), (500, "2 stopped"), (510, "4 stopped")]
    panel = Panel("", "", [Series("line", [0, 1000], [0, 1])], marks=marks)
    layout = Chart("one", "", "", [panel]).plotly()["layout"]
    assert [annotation.get("yshift") for annotation in layout["annotations"]] == [0, -12, 0, -12]


def test_bars_do_not_bear_their_hover_texts(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    drawn = {chart.name: chart for chart in charts(Summary(rltune.open(run.path)))}
    bars = drawn["timeline"].plotly()["data"]
    assert {bar["textposition"] for bar in bars} == {"none"}
    assert "on seed 0" in bars[0]["text"][0]


def test_the_timeline_says_how_long_workers_did_not_train(tmp_path: Path) -> None:
    summary = Summary(rltune.open(make_run(tmp_path).path))
    says = {chart.name: chart.says for chart in charts(summary)}["timeline"]
    assert "did not train" not in says  # a history of before
    rows = summary.history.assign(idle_seconds=np.nan, save_seconds=np.nan, make_seconds=np.nan)
    last = rows.index[-1]
    worked = rows.loc[last, "time"] - rows.loc[rows.index[-2], "time"]
    rows.loc[last, ["idle_seconds", "make_seconds", "save_seconds"]] = worked / np.array(
        [4, 10, 20]
    )
    summary.history = rows
    says = {chart.name: chart.says for chart in charts(summary)}["timeline"]
    assert (
        "a worker did not train for 20.0 % of its time: 8.0 % waiting for an answer or the next "
        "trial, 8.0 % making agents, 4.0 % saving checkpoints."
    ) in says


def test_one_value_far_below_does_not_flatten_the_pictures() -> None:
    values = pd.Series([*np.linspace(-200.0, 100.0, 59), -2000.0])
    edge, says = lower_edge(values)
    assert edge is not None
    assert -2000 < edge < -200
    assert says == " 1 trial lies far below the picture, at -2,000."
    panel = Panel("", "", [Series("points", list(range(60)), values.tolist())], y_from=edge)
    chart = Chart("one", "One", "", [panel])
    low, high = chart.plotly()["layout"]["yaxis"]["range"]
    assert -2000 < low < -200
    assert 100 < high < 200
    assert chart.figure().axes[0].get_ylim() == (low, high)
    assert lower_edge(values.iloc[:-1]) == (None, "")
    many = pd.Series([500.0] * 80 + [20.0] * 20)  # a fifth that fails is no exception
    assert lower_edge(many) == (None, "")


@pytest.mark.parametrize(
    ("about", "values", "places", "ticks"),
    [
        ({"pow2": [32, 128]}, [32, 128, 48], [5, 7, math.log2(48)], ["32", "64", "128"]),
        ({"log": [1e-6, 1e-2]}, [1e-6, 1e-2, 0], [-6, -2, -7], ["0", "1e-6", "1e-2"]),
        ({"log": [0.01, 1]}, [0.1, 0.9, 0], [-1, math.log10(0.9), -2], ["0", "1e-1"]),
        ({"uniform": [0, 1]}, [0.0, 1.0], [0.0, 1.0], None),
    ],
)
def test_parameters_lie_on_the_scale_that_they_are_searched_on(
    about: dict[str, Any], values: list[float], places: list[float], ticks: list[str] | None
) -> None:
    placed, axis = parameters._placed(values, about)
    assert placed == pytest.approx(places)
    if ticks is None:
        assert axis == {}
    else:
        assert set(ticks) <= set(axis["x_ticks"].values())
        assert min(axis["x_ticks"]) <= min(placed)
        assert max(placed) <= max(axis["x_ticks"])


def test_what_is_close_to_one_is_spread_out() -> None:
    placed, axis = parameters._placed([0.9, 0.99, 0.9999], {"one_minus_log": [0.9, 0.9999]})
    assert placed == pytest.approx([0.1, 0.01, 0.0001])
    chart = Chart("one", "", "", [Panel("", "", [Series("points", placed, [1, 2, 3])], **axis)])
    x = chart.plotly()["layout"]["xaxis"]
    assert x["autorange"] == "reversed"
    assert x["ticktext"] == ["0.9", "0.99", "0.999", "0.9999"]
    drawn = chart.figure().axes[0]
    assert drawn.xaxis_inverted()
    assert [label.get_text() for label in drawn.get_xticklabels()] == x["ticktext"]
    assert parameters._placed([0.9, 1.0], {"one_minus_log": [0.9, 0.99]}) == ([0.9, 1.0], {})


def test_pairs_of_two_parameters_are_drawn() -> None:
    import optuna
    from rltune.reporting.optuna_chart import OptunaChart

    study = optuna.create_study()
    study.optimize(lambda t: t.suggest_float("a", 0, 1) + t.suggest_float("b", 1, 9, log=True), 8)
    for plot in ("plot_contour", "plot_rank"):
        chart = OptunaChart("pairs", "", "", plot=plot, study=study, params=["a", "b"])
        assert chart.png().startswith(b"\x89PNG")
