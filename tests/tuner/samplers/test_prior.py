"""Priors: what a user expects of a dimension is tried early, and forgotten when it misleads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.agents.config import config_hash
from rltune.agents.errors import UserError
from rltune.samplers.prior import prior_of
from rltune.samplers.proposer import Proposer
from rltune.space.space import Space

DIMENSIONS: dict[str, Any] = {
    "learning_rate": {"log": [1e-5, 1e-2], "prior": 1e-3},
    "n_steps": {"pow2": [32, 1024], "prior": 256},
    "optimizer": {"choice": ["adam", "rmsprop"], "prior": "adam"},
    "gamma": {"one_minus_log": [0.9, 0.9999]},
}
EXPECTED = {"learning_rate": 1e-3, "n_steps": 256, "optimizer": "adam"}


def hill(values: dict[str, Any]) -> float:
    """Return a value that is 1 where the priors are, and lower elsewhere."""
    off = (math.log10(values["learning_rate"]) + 3) ** 2 + (math.log2(values["n_steps"]) - 8) ** 2
    return math.exp(-off / 4) - 0.2 * (values["optimizer"] != "adam")


def run(value: Callable[[dict[str, Any]], float], trials: int, sampler: str = "tpe") -> list[Any]:
    """Search, and return the trials."""
    space = Space.from_dict(DIMENSIONS)
    proposer = Proposer(space, sampler, {}, 0, "maximize")
    done: list[FrozenTrial] = []
    for number in range(trials):
        proposal = proposer.propose(done)
        assert proposal is not None
        params, distributions = proposer.as_parameters(proposal.values)
        about = {"configuration": proposal.config, "hash": config_hash(proposal.config)}
        about |= {"origin": "sampler", "proposal": proposal.source}
        trial = create_trial(
            state=TrialState.COMPLETE, value=value(proposal.config), params=params,
            distributions=distributions, user_attrs=about,
        )  # fmt: skip
        trial.number = trial._trial_id = number
        done.append(trial)
    return done


def sources(trials: list[Any]) -> list[str]:
    return [trial.user_attrs["proposal"] for trial in trials]


def test_the_expected_values_are_proposed_first() -> None:
    first, *_ = run(hill, 3)
    config = first.user_attrs["configuration"]
    assert {name: config[name] for name in EXPECTED} == EXPECTED
    assert first.user_attrs["proposal"] == "prior"


def test_a_prior_that_is_right_is_proposed_more_often_than_one_that_misleads() -> None:
    right, wrong = (sources(run(f, 20)) for f in (hill, lambda values: -hill(values)))
    assert wrong.count("prior") <= 3 < right.count("prior")


@pytest.mark.parametrize("sampler", ["random", "gp", "cost-aware"])
def test_every_sampler_heeds_a_prior(sampler: str) -> None:
    assert sources(run(hill, 2, sampler))[0] == "prior"


def test_the_trials_of_a_prior_are_ranked_by_their_distance_from_it() -> None:
    prior = prior_of(Space.from_dict(DIMENSIONS))
    assert prior is not None
    order = sorted(zip(prior.ranks, map(hill, prior.values), strict=True), reverse=True)
    best, worst = ([value for _, value in part] for part in (order[:20], order[-20:]))
    assert max(worst) < min(best)
    assert order[0][1] == pytest.approx(1.0)


def test_a_prior_keeps_to_constraints_and_conditions() -> None:
    data = {
        "space": {
            "n_steps": {"pow2": [32, 1024], "prior": 32},
            "batch_size": {"pow2": [32, 1024], "prior": 1024},
            "optimizer": {"choice": ["adam", "rmsprop"], "prior": "adam"},
            "rms_alpha": {"uniform": [0.9, 0.99], "prior": 0.95, "when": {"optimizer": "rmsprop"}},
        },
        "constraints": ["batch_size <= n_steps"],
    }
    space = Space.from_dict(data)
    assert space.to_dict() == data
    prior = prior_of(space)
    assert prior is not None
    for values in prior.values:
        assert values["batch_size"] <= values["n_steps"]
        assert ("rms_alpha" in values) == (values["optimizer"] == "rmsprop")


def test_without_priors_there_is_none() -> None:
    assert prior_of(Space.from_dict({"gamma": {"uniform": [0.9, 0.99]}})) is None


@pytest.mark.parametrize(
    ("dimension", "said"),
    [
        ({"log": [1e-5, 1e-2], "prior": 1.0}, r"space\.x\.prior: needs the value .* got 1\.0"),
        ({"pow2": [32, 64], "prior": 48}, "needs the value that you expect"),
        ({"choice": ["adam"], "prior": "sgd"}, 'got "sgd"'),
        ({"uniform": [0, 1], "prior": [0.5]}, "needs the value"),
    ],
)
def test_a_prior_outside_of_its_dimension_is_refused(dimension: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Space.from_dict({"space": {"x": dimension}})
