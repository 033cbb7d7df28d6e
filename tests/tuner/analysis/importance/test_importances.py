"""Hyperparameter importances: known indices, dummies, conditions, budgets, seeds, few trials."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rltune
import yaml
from rich.console import Console
from rltune.agents.errors import UserError
from rltune.analysis.importance.design import read_factors
from rltune.analysis.importance.fanova import Design, DesignColumn, Forest, effect
from rltune.analysis.importance.importances import COLUMNS, MIN_TRIALS, needs
from rltune.analysis.importance.rows import Importance, percentile_interval
from rltune.analysis.importance.shuffled_trials import ShuffledTrials
from rltune.analysis.importance.text import show_importances
from rltune.cli import main
from rltune.results import Run
from rltune.runs.directory import RunDir
from rltune.runs.trials_table import write_trials

Config = dict[str, Any]
NUMBERS = {f"x{i}": {"uniform": [0.0, 1.0]} for i in range(4)}
SWITCH = {
    "optimizer": {"choice": ["adam", "rmsprop"]},
    "alpha": {"uniform": [0.0, 1.0], "when": {"optimizer": "rmsprop"}},
    "x0": {"uniform": [0.0, 1.0]},
}


def search(
    folder: Path,
    space: Config,
    value: Callable[[Config, np.random.Generator], float],
    trials: int = 80,
    seed: int = 0,
    failed: int = 0,
    **more: Callable[[Config, np.random.Generator], Any],
) -> Run:
    """Return a search with random trials; ``more`` gives further cells of its row.

    The first ``failed`` ones failed.
    """
    full = {"space": space}
    spec = {"agent": "ppo", "env": "CartPole-v1", "space": full, "sampler": "random"}
    run = RunDir.create(folder, spec, exist_error=False)
    rng = np.random.default_rng(seed)
    sampled = rltune.Space.from_dict(full)
    rows = []
    for number in range(trials):
        config = sampled.sample(rng)
        row = {"trial": number, "state": "COMPLETE", "rung": 1000}
        row |= {name: cell(config, rng) for name, cell in more.items()}
        # A run keeps the agent's default of an inactive hyperparameter, too.
        cells = {f"config.{name}": config.get(name, 0.99) for name in space}
        row["objective"] = value({**config, **row}, rng)
        if number < failed:
            row |= {"state": "FAIL", "objective": None}
        rows.append({**row, **cells})
    write_trials(run.trials_path, rows)
    return Run(run)


def table(frame: pd.DataFrame, method: str = "fanova") -> pd.DataFrame:
    return frame[frame["method"] == method].set_index("parameter")


def line(config: Config, rng: np.random.Generator) -> float:
    return float(2 * config["x0"] + config["x1"] + 0.3 * rng.normal())


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, pd.DataFrame]:
    run = search(tmp_path_factory.mktemp("runs") / "linear", NUMBERS, line)
    return run, rltune.importances(run)


def test_what_matters_is_above_its_floor_in_every_method(
    linear: tuple[Run, pd.DataFrame],
) -> None:
    frame = linear[1]
    assert tuple(frame.columns) == COLUMNS
    for method in ("fanova", "ped-anova", "permutation"):
        rows = table(frame, method)
        assert not rows.loc["x0", "is_noise"]
        assert rows.loc["x0", "importance"] > rows.loc[["x2", "x3"], "importance"].max()
        assert ((rows["low"] >= 0) & (rows["low"] <= rows["importance"] + 1e-9)).all()
        assert (rows["high"] <= 1).all()
    fanova = table(frame)
    total = 4 / 12 + 1 / 12 + 0.09
    assert fanova.loc["x0", "low"] < 4 / 12 / total < fanova.loc["x0", "high"]
    assert fanova.loc["x1", "low"] < 1 / 12 / total < fanova.loc["x1", "high"]


def test_the_same_search_gives_the_same_table(linear: tuple[Run, pd.DataFrame]) -> None:
    run, frame = linear
    again = rltune.importances(run, ("ped-anova",))
    first = frame[frame["method"] == "ped-anova"].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, again)
    factors = read_factors(run)
    shares = [ShuffledTrials(factors, samples=9, seed=0).fanova(0)[1].tolist() for _ in range(2)]
    assert shares[0] == shares[1]


def test_intervals_hold_the_true_indices_of_the_ishigami_function() -> None:
    first, second = 0.5 * (1 + 0.1 * math.pi**4 / 5) ** 2, 49 / 8
    truth = np.array([first, second, 0, 0]) / (first + second + 0.01 * math.pi**8 * 8 / 225)
    columns = tuple(DesignColumn(name, np.linspace(0, 1, 65)) for name in "abcd")
    held, shares, forests = [], [], []
    for seed in range(12):
        x = np.random.default_rng(seed).random((100, 4))
        a, b, c, _ = (math.pi * (2 * x - 1)).T
        y = np.sin(a) + 7 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a)
        analysis = analyse(Design(columns, x, y, np.ones_like(x, dtype=np.bool_)), seed)
        found = [analysis.fanova(i) for i in range(4)]
        ends = [percentile_interval(samples) for _, samples in found]
        held += [low <= own <= high for (low, high), own in zip(ends, truth, strict=True)]
        shares.append([share for share, _ in found])
        forests.append([analysis.plain(i) for i in range(4)])
    assert np.mean(held) >= 0.9
    np.testing.assert_allclose(np.mean(shares, axis=0), truth, atol=0.08)
    # The forest alone takes most of the second one's share away; this is what is mended.
    assert np.mean(forests, axis=0)[1] < truth[1] - 0.15


def analyse(design: Design, seed: int) -> ShuffledTrials:
    from rltune.analysis.importance.design import Factors

    return ShuffledTrials(Factors(design, None, [], 1.0, []), samples=300, seed=seed)


def test_a_pair_that_matters_only_together_is_found() -> None:
    """Neither has an effect alone; a dummy's pairs stay below their floors."""
    columns = tuple(DesignColumn(name, np.linspace(0, 1, 65)) for name in ("a", "b", "dummy"))
    rng = np.random.default_rng(1)
    x = rng.random((150, 3))
    y = 4 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5) + 0.1 * rng.normal(size=150)
    rows = analyse(Design(columns, x, y, np.ones_like(x, dtype=np.bool_)), 0).rows("fanova")
    pairs = {row.parameter: row for row in rows if row.kind == "pair"}
    assert not pairs["a x b"].is_noise
    share = (4 / 12) ** 2 / ((4 / 12) ** 2 + 0.01)
    assert pairs["a x b"].low < share < pairs["a x b"].high + 0.1
    assert pairs["a x dummy"].is_noise
    assert pairs["b x dummy"].is_noise


def test_the_marginal_of_the_forest_is_exact() -> None:
    """The boxes give what brute force on a fine grid of the space gives."""
    rng = np.random.default_rng(0)
    x = rng.random((60, 2))
    columns = (
        DesignColumn("a", np.linspace(0, 1, 65)),
        DesignColumn("b", np.array([0, 0.25, 1]), "levels"),
    )
    forest = Forest(Design(columns, x, x[:, 0] * x[:, 1], np.ones_like(x, dtype=np.bool_)), 0)
    grid = (np.arange(640) + 0.5) / 640
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    said = np.mean([tree.predict(points.astype(np.float32)) for tree in forest._trees], axis=0)
    waves = columns[0].waves[columns[0].cells(points[:, 0]), :8]
    np.testing.assert_allclose(forest.marginal((0,), 8), (said * waves).mean(axis=0), atol=2e-3)
    both = waves[:, :3, None] * columns[1].waves[columns[1].cells(points[:, 1])][:, None, :3]
    expected = (said[:, :, None] * both).mean(axis=0).ravel()
    np.testing.assert_allclose(forest.marginal((0, 1), 3), expected, atol=2e-3)


def test_dummies_are_noise() -> None:
    """30 shuffles: a dummy is above its floor in one of 31 searches."""
    columns = tuple(DesignColumn(f"x{i}", np.linspace(0, 1, 65)) for i in range(5))
    above = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x = rng.random((40, 5))
        design = Design(columns, x, 2 * x[:, 0] + rng.normal(size=40) / 3, x >= 0)
        rows = {row.parameter: row for row in analyse(design, seed).rows("fanova")}
        assert not rows["x0"].is_noise
        above += [not rows[f"x{i}"].is_noise for i in range(1, 5)]
    assert sum(above) <= 1  # of 8; more of them in 1 of 39 such tests


def test_a_conditional_parameter_is_judged_where_it_is_active(tmp_path: Path) -> None:
    def value(config: Config, rng: np.random.Generator) -> float:
        own = 3 * config["alpha"] if "alpha" in config else 0.0
        return float(own + 0.3 * rng.normal())

    rows = table(rltune.importances(search(tmp_path / "a", SWITCH, value), ("fanova",)))
    optimizer, alpha, noise = 1.5**2 / 4, 9 / 12 / 2, 0.09
    total = optimizer + alpha + noise
    assert 25 < rows.loc["alpha", "trials"] < 55
    assert not rows.loc["alpha", "is_noise"]
    assert rows.loc["alpha", "low"] < alpha / total < rows.loc["alpha", "high"]
    assert rows.loc["optimizer", "low"] < optimizer / total < rows.loc["optimizer", "high"]
    assert not any("alpha" in name and "optimizer" in name for name in rows.index)


def test_one_trial_far_below_does_not_drown_the_rest(tmp_path: Path) -> None:
    def value(config: Config, rng: np.random.Generator) -> float:
        return line(config, rng) - 500.0 * (config["trial"] == 40)

    run = search(tmp_path / "a", NUMBERS, value)
    factors = read_factors(run)
    assert factors.design.y.min() > -10
    assert any("1 trial far below all others counts as" in note for note in factors.notes)
    rows = table(rltune.importances(run, ("fanova",)))
    assert not rows.loc["x0", "is_noise"]
    assert rows.loc["x0", "importance"] > rows.loc[["x2", "x3"], "importance"].max()


def test_a_condition_that_matters_lends_nothing_to_its_parameter(tmp_path: Path) -> None:
    def value(config: Config, rng: np.random.Generator) -> float:
        return float(2 * (config["optimizer"] == "rmsprop") + 0.3 * rng.normal())

    rows = table(rltune.importances(search(tmp_path / "a", SWITCH, value), ("fanova",)))
    assert rows.loc["optimizer", "importance"] > 0.7
    assert rows.loc["alpha", "is_noise"]
    assert rows.loc["alpha", "importance"] < 0.1


def test_the_budget_is_no_parameter(tmp_path: Path) -> None:
    """A return that is due to a longer training counts for no hyperparameter."""

    def value(config: Config, rng: np.random.Generator) -> float:
        return math.log10(config["rung"]) + config["x0"] + 0.1 * rng.normal()

    stopped = {
        "rung": lambda config, rng: int(rng.choice([100, 1000, 10_000])),
        "state": lambda config, rng: "PRUNED" if rng.random() < 0.7 else "COMPLETE",
    }
    run = search(tmp_path / "a", NUMBERS, value, **stopped)
    frame = rltune.importances(run, ("fanova", "permutation"))
    assert set(frame["trials"]) == {80}
    for method in ("fanova", "permutation"):
        rows = table(frame, method)
        assert sorted(rows.index) == sorted(NUMBERS)
        assert not rows.loc["x0", "is_noise"]
        assert rows.loc["x0", "importance"] > 0.6  # 0.89; with the budget it were 0.11


def test_the_screen_cuts_no_name(linear: tuple[Run, pd.DataFrame]) -> None:
    long = {"x0": "normalize_observations", "x1": "normalize_rewards", "x2": "optimizer"}
    frame = linear[1].copy()
    frame["parameter"] = frame["parameter"].replace(long, regex=True)
    frame.attrs = linear[1].attrs
    for width in (80, 100, 120):
        console = Console(file=io.StringIO(), width=width)
        show_importances(linear[0], frame, console=console)
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
        for name in ("normalize_observations", "normalize_rewards", "optimizer"):
            assert any(name in line.split() and "%" in line for line in lines)
        assert "  optimizer x x3 " in console.file.getvalue() or width == 80


def test_the_table_says_how_many_trials_it_takes(linear: tuple[Run, pd.DataFrame]) -> None:
    """Floors fall as trials grow in number: a share of 5 % takes as many times more."""
    row = Importance("fanova", "x", "parameter", 0.02, 0.0, 0.1, 0.1, True, 60)
    assert needs([row], 60) == (
        "60 trials can't tell which parameters matter. With 60 trials, a share of about 20 % is "
        "found nine times in ten; for one of 5 % it takes about 240."
    )
    sure = replace(row, importance=0.5, floor=0.02, is_noise=False)
    assert needs([sure], 200) == "With 200 trials, a share of about 4 % is found nine times in ten."
    assert "About 60 trials" in needs([], 12)
    assert linear[1].attrs["needs"].startswith("With 80 trials, ")


def test_who_failed_through_its_configuration_is_the_worst(tmp_path: Path) -> None:
    reasons = iter(["diverged: loss"] * 5 + ["lost: machine"] * 3 + [""] * 22)
    run = search(
        tmp_path / "a", NUMBERS, line, trials=30, failed=8, reason=lambda c, r: next(reasons)
    )
    factors = read_factors(run)
    assert len(factors.design.y) == 27
    assert (factors.design.y == factors.design.y.min()).sum() == 6
    assert "5 trials failed through their configuration" in factors.notes[0]
    assert factors.notes[1] == "3 failed trials left out."


def test_few_trials_claim_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = search(tmp_path / "few", NUMBERS, line, trials=MIN_TRIALS - 1)
    frame = rltune.importances(run)
    assert frame["is_noise"].all()
    assert frame["importance"].isna().all()
    assert len(frame) == 3 * 4
    assert main(["importances", str(run.path)]) == 0
    assert "Nothing is claimed: 19 trials with a value" in " ".join(capsys.readouterr().out.split())


def test_fixed_and_constant_parameters_have_no_row(tmp_path: Path) -> None:
    space = {**NUMBERS, "only": {"choice": ["one"]}}
    frame = rltune.importances(search(tmp_path / "a", space, line), ("ped-anova",), samples=20)
    rows = table(frame, "ped-anova")
    assert sorted(rows.index) == sorted(NUMBERS)


def test_equal_values_claim_nothing(tmp_path: Path) -> None:
    frame = rltune.importances(search(tmp_path / "a", NUMBERS, lambda config, rng: 1.0))
    assert frame["is_noise"].all()
    assert frame.attrs["notes"][-1] == "Nothing is claimed: all values are the same."


def test_the_share_of_the_seed_comes_from_trials_with_several_seeds(tmp_path: Path) -> None:
    """Two seeds of variance 1 leave half of it in a trial's mean."""

    def seeds(config: Config, rng: np.random.Generator) -> list[float]:
        return [float(4 * config["x0"] + rng.normal()) for _ in range(2)]

    run = search(
        tmp_path / "a",
        NUMBERS,
        lambda config, rng: float(np.mean(config["seed_objectives"])),
        seeds=lambda config, rng: [0, 1],
        seed_objectives=seeds,
    )
    row = table(rltune.importances(run, ("fanova",))).loc["seed"]
    truth = 0.5 / (0.5 + 16 / 12)
    assert row["kind"] == "seed"
    assert row["low"] < truth < row["high"]
    assert abs(row["importance"] - truth) < 0.1


def test_the_share_of_the_seed_comes_from_the_tournament_or_is_unknown(
    linear: tuple[Run, pd.DataFrame], tmp_path: Path
) -> None:
    assert "The seed's share is not known" in linear[1].attrs["notes"][-1]
    run = search(tmp_path / "a", NUMBERS, line)
    scores = [{"scores": {100: 1.0, 101: 1.6, 102: 1.3}}, {"scores": {100: 1.1, 101: 0.7}}]
    run.rundir.write_text("best/answer.yaml", yaml.safe_dump({"ranking": scores}))
    frame = rltune.importances(run, ("fanova",))
    row = table(frame).loc["seed"]
    total = 4 / 12 + 1 / 12 + 0.09
    assert row["importance"] == pytest.approx((0.18 + 0.08) / 3 / total, rel=0.4)
    assert row["trials"] == 2


def test_the_command_writes_and_prints(
    linear: tuple[Run, pd.DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    run = linear[0]
    assert main(["importances", str(run.path), "--method", "ped-anova", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["trials"] == 80
    assert {row["method"] for row in data["importances"]} == {"ped-anova"}
    written = pd.read_parquet(run.path / "report" / "importances.parquet")
    assert tuple(written.columns) == COLUMNS
    assert len(pd.read_csv(run.path / "report" / "importances.csv")) == len(written) == 4
    console = Console(file=io.StringIO(), width=100)
    show_importances(run, linear[1], console=console)
    text = console.file.getvalue()
    assert "fANOVA" in text
    assert "PED-ANOVA" in text
    assert "noise up to" in text


def test_mistakes_are_one_sentence(
    linear: tuple[Run, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["importances", str(linear[0].path), "--method", "shap"]) == 2
    assert "unknown method 'shap'" in capsys.readouterr().err
    RunDir.create(tmp_path / "training", {"agent": "ppo"}, kind="train")
    with pytest.raises(UserError, match="only a search has importances"):
        rltune.importances(tmp_path / "training")


def test_shuffling_keeps_the_inactive_ones_where_they_are() -> None:
    x = np.random.default_rng(0).random((50, 1))
    active = x > 0.5
    design = Design((DesignColumn("a", np.linspace(0, 1, 65)),), x, x[:, 0], active)
    shuffled = design.shuffled([0], np.random.default_rng(0))
    assert (shuffled.x[~active[:, 0]] == x[~active[:, 0]]).all()
    assert (shuffled.x[active[:, 0]] != x[active[:, 0]]).any()
    assert sorted(shuffled.x[:, 0]) == sorted(x[:, 0])


def test_effects_are_without_bias_when_nothing_matters() -> None:
    columns = tuple(DesignColumn(f"x{i}", np.linspace(0, 1, 65)) for i in range(3))
    shares = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        x, y = rng.random((60, 3)), rng.normal(size=60)
        forest = Forest(Design(columns, x, y, np.ones_like(x, dtype=np.bool_)), seed)
        shares += [effect(forest, i).variance for i in range(3)]
    assert abs(np.mean(shares)) < 3 * np.std(shares) / math.sqrt(len(shares))
    assert np.min(shares) < 0


def test_reading_a_run_needs_no_forest() -> None:
    code = "import sys, rltune.cli; rltune.cli.make_parser(); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
