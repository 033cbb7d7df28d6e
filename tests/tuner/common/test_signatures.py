"""Signatures and docstrings of the public names, as `help` and editors show them."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields

import rltune
from rltune.agents.loop.controls import Controls
from rltune.common.options import options_of
from rltune.runs.search_options import SearchOptions
from rltune.runs.train_options import TrainOptions


def test_the_package_shows_its_public_names() -> None:
    import rltune.stats.estimates  # a sub-module that is loaded is no public name

    assert dir(rltune) == sorted(rltune.__all__)
    assert dir(rltune.agents) == sorted(rltune.agents.__all__)
    for name in rltune.__all__:
        assert getattr(rltune, name) is not None
    assert not inspect.ismodule(rltune.train)


def test_a_search_shows_its_real_parameters() -> None:
    parameters = inspect.signature(rltune.Search).parameters
    assert options_of(SearchOptions).keys() <= parameters.keys()
    assert not {"defaults", "import_path"} & parameters.keys()
    assert parameters["sampler"].default == SearchOptions.sampler
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())
    shown = pydoc.plain(pydoc.render_doc(rltune.Search))
    assert "**options" not in shown
    assert "test_seeds: 'int' = 5" in shown
    assert "test_seeds: test seeds per finalist (default: 5)" in shown
    assert "tournament: if False, don't train the best trials again on test seeds" in shown


def test_a_resume_shows_what_it_can_change() -> None:
    parameters = inspect.signature(rltune.resume).parameters
    assert set(parameters) == {
        *("path", "screen", "ray_output", "callbacks", "trials", "time_limit", "concurrency"),
        *("address", "device", "gpus_per_trial"),
        *("stop_rules", "test_seeds", "tournament", "report"),
    }
    assert parameters["time_limit"].annotation == "str | float | None"
    assert parameters["test_seeds"].annotation == "int | None"
    assert parameters["test_seeds"].default is None


def test_a_training_shows_its_real_parameters() -> None:
    parameters = inspect.signature(rltune.train).parameters
    controls = {field.name for field in fields(Controls)}
    assert (options_of(TrainOptions).keys() | controls) - {"controls"} <= parameters.keys()
    (rest,) = [p for p in parameters.values() if p.kind is p.VAR_KEYWORD]
    assert rest.name == "hyperparameters"


def test_no_other_public_function_hides_its_parameters() -> None:
    for name in rltune.__all__:
        thing = getattr(rltune, name)
        if inspect.isfunction(thing) and thing is not rltune.train:
            kinds = [p.kind for p in inspect.signature(thing).parameters.values()]
            assert inspect.Parameter.VAR_KEYWORD not in kinds, name
