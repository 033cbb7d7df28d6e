from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import AgentConfig, hp, hyperparameters, make_config
from rltune.agents.errors import UserError
from rltune.space.dimensions import Dimension
from rltune.space.space import Space
from rltune.space.yaml_lines import parse_yaml

HP = hyperparameters(PPOConfig)


def space(**parts: Any) -> Space:
    return Space.from_dict({"space": {}, **parts})


# -- an agent's names and types


def test_aliases_become_our_names_everywhere() -> None:
    s = space(
        fixed={"num_envs": 4},
        space={
            "lr": {"log": [1e-5, 1e-2]},
            "num_steps": {"pow2": [32, 64]},
            "minibatch_size": {"pow2": [32, 64], "when": {"num_steps": 64}},
        },
        derived={"update_epochs": "num_steps // num_envs"},
        constraints=["minibatch_size <= num_steps * num_envs"],
        start=[{"lr": 1e-3, "lambda": 0.9}],
    ).checked_against(HP)
    assert list(s.dimensions) == ["learning_rate", "n_steps", "batch_size"]
    assert s.dimensions["batch_size"].name == "batch_size"
    assert s.dimensions["batch_size"].when == {"n_steps": (64,)}
    assert s.fixed == {"n_envs": 4}
    assert s.derived["n_epochs"].text == "n_steps // n_envs"
    assert s.constraints[0].text == "batch_size <= n_steps * n_envs"
    assert s.starts[0].values == {"learning_rate": 1e-3, "gae_lambda": 0.9}
    assert s.checked_against(HP) == s
    assert make_config(PPOConfig, s.resolve(s.sample(np.random.default_rng(0))))


def test_values_get_the_agents_types() -> None:
    s = space(
        fixed={"n_envs": 8.0, "clip_range": 1, "net_arch": "64,64", "optimizer_eps": "1e-5"},
        space={"gamma": {"choice": ["0.9", 1]}},
        start=[{"n_steps": 32.0, "gamma": 1}],
    ).checked_against(HP)
    assert s.fixed == {"n_envs": 8, "clip_range": 1.0, "net_arch": [64, 64], "optimizer_eps": 1e-5}
    assert type(s.fixed["n_envs"]) is int
    assert type(s.fixed["clip_range"]) is float
    assert s.dimensions["gamma"].choices == (0.9, 1.0)
    assert type(s.starts[0].values["n_steps"]) is int


def test_derived_values_that_are_no_hyperparameters_serve_the_others() -> None:
    s = space(
        fixed={"n_envs": 8, "n_steps": 64},
        space={"batch_size": {"pow2": [32, 1024]}},
        derived={
            "rollout": "n_steps * n_envs",
            "half": "rollout / 2",
            "n_epochs": "1 + half // 99",
        },
        constraints=["batch_size <= half"],
    ).checked_against(HP)
    config = s.resolve({"batch_size": 256})
    assert config == {"n_envs": 8, "n_steps": 64, "batch_size": 256, "n_epochs": 3}
    assert s.violations(config) == []
    assert len(s.violations(s.resolve({"batch_size": 512}))) == 1
    assert Space.from_dict(s.to_dict()) == s


MODEL = "[dense] units={} common=1 [dense] output=1 [dense] output=1"


def test_model_files_are_choices_by_their_content(tmp_path: Path) -> None:
    file = tmp_path / "a.cfg"
    file.write_text(MODEL.format(4).replace(" [", "\n["))
    s = space(
        space={
            "model": {"choice": ["", str(file), MODEL.format(5)]},
            "net_arch": {"choice": ["64,64", "32"], "when": {"model": ""}},
        }
    ).checked_against(HP)
    assert s.dimensions["model"].choices == ("", MODEL.format(4), MODEL.format(5))
    assert Space.from_dict(s.to_dict()).checked_against(HP) == s
    rng = np.random.default_rng(0)
    for _ in range(20):
        make_config(PPOConfig, s.resolve(s.sample(rng)))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"space": {"learning_rat": {"log": [1, 2]}}},
            "space.learning_rat: unknown hyperparameter 'learning_rat'; did you mean "
            "'learning_rate'?",
        ),
        (
            {"fixed": {"n_env": 8}},
            "fixed.n_env: unknown hyperparameter 'n_env'; did you mean 'n_en",
        ),
        ({"start": [{"n_env": 8}]}, "start[0].n_env: unknown hyperparameter 'n_env'"),
        (
            {"fixed": {"model": MODEL.format(4)}, "space": {"net_arch": {"choice": ["64", "32"]}}},
            "space.net_arch: model describes the network, so net_arch can't be searched",
        ),
        ({"fixed": {"n_envs": 2.5}}, "fixed.n_envs: n_envs is 2.5, but must be a whole number"),
        ({"fixed": {"optimizer": "adm"}}, "fixed.optimizer: unknown optimizer 'adm'; did you mean"),
        ({"start": [{"gamma": 2}]}, "start[0].gamma: gamma is 2, but must be between 0 and 1"),
        (
            {"space": {"n_epochs": {"uniform": [1, 2]}}},
            "space.n_epochs: n_epochs is a whole number",
        ),
        (
            {"fixed": {"lr": 1e-3}, "space": {"learning_rate": {"log": [1e-5, 1]}}},
            "fixed.learning_rate: learning_rate is searched too",
        ),
        (
            {"fixed": {"lr": 1e-3, "learning_rate": 1e-3}},
            "fixed.learning_rate: lr and learning_rate mean the same hyperparameter; keep one",
        ),
        (
            {"derived": {"bacth_size": "64"}},
            "derived.bacth_size: unknown hyperparameter 'bacth_size'; did you mean 'batch_size'? "
            "(and nothing here uses it)",
        ),
        (
            {"space": {"gamma": {"choice": [0.9, 0.99], "when": {"batch_size": 1}}}},
            "unknown name 'batch_size'",
        ),
    ],
)
def test_what_does_not_suit_the_agent_is_named(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        space(**parts).checked_against(HP)
    assert message in str(caught.value)


def test_errors_against_the_agent_name_the_line_too(tmp_path: Any) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("agent: ppo\nspace:\n  gamma: {uniform: [0.9, 0.99]}\n  gama: {log: [1, 2]}\n")
    with pytest.raises(UserError, match=r"s\.yaml:4: space\.gama: unknown .* mean 'gamma'"):
        Space.load(file).checked_against(HP)


# -- a space from the agent alone


@dataclass(frozen=True, kw_only=True)
class MineConfig(AgentConfig):
    temperature: float = hp(1.0, low=0.1, high=10.0, scale="log", help="t")
    depth: int = hp(2, low=1, high=5, help="d")
    width: int = hp(64, low=8, high=512, scale="pow2", help="w")
    mode: str = hp("a", choices=("a", "b"), help="m")
    debug: bool = hp(False, help="nothing to search")


def test_a_space_from_the_declarations_of_an_agent() -> None:
    known = hyperparameters(MineConfig)
    s = Space.from_hyperparameters(known, "mine:Mine")
    assert s.agent == "mine:Mine"
    assert {n: d.kind for n, d in s.dimensions.items()} == {
        "gamma": "one_minus_log",
        "learning_rate": "log",
        "max_grad_norm": "log",
        "temperature": "log",
        "depth": "int",
        "width": "pow2",
        "mode": "choice",
    }
    assert make_config(MineConfig, s.resolve(s.sample(np.random.default_rng(0))))


def test_the_space_from_ppos_declarations_keeps_batches_below_rollouts() -> None:
    s = Space.from_hyperparameters(HP)
    assert s.fixed == {"n_envs": 8}
    generator = np.random.default_rng(0)
    for _ in range(200):
        config = s.resolve(s.sample(generator))
        assert config["batch_size"] <= config["n_steps"] * config["n_envs"]


# -- the command line

BASE = """
fixed: {n_envs: 8}
space:
  optimizer: {choice: [adam, rmsprop]}
  rms_alpha: {choice: [0.9, 0.99], when: {optimizer: rmsprop}}
  gamma: {uniform: [0.9, 0.99], when: {rms_alpha: [0.99]}}
  n_steps: {pow2: [32, 2048]}
  batch_size: {pow2: [32, 1024]}
derived:
  n_minibatches: n_steps * n_envs // batch_size
  half: rms_alpha / 2
constraints:
  - batch_size <= n_steps * n_envs
  - half < 0.6
start:
  - {name: small, optimizer: rmsprop, rms_alpha: 0.99, n_steps: 32, batch_size: 256}
  - {name: fast, n_steps: 128, batch_size: 512, n_envs: 16}
"""


@pytest.fixture
def base() -> Space:
    return Space.from_dict(parse_yaml(BASE, "base")[0])


def test_fixing_a_dimension_removes_it_and_holds_for_the_starts(base: Space) -> None:
    s = base.with_overrides({"batch_size": 128})
    assert "batch_size" not in s.dimensions
    assert s.fixed == {"n_envs": 8, "batch_size": 128}
    assert s.resolve({"n_steps": 32})["n_minibatches"] == 2
    assert s.violations(s.resolve({"n_steps": 8, "n_envs": 1})) != []
    assert [s.resolve(start.values)["batch_size"] for start in s.starts] == [128, 128]
    assert base.dimensions["batch_size"], "the space itself is unchanged"


def test_starts_that_break_a_constraint_now_are_dropped(base: Space) -> None:
    s = base.with_overrides({"n_steps": 16})
    assert s.starts == ()
    assert [start.name for start in base.with_overrides({"n_envs": 4}).starts] == ["fast"]


def test_fixing_a_parent_drops_what_can_not_be_active_any_more(base: Space) -> None:
    s = base.with_overrides({"optimizer": "adam"})
    assert list(s.dimensions) == ["n_steps", "batch_size"]
    assert list(s.derived) == ["n_minibatches"]
    assert [c.text for c in s.constraints] == ["batch_size <= n_steps * n_envs"]
    assert s.starts[0].values == {"n_steps": 32, "batch_size": 256}
    kept = base.with_overrides({"optimizer": "rmsprop"})
    assert kept.active({}) == ["rms_alpha", "n_steps", "batch_size"]
    assert kept.active({"rms_alpha": 0.99}) == ["rms_alpha", "gamma", "n_steps", "batch_size"]
    for changed in (s, kept):
        assert Space.from_dict(changed.to_dict()) == changed


def test_other_choices_of_a_parent_trim_the_conditions(base: Space) -> None:
    choices = {"choice": ["adam", "sgd"]}
    assert "rms_alpha" not in base.with_overrides({"optimizer": choices}).dimensions
    wider = base.with_overrides({"optimizer": {"choice": ["rmsprop", "sgd"]}})
    assert wider.dimensions["rms_alpha"].when == {"optimizer": ("rmsprop",)}


def test_a_new_range_keeps_place_and_condition(base: Space) -> None:
    new = Dimension("rms_alpha", "one_minus_log", 0.9, 0.999)
    s = base.with_overrides({"rms_alpha": new, "learning_rate": {"log": [1e-5, 1e-2]}})
    named = ["optimizer", "rms_alpha", "n_steps", "batch_size", "learning_rate"]
    assert list(s.dimensions) == named, "gamma asked for a point that no sample hits any more"
    assert s.dimensions["rms_alpha"].kind == "one_minus_log"
    assert s.dimensions["rms_alpha"].when == {"optimizer": ("rmsprop",)}


def test_fixed_and_derived_values_can_be_searched(base: Space) -> None:
    s = base.with_overrides({"n_envs": {"pow2": [1, 16]}, "n_minibatches": {"int": [1, 4]}})
    assert s.fixed == {}
    assert list(s.derived) == ["half"]
    config = s.resolve(s.sample(np.random.default_rng(0)))
    assert config["batch_size"] <= config["n_steps"] * config["n_envs"]


def test_a_wrong_override_is_one_clear_error(base: Space) -> None:
    with pytest.raises(UserError, match="dimensions: gamma: log needs two positive numbers"):
        base.with_overrides({"gamma": {"log": [0, 1]}})
    with pytest.raises(UserError, match="unknown hyperparameter 'gama'; did you mean 'gamma'"):
        base.with_overrides({"gama": 1}).checked_against(HP)
