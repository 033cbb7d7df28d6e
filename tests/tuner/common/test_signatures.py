"""What `help` and editors show of the public names."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields

import rltune
from rltune.agents.loop.controls import Controls
from rltune.runs.search_spec import SearchSpec
from rltune.runs.train_spec import TrainSpec


def test_the_package_shows_its_public_names() -> None:
    assert set(rltune.__all__) <= set(dir(rltune))
    for name in rltune.__all__:
        assert getattr(rltune, name) is not None
    assert not inspect.ismodule(rltune.train)


def test_a_search_shows_its_real_parameters() -> None:
    parameters = inspect.signature(rltune.Search).parameters
    assert {one.name for one in fields(SearchSpec)} - {"import_path"} <= set(parameters)
    assert parameters["sampler"].default == SearchSpec.sampler
    assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())
    shown = pydoc.plain(pydoc.render_doc(rltune.Search))
    assert "**options" not in shown
    assert "test_seeds: 'int' = 5" in shown


def test_a_training_shows_its_real_parameters() -> None:
    parameters = inspect.signature(rltune.train).parameters
    named = {one.name for one in (*fields(TrainSpec), *fields(Controls))} - {"controls"}
    assert named <= set(parameters)
    (rest,) = [one for one in parameters.values() if one.kind is one.VAR_KEYWORD]
    assert rest.name == "hyperparameters"


def test_no_other_public_function_hides_its_parameters() -> None:
    for name in rltune.__all__:
        thing = getattr(rltune, name)
        if inspect.isfunction(thing) and thing is not rltune.train:
            kinds = [one.kind for one in inspect.signature(thing).parameters.values()]
            assert inspect.Parameter.VAR_KEYWORD not in kinds, name
