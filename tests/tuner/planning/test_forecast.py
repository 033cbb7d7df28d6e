"""`rltune plan`: what a search will cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rltune.agents import Agent
from rltune.cli import main
from rltune.planning import forecast
from rltune.planning.forecast import _makespan, _Plays
from rltune.planning.measure import CostMeter, MeasuredCost, Measurement, measure
from rltune.search.search import Search

HERE = Path(__file__).parents[1]
SPACE: dict[str, Any] = {
    "space": {"quality": {"uniform": [0.0, 1.0]}, "sleep": {"choice": [0.0, 0.002, 0.004]}}
}
ARGV = [
    "plan",
    "toy:ToyAgent",
    "--env",
    "toy:ToyEnv",
    "-s",
    "sleep=0.001,0.003",
    "-s",
    "mode=ok",
    "--budget",
    "900",
]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make the toy agent importable."""
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("TOY_FOLDER", str(tmp_path))


def toy_search(**options: Any) -> Search:
    return Search("toy:ToyAgent", "toy:ToyEnv", SPACE, **{"budget": 900, "trials": 9, **options})


class Here:
    """A meter in this process."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.start_up = MeasuredCost(1.0, 1.0)

    def measure(self, config: Mapping[str, Any], seconds: float) -> Measurement:
        return measure(self.spec, config, seconds)

    def libraries(self) -> str:
        return "products equal"

    def close(self) -> None:
        """Nothing."""


def test_a_measurement_foresees_the_whole_trial() -> None:
    search = toy_search(budget=90_000)  # 9,000 updates
    config = {**search.starts[0].config, "sleep": 0.004}
    part = measure(search.spec, config, 0.3)
    assert part.env_steps < 9000
    assert not part.is_whole
    assert part.training.wall > 36
    assert part.training.cpu < part.training.wall / 2  # it sleeps
    # Episodes of ten steps can't grow, but that is not known of an environment without a limit.
    assert part.evaluations.wall < part.longest.wall
    whole = measure(toy_search().spec, {**config, "sleep": 0.0}, 30)
    assert whole.is_whole
    assert whole.longest == whole.evaluations
    assert whole.likely.wall == pytest.approx(whole.training.wall + whole.evaluations.wall)


def test_steps_before_the_first_update_are_cheap() -> None:
    """Half of the trial only collects; the measurement may not wait for its end."""
    search = Search("dqn", "CartPole-v1", budget=40_000, trials=3)
    config = {**search.starts[0].config, "train_freq": 1, "gradient_steps": 1}
    late, soon = (measure(search.spec, {**config, "learning_starts": n}, 0.6) for n in (30_000, 0))
    assert late.env_steps < 30_000
    assert late.training.cpu < 0.6 * soon.training.cpu


def test_a_measurement_foresees_the_size_of_checkpoints(tmp_path: Path) -> None:
    config = {"net_arch": [8], "buffer_size": 4000, "learning_starts": 100, "train_freq": 16}
    search = Search("dqn", "CartPole-v1", budget=800, trials=2, storage_path=tmp_path)
    found = measure(search.spec, config, 0.2)
    agent = Agent("dqn", "CartPole-v1", config, total_timesteps=800)
    agent.learn(800)
    for memory, expected in ((False, found.checkpoint), (True, found.checkpoint + found.replay)):
        agent.save(tmp_path / "agent.pt", memory=memory)
        assert (tmp_path / "agent.pt").stat().st_size == pytest.approx(expected, rel=0.1)


def test_the_played_searches_count_what_is_stopped_and_tested() -> None:
    def play(**options: Any) -> tuple[float, float, float, int]:
        spec = toy_search(**options).spec
        row = np.linspace(1, 9, 9)  # a second for each ninth of the budget
        prices = np.tile(row[None, :, None], (50, 1, 2))
        step = MeasuredCost(0.01, 0.01)
        own = Measurement(900, 0, step, step, MeasuredCost(), MeasuredCost(), 0, 900, True)
        plays = _Plays(spec, [own], [0], prices, 1, MeasuredCost())
        return plays.play(spec.trials or 1, np.random.default_rng(0))

    steps, wall, cpu, runs = play(scheduler="none", finalists=2, test_seeds=3)
    assert runs in (6, 9)  # the default, and the best two, which it may be among
    assert steps == (9 + runs) * 900
    assert cpu == pytest.approx((9 + runs) * 9.0)
    assert wall > cpu
    assert play(scheduler="none", tournament=False)[0] == 9 * 900
    stopped = play(trials=60, tournament=False)[0] / (60 * 900)
    assert 0.2 < stopped < 0.7  # ASHA's survivors
    # A whole budget takes 9 s: after the fifth of nine parts, 5 s are used up.
    unjudged = {"min_population": 1000, "seconds": 5}
    cut = play(trials=60, tournament=False, scheduler_options=unjudged)[0]
    assert cut == 60 * 500


def test_jobs_run_side_by_side() -> None:
    assert _makespan([4.0, 1.0, 1.0, 1.0], 2) == pytest.approx(4, abs=0.5)
    assert _makespan([], 2) == 0


def test_a_plan_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(forecast, "CostMeter", Here)
    plan = [*ARGV, "--trials", "12", "--seconds", "1", "--concurrency", "1"]
    assert main([*plan, "--price-per-hour", "36"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("toy:ToyAgent on toy:ToyEnv: 12 trials of up to 900 env steps")
    assert "faster library: products equal" in lines
    assert any(line.split()[0] == "checkpoints" for line in lines if line.strip())
    (money,) = (line for line in lines if line.strip().startswith("money"))
    assert float(money.split()[1]) > 0
    assert main([*plan, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == 12
    assert found["money"] is None
    for name in ("env_steps", "wall", "cpu"):
        assert 0 < found[name]["low"] <= found[name]["value"] <= found[name]["high"]
    assert not list(HERE.rglob("run.yaml"))  # nothing is written


def test_a_time_limit_says_how_many_trials_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(forecast, "CostMeter", Here)
    plan = [*ARGV, "--seconds", "1", "--concurrency", "1", "--time-limit", "30s", "--json"]
    assert main(plan) == 0
    found = json.loads(capsys.readouterr().out)
    assert 2 < found["trials"] < 1000
    assert found["wall"]["high"] <= 30
    assert main([*plan[:-1], "--budget", "300000", "--time-limit", "4s"]) == 0
    assert "0:04 is too short to train finalists again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--seconds", "0"], "--seconds"), (["--price-per-hour", "-1"], "--price-per-hour")],
)
def test_mistakes_are_one_sentence(
    flags: list[str], words: str, capsys: pytest.CaptureFixture
) -> None:
    assert main([*ARGV, *flags]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_the_measuring_process_answers_and_says_what_fails() -> None:
    search = toy_search()
    meter = CostMeter(search.spec)
    try:
        assert meter.start_up.cpu > 0
        assert "products" in meter.libraries()
        good = meter.measure(search.starts[0].config, 0.5)
        assert good.is_whole
        assert good.memory > 50e6
        with pytest.raises(forecast.UserError, match="the environment broke"):
            meter.measure({**search.starts[0].config, "mode": "raise", "at": 3}, 0.5)
        with pytest.raises(forecast.UserError, match="killed"):
            meter.measure({**search.starts[0].config, "mode": "kill", "at": 3}, 0.5)
    finally:
        meter.close()
