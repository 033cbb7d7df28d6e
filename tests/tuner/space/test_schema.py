from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import hyperparameters
from rltune.agents.errors import UserError
from rltune.backends.registry import config_class
from rltune.space.schema import schema_text, space_schema
from rltune.space.space import Space, dimension_from_values, parse_override, shipped_spaces
from rltune.space.yaml_lines import parse_yaml, read_yaml

DOC = Path(__file__).parents[3] / "docs" / "spaces.md"
SHIPPED = shipped_spaces()
HP = hyperparameters(PPOConfig)
VALIDATOR = jsonschema.Draft7Validator(space_schema())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOC.read_text(), re.DOTALL)


def test_the_published_schema_is_current() -> None:
    published = next(iter(SHIPPED.values())).parent / "schema.json"
    assert published.read_text() == schema_text(), "rltune space schema > search_spaces/schema.json"
    jsonschema.Draft7Validator.check_schema(json.loads(published.read_text()))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_fit_the_schema_and_point_to_it(name: str) -> None:
    VALIDATOR.validate(read_yaml(SHIPPED[name])[0])
    first = SHIPPED[name].read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(.+)", first)
    assert match
    assert (SHIPPED[name].parent / match[1]).is_file()


def test_what_spaces_write_fits_the_schema() -> None:
    for file in SHIPPED.values():
        s = Space.load(file)
        known = hyperparameters(config_class(str(s.agent)))
        VALIDATOR.validate(s.checked_against(known).to_dict())
    VALIDATOR.validate(Space.from_hyperparameters(HP).to_dict())


BROKEN: list[dict[str, Any]] = [
    {},
    {"space": []},
    {"space": {}, "budgte": 1},
    {"space": {}, "budget": 0},
    {"space": {}, "budget": "1e5"},
    {"space": {}, "agent": 3},
    {"space": {}, "fixed": 3},
    {"space": {}, "derived": {"a": [1]}},
    {"space": {}, "constraints": "a < b"},
    {"space": {}, "constraints": [3]},
    {"space": {}, "start": {"a": 1}},
    {"space": {}, "start": [{"env": 3}]},
    {"space": {"1x": {"log": [1, 2]}}},
    {"space": {"x": 3}},
    {"space": {"x": {}}},
    {"space": {"x": {"log": [0, 1]}}},
    {"space": {"x": {"log": [1]}}},
    {"space": {"x": {"lgo": [1, 2]}}},
    {"space": {"x": {"log": [1, 2], "uniform": [1, 2]}}},
    {"space": {"x": {"int": [0.5, 2]}}},
    {"space": {"x": {"pow2": [3, 8]}}},
    {"space": {"x": {"one_minus_log": [0.9, 1]}}},
    {"space": {"x": {"choice": []}}},
    {"space": {"x": {"uniform": [1, 2], "step": 1}}},
    {"space": {"x": {"uniform": [1, 2], "when": {}}}},
    {"space": {"learning_rate": {"log": [0, 1]}}},
]


@pytest.mark.parametrize("data", BROKEN, ids=str)
def test_schema_and_reader_refuse_the_same_mistakes(data: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(data)
    if "space" in data:
        with pytest.raises(UserError):
            Space.from_dict(data)


# -- the page about the language


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_space_on_the_page_loads_and_samples(text: str) -> None:
    data, _ = parse_yaml(text, "docs/spaces.md")
    VALIDATOR.validate(data)
    space = Space.from_dict(data).checked_against(HP)
    space.sample(np.random.default_rng(0))


def test_every_flag_on_the_page_is_understood() -> None:
    (text,) = blocks("sh")
    for line in text.splitlines():
        flag, *values = shlex.split(line)
        if flag == "-s":
            parse_override(values[0], HP)
        else:
            dimension_from_values(flag, values, HP)


def test_the_python_on_the_page_runs() -> None:
    (text,) = blocks("python")
    names: dict[str, Any] = {}
    exec(text, names)
    assert list(names["space"].dimensions) == ["learning_rate", "gamma"]


def test_the_messages_on_the_page_are_ours(tmp_path: Path) -> None:
    (text,) = blocks("text")
    example = blocks("yaml")[0].split("\n", 1)[1]  # the lines are counted without the schema's
    for line, (old, new) in zip(
        text.splitlines(),
        [
            ("learning_rate: {log: [1e-5", "learning_rate: {log: [0"),
            ("  optimizer:", "  optimiser:"),
            ("<= n_steps", "<= n_stepz"),
        ],
        strict=True,
    ):
        file = tmp_path / "ppo.yaml"
        file.write_text(example.replace(old, new))
        with pytest.raises(UserError) as caught:
            Space.load(file).checked_against(HP)
        assert str(caught.value) == f"{tmp_path}/{line}"
