"""Proposals look at what is new: they take as long after thousands of trials as after hundreds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.agents.config import config_hash
from rltune.samplers.proposer import Proposer
from rltune.samplers.views import for_tpe
from rltune.space.space import Space

SPACE = Space.from_dict(
    {"space": {"rate": {"log": [1e-5, 1e-2]}, "width": {"int": [1, 10**9]}}, "fixed": {"n_envs": 8}}
)


class Counted(list[Any]):
    """A list of trials that counts how many are read."""

    read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Any:
        for trial in super().__iter__():
            self.read += 1
            yield trial


def add(trials: Counted, proposer: Proposer, rng: np.random.Generator) -> FrozenTrial:
    """Append a running trial; one in fifty is a start outside of the ranges."""
    number, values = len(trials), SPACE.sample(rng)
    is_start = number % 50 == 0
    if is_start:
        values["rate"] = 0.5
    config = SPACE.resolve(values)
    parameters, distributions = proposer.as_parameters(values)
    trial = create_trial(
        state=TrialState.RUNNING,
        params=parameters,
        distributions=distributions,
        user_attrs={
            "configuration": config,
            "hash": config_hash(config),
            "origin": "start:0" if is_start else "sampler",
        },
    )
    trial.number = number
    trials.append(trial)
    return trial


def end(trial: FrozenTrial, rng: np.random.Generator) -> None:
    """End a trial: most are stopped early, some fail, in part through their configuration."""
    value = round(float(rng.normal()), 1)  # with ties
    chance = rng.random()
    trial.user_attrs["attrs"] = {"seconds": 1.0, "env_steps": 100}
    if chance < 0.1:
        trial.state = TrialState.FAIL
        trial.user_attrs["reason"] = "diverged: nan" if chance < 0.05 else "error: no chance"
        return
    trial.intermediate_values[100] = value
    trial.values = [value]
    trial.state = TrialState.PRUNED if chance < 0.7 else TrialState.COMPLETE


def search(proposer: Proposer, n: int, at_once: int = 4) -> Any:
    """Yield the trials of a study with each new one, ``at_once`` of them running."""
    rng, trials, running = np.random.default_rng(0), Counted(), list[FrozenTrial]()
    for _ in range(n):
        if len(running) == at_once:
            end(running.pop(int(rng.integers(at_once))), rng)
        running.append(add(trials, proposer, rng))
        yield trials


@pytest.mark.parametrize(("sampler", "n"), [("tpe", 900), ("cost-aware", 300)])
def test_a_sampler_sees_what_it_saw_when_all_trials_were_read(sampler: str, n: int) -> None:
    proposer = Proposer(SPACE, sampler, {}, 0, "maximize")
    for number, trials in enumerate(search(proposer, n), 1):
        seen = proposer.known(trials)
        if number % (n // 3):
            continue
        everything = proposer.parameters.inside(trials)
        if sampler == "tpe":
            seen, everything = for_tpe(seen, [False]), for_tpe(everything, [False])
            assert [t.number for t in seen] == [t.number for t in everything]
            assert [t.params for t in seen] == [t.params for t in everything]
            assert [t.state for t in seen] == [t.state for t in everything]
        else:
            draws = [
                next(iter(proposer.sampler.draws(trials, known, 0))).values
                for known in (seen, everything)
            ]
            assert draws[0] == draws[1]


def test_a_proposal_reads_no_more_trials_the_more_there_are() -> None:
    proposer = Proposer(SPACE, "tpe", {}, 0, "maximize")
    read = []
    for trials in search(proposer, 1000):
        before = trials.read
        proposer.known(trials)
        read.append(trials.read - before)
    assert max(read[200:]) <= 20
    for most in (2000, 60):  # the first proposal reads what is kept for the whole study
        trials.read = 0
        assert proposer.propose(trials) is not None
        assert trials.read <= most


def test_another_study_is_read_from_its_beginning() -> None:
    proposer = Proposer(SPACE, "tpe", {}, 0, "maximize")
    for _ in range(2):
        for trials in search(proposer, 30):
            known = proposer.known(trials)
        assert len(known) == 30
        assert [t.number for t in known] == list(range(30))
    # The same study as it was earlier, when some trials still ran (`analysis/replay_sampler.py`).
    assert len(proposer.known(trials[:20])) == 20
