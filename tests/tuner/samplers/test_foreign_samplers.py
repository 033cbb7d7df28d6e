"""Samplers of others: any class of Optuna's kind, by module:Class."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import optuna
import pytest
import rltune
from optuna.samplers import BaseSampler, RandomSampler
from rltune.agents.config import config_hash
from rltune.agents.errors import UserError
from rltune.samplers.proposer import Proposer
from rltune.samplers.registry import learns, sampler_class
from rltune.space.space import Space
from searching import search

SPACE = Space.from_dict(
    {
        "agent": "ppo",
        "space": {
            "learning_rate": {"log": [1e-5, 1e-2]},
            "n_epochs": {"int": [1, 10]},
            "optimizer": {"choice": ["adam", "rmsprop"]},
            "rms_alpha": {"uniform": [0.9, 0.999], "when": {"optimizer": "rmsprop"}},
        },
    }
)


class Corner(BaseSampler):
    """Needs the space, as some of OptunaHub's do, and an option; takes no seed."""

    def __init__(self, search_space: dict[str, Any], at: float, *, fails: bool = False) -> None:
        self.space, self.at, self.fails = search_space, at, fails
        self.random = RandomSampler(0)

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        return self.space

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        if self.fails:
            raise RuntimeError("no corner")
        floats = {n: d for n, d in search_space.items() if hasattr(d, "low")}
        return {n: type(d.low)(d.low + self.at * (d.high - d.low)) for n, d in floats.items()}

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        return self.random.sample_independent(study, trial, name, distribution)


class Half(BaseSampler):
    """Lacks what draws alone."""


def proposals(name: str, n: int = 3, seed: int = 0, **options: Any) -> list[dict[str, Any]]:
    proposer = Proposer(SPACE, name, options, seed, "maximize")
    found: list[dict[str, Any]] = []
    trials: list[optuna.trial.FrozenTrial] = []
    for number in range(n):
        proposal = proposer.propose(trials)
        assert proposal is not None
        found.append(proposal.values)
        params, distributions = proposer.as_parameters(proposal.values)
        trial = optuna.trial.create_trial(
            value=float(number), params=params, distributions=distributions,
            user_attrs={"hash": config_hash(proposal.config)},
        )  # fmt: skip
        trial.number = number
        trials.append(trial)
    return found


@pytest.mark.parametrize(
    "name", ["RandomSampler", "TPESampler", "CmaEsSampler", "NSGAIISampler", "QMCSampler"]
)
def test_those_of_optuna_work_by_their_names(name: str) -> None:
    spec = f"optuna.samplers:{name}"
    assert proposals(spec) == proposals(spec)
    assert proposals(spec) != proposals(spec, seed=1)
    assert learns(spec)
    for values in proposals(spec):
        assert 1e-5 <= values["learning_rate"] <= 1e-2
        assert ("rms_alpha" in values) == (values["optimizer"] == "rmsprop")


def test_options_are_its_arguments_and_a_needed_space_is_given() -> None:
    found = proposals(f"{__name__}:Corner", 2, at=0.0)
    # What was refused as known is drawn elsewhere in the end.
    assert found[0]["learning_rate"] == pytest.approx(1e-5)
    assert found[0]["n_epochs"] == 1


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("optuna.samplers:Nope", {}, "unknown sampler in optuna.samplers 'Nope'"),
        ("nowhere:Sampler", {}, "there is no module 'nowhere'"),
        ("optuna:create_study", {}, "is no class below optuna.samplers.BaseSampler or"),
        (f"{__name__}:Half", {}, "lacks infer_relative_search_space, sample_independent, sample_"),
        (f"{__name__}:Corner", {}, "needs at; give it in --sampler-options"),
        ("optuna.samplers:TPESampler", {"n_startup": 3}, "unknown option of sampler.*n_startup"),
        ("optuna.samplers:TPESampler", {"seed": 3}, "unknown option of sampler.*'seed'"),
        ("optuna.samplers:GridSampler", {}, "can't be made: "),
        ("tpe", {"n_startup_trials": float("inf")}, "must be a whole number of at least"),
        ("ptpe", {}, "unknown sampler 'ptpe'; did you mean 'tpe'"),
    ],
)
def test_mistakes_are_said_in_a_sentence(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Proposer(SPACE, name, options, 0, "maximize")


def test_what_it_raises_names_it() -> None:
    with pytest.raises(UserError, match="Corner' has failed: RuntimeError: no corner"):
        proposals(f"{__name__}:Corner", 1, at=0.5, fails=True)
    assert sampler_class(f"{__name__}:Corner").name == f"{__name__}:Corner"


@pytest.mark.usefixtures("no_ray")
def test_a_search_with_one_and_with_a_scheduler_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_scheduler.py").write_text(
        "from rltune.schedulers.base import Scheduler\n\n"
        "class Odd(Scheduler):\n    name = 'odd'\n"
        "    def decide(self, trial, *rest, **more):\n"
        "        return 'stop' if trial % 2 else 'continue'\n"
        "    def reason(self, trial):\n        return 'it is odd'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = {"sampler": "optuna.samplers:CmaEsSampler", "scheduler": "my_scheduler:Odd"}
    result = search(tmp_path, **names, sampler_options={"n_startup_trials": 2}, tournament=False)
    trials = result.trials()
    assert list(trials["state"]) == ["COMPLETE", "PRUNED"] * 3
    assert set(trials["reason"][1::2]) == {"it is odd"}
    with pytest.raises(UserError, match="imports no code that it names"):
        rltune.replay(result.path, "asha")
    resumed = rltune.resume(result.path, trials=7, screen="none")
    assert list(resumed.trials()["state"]) == [*["COMPLETE", "PRUNED"] * 3, "COMPLETE"]


class Counting(RandomSampler):
    """Keeps what it has drawn in itself, and looks at the trial before its own."""

    def __init__(self) -> None:
        super().__init__(0)
        self.drawn = 0

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        assert study.trials[-1].number == trial.number
        assert [t.value for t in study.trials[:-1]] == [float(i) for i in range(trial.number)]
        self.drawn += 1
        return {"n_epochs": self.drawn}


class Seeded(RandomSampler):
    """Tells its seeds."""

    seeds: ClassVar[list[int]] = []

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seeds.append(seed)


def test_a_resumed_search_gives_it_another_seed() -> None:
    name = f"{__name__}:Seeded"
    proposals(name, 3)
    first = Seeded.seeds[-1]  # the one before it was of the check
    proposer = Proposer(SPACE, name, {}, 0, "maximize")
    trials = []
    for number in range(3):
        trial = optuna.trial.create_trial(value=float(number), user_attrs={"hash": str(number)})
        trial.number = number
        trials.append(trial)
    assert proposer.propose(trials) is not None
    assert len(Seeded.seeds) == 4
    assert Seeded.seeds[-1] != first


def test_one_that_keeps_something_in_itself_is_made_once() -> None:
    assert [values["n_epochs"] for values in proposals(f"{__name__}:Counting", 4)] == [1, 2, 3, 4]
