"""The benchmark of actors: its arithmetic, and the simulation against what can be calculated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from scaling import simulation

    return simulation


def costs(simulation: ModuleType, **changes: object) -> object:
    free = simulation.CallCost(0.0, 0.0)
    calls = dict.fromkeys(("insert", "sample", "publish", "newest", "take"), free)
    names = ("update", "update_per_step", "row", "learner_row", "policy", "load", "client")
    none = simulation.Costs(**dict.fromkeys(names, 0.0), insert_per_row=0.0, **calls)
    return replace(none, **changes)


@pytest.mark.parametrize(("kind", "lag"), [("rounds", 0), ("queue", 1), ("replay", 100)])
def test_without_costs_actors_are_as_fast_as_their_environments(
    simulation: ModuleType, kind: str, lag: int
) -> None:
    for actors in (1, 7, 64):
        training = simulation.Training(kind, actors, 0.005, 128, lag)
        result = simulation.Simulation(training, costs(simulation)).run(64.0, 6.4)
        assert result.per_second == pytest.approx(200 * actors, rel=0.02)
        assert result.limit == "actors"


def test_in_lock_step_updates_come_on_top_of_steps(simulation: ModuleType) -> None:
    training = simulation.Training("rounds", 4, 0.005, 100, 0)
    result = simulation.Simulation(training, costs(simulation, update=0.5)).run(100.0, 10.0)
    assert result.per_second == pytest.approx(400 / (0.5 + 0.5), rel=0.02)
    assert result.limit == "waiting"


def test_ahead_of_the_learner_the_slower_side_counts(simulation: ModuleType) -> None:
    training = simulation.Training("queue", 4, 0.005, 100, 1)
    slow = simulation.Simulation(training, costs(simulation, update=1.0)).run(100.0, 10.0)
    assert slow.per_second == pytest.approx(400, rel=0.02)
    assert slow.limit == "learner"
    fast = simulation.Simulation(training, costs(simulation, update=0.3)).run(100.0, 10.0)
    assert fast.per_second == pytest.approx(800, rel=0.02)
    assert fast.limit == "actors"


def test_a_replaying_learner_or_its_server_can_be_the_limit(simulation: ModuleType) -> None:
    training = simulation.Training("replay", 64, 0.001, 4, 100)
    learner = simulation.Simulation(training, costs(simulation, update=0.01)).run(30.0, 5.0)
    assert learner.per_second == pytest.approx(4 / 0.01, rel=0.02)
    assert learner.limit == "learner"
    slow = simulation.CallCost(0.01, 0.0)  # an insert of three rows
    server = simulation.Simulation(training, costs(simulation, insert=slow)).run(30.0, 5.0)
    assert training.rows == 3
    assert server.per_second == pytest.approx(3 / 0.01, rel=0.02)
    assert server.limit == "server"


def test_fragments_and_buffers_are_those_of_the_agent(simulation: ModuleType) -> None:
    from rltune.agents.distributed.agent import DistributedAgent

    seen = {}

    class Fleet:
        def stream(self, spec: object, rows: int) -> None:
            seen["found"] = (spec.error_buffer, rows)  # type: ignore[attr-defined]

    for actors, lag, train_freq in ((1, 100, 1), (4, 100, 4), (64, 100, 1), (3, 7, 5)):
        config = {"n_envs": actors, "max_policy_lag": lag, "train_freq": train_freq}
        agent = DistributedAgent("sac", "Pendulum-v1", config, total_timesteps=1)
        agent._replayed(Fleet(), agent._actor_specs(rates_actions=False) or [None])  # type: ignore[arg-type, list-item]
        training = simulation.Training("replay", actors, 0.001, train_freq, lag)
        assert (training.buffer, training.rows) == seen["found"]
        agent.close()


def test_rows_of_a_quiet_machine_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark_actors

    key = {"what": "steps", "setting": "ppo", "kind": "waiting", "actors": 2}
    rows = [{**key, "shared": shared, "n": n} for n, shared in enumerate((True, False, True))]
    assert [row["n"] for row in benchmark_actors.best(rows)] == [1]
    assert [row["n"] for row in benchmark_actors.best(rows[::2])] == [2]


def test_costs_are_lines_through_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from scaling import tables

    assert tables.line((10, 64), (2.0, 7.4)) == pytest.approx((1.0, 0.1))
    assert tables.line((10, 64), (2.0, 1.0)) == pytest.approx((2 + 10 / 54, 0.0))
