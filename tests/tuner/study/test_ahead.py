"""Proposals that are made ahead, and the order of complete trials."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rltune.answer.tournament import pick_finalists
from rltune.samplers.proposer import open_study
from rltune.space.space import Space
from rltune.study.records import StartConfig, quality
from rltune.study.study import SearchStudy

SPACE = Space.from_dict({"space": {"x": {"uniform": [0.0, 1.0]}}})


def make(folder: Path, name: str = "study.db") -> SearchStudy:
    options = {"n_startup_trials": 2}
    return open_study(folder / name, SPACE, sampler="tpe", sampler_options=options)


def end(study: SearchStudy, number: int) -> None:
    study.tell(number, "COMPLETE", study.trials()[number].config["x"])


def test_a_proposal_made_ahead_knows_one_trial_less(tmp_path: Path) -> None:
    study, other = make(tmp_path), make(tmp_path, "other.db")
    for each in (study, other):
        for _ in range(6):
            each.ask()
        for number in range(4):
            end(each, number)
    study.ask_ahead()
    assert len(study.trials()) == 6  # it is nowhere before it is taken
    # Without it, this is what the next trial would be while trial 4 still runs.
    wanted = other.ask()
    end(study, 4)
    taken = study.ask()
    assert wanted is not None
    assert taken == wanted
    # The next one is made with all that is known.
    end(other, 4)
    assert study.ask() == other.ask()


def test_a_proposal_made_ahead_is_dropped_when_two_trials_have_ended(tmp_path: Path) -> None:
    study, other = make(tmp_path), make(tmp_path, "other.db")
    for each in (study, other):
        for _ in range(6):
            each.ask()
        for number in range(4):
            end(each, number)
    study.ask_ahead()
    for each in (study, other):
        end(each, 4)
        end(each, 5)
    assert study.ask() == other.ask()


def test_a_proposal_made_ahead_may_be_refused(tmp_path: Path) -> None:
    study = make(tmp_path)
    study.ask_ahead()
    refused = []

    def accept(config: dict[str, float]) -> bool:
        refused.append(config["x"])
        return len(refused) > 1

    taken = study.ask(accept)
    assert taken is not None
    assert taken.config["x"] == refused[1]


def test_a_start_comes_before_what_was_proposed_ahead(tmp_path: Path) -> None:
    starts = [StartConfig("default", {"x": 0.5})]
    study = open_study(tmp_path / "study.db", SPACE, starts=starts)
    study.ask_ahead()
    asked = study.ask()
    assert asked is not None
    assert asked.origin == "default"


@pytest.mark.parametrize("reopened", [False, True])
def test_the_order_of_complete_trials_is_that_of_all_their_records(
    tmp_path: Path, reopened: bool
) -> None:
    rng = np.random.default_rng(1)
    starts = [StartConfig("default", {"x": 0.5}), StartConfig("start:0", {"x": 0.7})]
    study = open_study(tmp_path / "study.db", SPACE, sampler="random", starts=starts)
    for _ in range(60):
        study.ask()
    for number in rng.permutation(60).tolist():
        state = "COMPLETE" if rng.random() < 0.6 else "PRUNED"
        attrs = {"objective_mean": float(rng.integers(2)), "budget": int(rng.integers(1, 3))}
        study.tell(number, state, float(rng.integers(4)), "stopped", attrs)
    if reopened:
        study.close()
        study = open_study(tmp_path / "study.db", SPACE, sampler="random", starts=starts)
    complete = [trial for trial in study.trials() if trial.state == "COMPLETE"]
    full = [trial for trial in complete if trial.attrs["budget"] == 2]
    full.sort(key=lambda t: quality(t.values or (), t.objective_mean), reverse=True)
    assert study.ties() == [trial for trial in full if trial.value == full[0].value]
    assert study.complete == len(complete)
    assert pick_finalists(study.contenders(5), 5) == pick_finalists(study.trials(), 5)
