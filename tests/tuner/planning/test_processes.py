from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from rltune.agents.errors import UserError
from rltune.runs.search_spec import SearchSpec
from rltune.search.search import Search


def search(tmp_path: Path, space: dict[str, Any], **options: Any) -> Search:
    return Search(
        "ppo", "CartPole-v1", space=space, trials=2, budget=1000, storage_path=tmp_path, **options
    )


RATE = {"learning_rate": {"log": [1e-4, 1e-3]}}


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


@pytest.mark.parametrize(
    ("space", "cpus"),
    [
        ({"space": RATE}, 1),
        ({"space": RATE, "fixed": {"n_learners": 2}}, 2),
        ({"space": {**RATE, "n_learners": {"choice": [1, 3]}}}, 3),
        ({"space": {**RATE, "n_learners": {"int": [1, 4]}}}, 4),
        ({"space": RATE, "derived": {"n_learners": "1 + (n_envs > 0)"}}, 2),
    ],
)
def test_a_trial_has_a_cpu_for_each_of_its_processes(
    tmp_path: Path, space: dict[str, Any], cpus: int
) -> None:
    found = search(tmp_path, space)
    assert found.spec.cpus_per_trial == cpus
    notes = [note for note in found.notes if "CPUs" in note]
    expected = [f"each trial has {cpus} CPUs: n_learners {cpus}"] if cpus > 1 else []
    assert notes == expected


@pytest.mark.parametrize(
    ("fixed", "options", "cpus", "actors"),
    [
        ({"num_actors": 2, "n_envs": 2}, {}, 3, 2),
        ({"num_actors": 2, "n_envs": 2}, {"cpus_per_actor": 0.5}, 2, 2),
        ({"num_actors": 1, "n_learners": 2}, {}, 3, 1),
        ({"num_actors": 1}, {"cpus_per_actor": 0.25}, 2, 1),
    ],
)
def test_a_trial_has_cpus_for_its_actors(
    tmp_path: Path, fixed: dict[str, int], options: dict[str, float], cpus: int, actors: int
) -> None:
    found = search(tmp_path, {"space": RATE, "fixed": fixed}, **options).spec
    assert (found.cpus_per_trial, found.actors_per_trial) == (cpus, actors)
    assert SearchSpec.from_dict(found.to_dict()) == found


def test_more_actors_than_cpus(tmp_path: Path) -> None:
    said = r"num_actors 8 needs 9 CPUs, but there are 4 here; lower it, give --cpus-per-actor 0\.5"
    with pytest.raises(UserError, match=said):
        search(tmp_path, {"space": RATE, "fixed": {"num_actors": 8, "n_envs": 8}})


def test_more_cpus_are_left_as_they_are(tmp_path: Path) -> None:
    space = {"space": RATE, "fixed": {"n_learners": 2}}
    found = search(tmp_path, space, cpus_per_trial=3)
    assert found.spec.cpus_per_trial == 3
    assert found.spec.gpus_per_trial == 0
    assert not any("CPUs" in note for note in found.notes)


def test_more_processes_than_cpus(tmp_path: Path) -> None:
    said = "a trial of n_learners 5 needs 5 CPUs, but there are 4 here; lower it, or name a cluster"
    with pytest.raises(UserError, match=said):
        search(tmp_path, {"space": RATE, "fixed": {"n_learners": 5}})
    space = {"space": RATE, "fixed": {"n_learners": 5}}
    elsewhere = search(tmp_path, space, address="ray://there:10001", gpus_per_trial=1)
    assert elsewhere.spec.cpus_per_trial == elsewhere.spec.gpus_per_trial == 5
    assert "each trial has 5 CPUs and 5 GPUs: n_learners 5" in elsewhere.notes
