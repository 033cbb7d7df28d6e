"""The registry of schedulers, and what each declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from rltune.agents.errors import UserError
from rltune.objectives.goals import FurtherObjectives, Goal
from rltune.runs.search_spec import SearchSpec
from rltune.schedulers.asha import ASHA
from rltune.schedulers.base import NoScheduler, Scheduler, Setup
from rltune.schedulers.options import SchedulerOption
from rltune.schedulers.pareto_asha import ParetoASHA
from rltune.schedulers.pbt import PBT
from rltune.schedulers.registry import (
    EARLY_STOPPING,
    for_several_objectives,
    is_population,
    make_scheduler,
    rungs_of,
    scheduler_class,
    scheduler_names,
)


class Patient(Scheduler):
    """Stops a trial whose value is below zero after so many env_steps."""

    name = "patient"
    options: ClassVar[Mapping[str, SchedulerOption]] = {
        "patience": SchedulerOption(10, 1, whole=True)
    }

    def __init__(self, patience: int) -> None:
        self.patience = patience

    @classmethod
    def create(cls, setup: Setup) -> Patient:
        return cls(setup.options["patience"])

    def decide(
        self,
        trial: int,
        env_steps: int,
        value: float | None,
        standard_error: float = 0.0,
        training: float | None = None,
    ) -> str:
        return "stop" if value is not None and value < 0 and env_steps > self.patience else "go"


def test_a_new_scheduler_needs_its_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EARLY_STOPPING, Patient.name, f"{__name__}:Patient")
    scheduler = make_scheduler("patient", 100, {"patience": 20})
    assert [scheduler.decide(0, steps, -1.0) for steps in (20, 21)] == ["go", "stop"]
    spec = SearchSpec(agent="a", env="e", space={}, budget=100, scheduler="patient")
    assert rungs_of(spec) == []
    assert not is_population("patient")


class Nameless(Scheduler):
    """Has no name, and decides nothing."""


class Family(PBT):
    """A population of the user's own."""


def test_ones_own_is_named_by_module_and_class() -> None:
    scheduler = make_scheduler(f"{__name__}:Patient", 100, {"patience": 20})
    assert isinstance(scheduler, Patient)
    assert not is_population(f"{__name__}:Patient")
    with pytest.raises(UserError, match="unknown option of scheduler 'patient' 'patients'"):
        make_scheduler(f"{__name__}:Patient", 100, {"patients": 20})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{__name__}:Nameless", "Nameless' lacks decide, name"),
        (f"{__name__}:Mapping", "is not a subclass of rltune.schedulers.base.Scheduler"),
        (f"{__name__}:Family", "trains a population, which pbt and pb2 alone can"),
        ("nowhere:Mine", "scheduler 'nowhere:Mine': there is no module 'nowhere'"),
        ("ashas", "unknown scheduler 'ashas'; did you mean 'asha'"),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        scheduler_class(name)


def test_the_kinds_say_what_they_are() -> None:
    kinds = {name: scheduler_class(name) for name in scheduler_names()}
    assert [kind.name for kind in kinds.values()] == list(kinds)
    assert [name for name in kinds if is_population(name)] == ["pbt", "pb2"]
    assert for_several_objectives() == ["asha", "none"]
    assert not any(map(is_population, ("unknown", None, ["pbt"])))


@pytest.mark.parametrize("name", scheduler_names())
def test_defaults_are_within_their_ranges(name: str) -> None:
    kind = scheduler_class(name)
    given = {option: about.default for option, about in kind.options.items()}
    given = {option: value for option, value in given.items() if value is not None}
    assert kind.checked(given) == kind.checked({})


@pytest.mark.parametrize(
    ("name", "goals", "made"),
    [
        ("asha", [], ASHA),
        ("asha", [Goal("seconds", minimize=True)], ParetoASHA),
        ("none", [Goal("seconds", minimize=True)], NoScheduler),
    ],
)
def test_several_objectives_have_a_class_of_their_own(
    name: str, goals: list[Any], made: type[Scheduler]
) -> None:
    assert type(make_scheduler(name, 900, others=FurtherObjectives(goals))) is made
