from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import config_hash, hyperparameters, make_config
from rltune.agents.errors import UserError
from rltune.backends import registry
from rltune.space.space import Dimension, Space, shipped_spaces

from tests.parameters import quick

# A busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

DESIGN = """\
agent: ppo
env: CartPole-v1                 # --env overrides
budget: 1e5
fixed: {n_envs: 8}
space:
  learning_rate: {log: [1e-5, 1e-2]}
  gamma: {one_minus_log: [0.9, 0.9999]}
  n_steps: {pow2: [32, 2048]}
  batch_size: {pow2: [32, 1024]}
  n_epochs: {int: [1, 20]}
  vf_coef: {uniform: [0.1, 1.0]}
  optimizer: {choice: [adam, rmsprop]}
  rms_alpha: {uniform: [0.9, 0.999], when: {optimizer: rmsprop}}
derived:
  n_minibatches: n_steps * n_envs // batch_size
constraints:
  - batch_size <= n_steps * n_envs
start:
  - {learning_rate: 1e-3, gamma: 0.98, n_steps: 32, batch_size: 256}
"""


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def space(**parts: Any) -> Space:
    return Space.from_dict({"space": {}, **parts})


@pytest.fixture
def design(tmp_path: Path) -> Space:
    file = tmp_path / "design.yaml"
    file.write_text(DESIGN)
    return Space.load(file)


# -- configurations


def test_the_space_of_the_design(design: Space) -> None:
    assert (design.agent, design.env, design.budget) == ("ppo", "CartPole-v1", 100_000)
    assert list(design.dimensions)[:2] == ["learning_rate", "gamma"]
    for seed in range(200):
        values = design.sample(rng(seed))
        config = design.resolve(values)
        assert design.contains(values)
        assert config["n_envs"] == 8
        assert config["batch_size"] <= config["n_steps"] * 8
        assert config["n_minibatches"] == config["n_steps"] * 8 // config["batch_size"]
        assert ("rms_alpha" in config) == (config["optimizer"] == "rmsprop")
        assert make_config(PPOConfig, config)


def test_the_same_values_give_the_same_configuration_in_any_order(design: Space) -> None:
    values = design.sample(rng())
    turned = dict(reversed(values.items()))
    assert design.resolve(turned) == design.resolve(values)
    assert config_hash(design.resolve(turned)) == config_hash(design.resolve(values))
    assert design.resolve(design.resolve(values)) == design.resolve(values)


def test_violations_show_the_values(design: Space) -> None:
    config = design.resolve({"n_steps": 32, "batch_size": 512})
    assert design.violations(config) == [
        "batch_size <= n_steps * n_envs (batch_size=512, n_envs=8, n_steps=32)"
    ]
    assert design.violations({**config, "batch_size": 256}) == []


def test_a_constraint_on_an_inactive_name_holds() -> None:
    s = space(
        space={
            "optimizer": {"choice": ["adam", "rmsprop"]},
            "alpha": {"uniform": [0, 1], "when": {"optimizer": "rmsprop"}},
        },
        constraints=["alpha < 0.5"],
    )
    assert s.violations(s.resolve({"optimizer": "adam"})) == []
    assert s.violations(s.resolve({"optimizer": "rmsprop", "alpha": 0.7})) != []
    assert s.resolve({"optimizer": "adam", "alpha": 0.7}) == {"optimizer": "adam"}


CHAIN = {
    # Written child first: the order of a file is free.
    "c": {"choice": [1, 2], "when": {"b": "on", "k": [1, 2]}},
    "b": {"choice": ["on", "off"], "when": {"a": [1, 2]}},
    "a": {"int": [0, 3]},
}


def test_conditions_on_conditional_dimensions() -> None:
    s = space(fixed={"k": 2}, space=CHAIN)
    assert s.active({"a": 1, "b": "on"}) == ["c", "b", "a"]
    assert s.active({"a": 1, "b": "off"}) == ["b", "a"]
    assert s.active({"a": 0, "b": "on", "c": 1}) == ["a"]
    assert s.resolve({"a": 0, "b": "on", "c": 1}) == {"k": 2, "a": 0}
    seen = {tuple(s.sample(rng(seed))) for seed in range(100)}
    assert seen == {("a",), ("b", "a"), ("c", "b", "a")}
    assert not s.contains({"a": 1})
    assert not s.contains({"a": 0, "b": "on"})
    assert space(fixed={"k": 3}, space=CHAIN).active({"a": 1, "b": "on"}) == ["b", "a"]


def test_parents_are_drawn_first() -> None:
    drawn: list[str] = []

    def draw(dimension: Dimension) -> Any:
        drawn.append(dimension.name)
        return {"a": 2, "b": "on", "c": 1}[dimension.name]

    values = space(fixed={"k": 1}, space=CHAIN).suggest(draw)
    assert drawn == ["a", "b", "c"]
    assert list(values) == ["c", "b", "a"]


def test_derived_values_may_depend_on_each_other_in_any_order() -> None:
    s = space(fixed={"a": 3}, derived={"z": "y + 1", "y": "a * 2", "w": 7}, constraints=["z == 7"])
    assert s.resolve({}) == {"a": 3, "z": 7, "y": 6, "w": 7}
    assert s.violations({"a": 3}) == []
    assert s.violations({"a": 4}) == ["z == 7 (z=9)"]


def test_constraints_that_leave_nothing_are_an_error_not_a_hang() -> None:
    s = space(space={"x": {"uniform": [0, 1]}}, constraints=["x > 2"])
    with pytest.raises(UserError, match=r"none of 10,000 samples .* x > 2 \(x=0\.\d+\)"):
        s.sample(rng())


def test_a_derived_value_that_fails_says_so() -> None:
    s = space(space={"x": {"int": [0, 1]}}, derived={"y": "1 // x"})
    with pytest.raises(UserError, match=r"1 // x \(x=0\): division by zero"):
        s.resolve({"x": 0})


def test_starts_may_leave_the_ranges_and_belong_to_environments() -> None:
    s = space(
        fixed={"n_envs": 8},
        space={"learning_rate": {"log": [1e-5, 1e-2]}},
        start=[
            {"learning_rate": "lin_1e-1", "n_envs": 4, "name": "zoo", "env": "A-v1"},
            {"learning_rate": 1e-3, "env": ["A-v1", "B-v1"]},
            {"learning_rate": 1e-4, "net_arch": [64]},
        ],
    )
    assert [start.values["learning_rate"] for start in s.starts_for("A-v1")] == [
        "lin_1e-1",
        1e-3,
        1e-4,
    ]
    assert [start.name for start in s.starts_for("B-v1")] == ["", ""]
    assert len(s.starts_for(None)) == 1
    assert s.resolve(s.starts[0].values) == {"n_envs": 4, "learning_rate": "lin_1e-1"}
    assert not s.contains({"learning_rate": "lin_1e-1"})


def test_a_dict_of_dimensions_alone_is_a_space() -> None:
    s = Space.from_dict({"gamma": {"uniform": [0.9, 0.99]}})
    assert list(s.dimensions) == ["gamma"]
    assert Space.from_dict({"space": {"gamma": {"uniform": (0.9, 0.99)}}}) == s


def test_survives_pickling(design: Space) -> None:
    assert design.order
    again = pickle.loads(pickle.dumps(design))
    assert again == design
    assert again.sample(rng()) == design.sample(rng())


# -- mistakes

MISTAKES = [
    # (replaced line, its replacement, line of the error, message)
    ("n_epochs: {int: [1, 20]}", "n_epochs: 3", 10, "space.n_epochs: needs a range such as"),
    (
        "learning_rate: {log: [1e-5, 1e-2]}",
        "learning_rate: {log: [0, 1e-2]}",
        6,
        "space.learning_rate: log needs two positive numbers [low, high] with low < high; got "
        "[0, 0.01]",
    ),
    ("budget: 1e5", "budgte: 1e5", 3, "budgte: unknown key 'budgte'; did you mean 'budget'?"),
    ("budget: 1e5", "budget: 0", 3, "budget: needs a number of env steps such as 1e5"),
    ("budget: 1e5", "budget: 1.5", 3, "budget: needs a number of env steps"),
    ("budget: 1e5", "budget: many", 3, 'such as 1e5; got "many"'),
    ("agent: ppo", "agent: [ppo]", 1, 'agent: needs a name; got ["ppo"]'),
    ("fixed: {n_envs: 8}", "fixed: 8", 4, "fixed: needs names and values such as {n_envs: 8}"),
    ("fixed: {n_envs: 8}", "fixed: {n-envs: 8}", 4, '"n-envs" is not a name such as n_steps'),
    ("fixed: {n_envs: 8}", "fixed: {n_envs: .nan}", 4, "fixed.n_envs: nan is not a value"),
    (
        "fixed: {n_envs: 8}",
        "fixed: {n_envs: 8, gamma: 1}",
        4,
        "fixed.gamma: gamma is searched too (under space); keep one of the two",
    ),
    (
        "fixed: {n_envs: 8}",
        "fixed: {n_env: 8}",
        4,
        "fixed.n_env: unknown hyperparameter 'n_env'; did you mean 'n_envs'?",
    ),
    (
        "optimizer: {choice: [adam, rmsprop]}",
        "optimiser: {choice: [adam, rmsprop]}",
        13,
        "space.rms_alpha.when.optimizer: unknown name 'optimizer'; did you mean 'optimiser'?",
    ),
    (
        "when: {optimizer: rmsprop}",
        "when: {optimizer: rms}",
        13,
        'space.rms_alpha.when.optimizer: optimizer is never "rms"; its values are choice: [adam, '
        "rmsprop]",
    ),
    (
        "n_minibatches: n_steps * n_envs // batch_size",
        "n_minibatches: {a: 1}",
        15,
        "derived.n_minibatches: needs an expression such as n_steps * n_envs // batch_size",
    ),
    (
        "n_minibatches: n_steps * n_envs // batch_size",
        "n_steps: n_envs * 2",
        15,
        "derived.n_steps: n_steps is searched too (under space); keep one of the two",
    ),
    (
        "- batch_size <= n_steps * n_envs",
        "- batch_size <= n_stepz * n_envs",
        17,
        "constraints[0]: 'batch_size <= n_stepz * n_envs': unknown name 'n_stepz'; did you mean "
        "'n_steps'?",
    ),
    (
        "- batch_size <= n_steps * n_envs",
        "- batch_size * n_envs",
        17,
        "constraints[0]: needs a comparison such as batch_size <= n_steps * n_envs; got",
    ),
    ("- batch_size <= n_steps * n_envs", "- batch_size <", 17, "'batch_size <' is not an expr"),
    ("  - batch_size <= n_steps * n_envs", "  x: 1", 16, "constraints: needs a list such as ["),
    (
        "n_steps: 32, batch_size: 256}",
        "n_steps: 32, batch_size: 512}",
        19,
        "start[0]: breaks the constraint batch_size <= n_steps * n_envs (batch_size=512, n_envs=8,",
    ),
    (
        "n_steps: 32, batch_size: 256}",
        "n_steps: 32, batch_size: 0}",
        19,
        "start[0]: derived.n_minibatches: n_steps * n_envs // batch_size (batch_size=0, n_envs=8, "
        "n_steps=32): division by zero",
    ),
    (
        "n_steps: 32, batch_size: 256}",
        "rms_alpha: 0.9}",
        19,
        'rms_alpha is only there when optimizer is "rmsprop"; say so in this start',
    ),
    (
        "n_steps: 32, batch_size: 256}",
        "n_minibatches: 4}",
        19,
        "start[0].n_minibatches: n_minibatches is derived; leave it out",
    ),
    ("{learning_rate: 1e-3, ", "{env: 3, learning_rate: 1e-3, ", 19, "start[0].env: needs a name"),
    ("gamma: {one_minus_log", "n_steps: {one_minus_log", 8, "space.n_steps: written twice, first"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES)
def test_every_mistake_names_file_line_and_key(
    old: str, new: str, line: int, message: str, tmp_path: Path
) -> None:
    assert old in DESIGN
    file = tmp_path / "mine.yaml"
    file.write_text(DESIGN.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        Space.load(file).checked_against(hyperparameters(PPOConfig))
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"space": {"x": {"log": [0, 1]}}}, "dict: space.x: log needs two positive numbers"),
        ({"agent": "ppo"}, "dict: has no key space: with the hyperparameters to search"),
        ({"space": None}, "dict: space: needs names and ranges such as"),
        (None, "dict: needs keys such as agent, fixed and space; got null"),
        ([], "dict: needs keys such as agent, fixed and space; got []"),
        ({"space": {}, "start": {"a": 1}}, "dict: start: needs a list of configurations"),
        ({"space": {}, "start": [{}]}, "dict: start[0]: needs configurations such as"),
        ({"space": {}, "start": [{"name": "zoo"}]}, "dict: start[0]: needs configurations such as"),
        ({"space": {}, "start": [{"a b": 1}]}, '"a b" is not a name such as n_steps'),
        ({"space": {3: {"log": [1, 2]}}}, "3 is not a name such as n_steps"),
        (
            {"space": {}, "derived": {"a": "b + 1", "b": "c + 1", "c": "a + 1"}},
            "dict: derived.a: the derived values go in a circle: a -> b -> c -> a",
        ),
        ({"space": {}, "derived": {"a": "a + 1"}}, "go in a circle: a -> a"),
        (
            {
                "space": {
                    "a": {"choice": [1, 2], "when": {"b": 1}},
                    "b": {"choice": [1, 2], "when": {"a": 1}},
                }
            },
            "dict: space.a: the conditions go in a circle: a -> b -> a",
        ),
    ],
)
def test_the_same_from_a_dict_without_a_line(data: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Space.from_dict(data, where="dict")
    assert message in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"none\.yaml: no such file; rltune spaces lists"):
        Space.load("none.yaml")
    with pytest.raises(UserError, match="unknown search space 'pppo'; did you mean 'ppo'"):
        Space.load("pppo")
    with pytest.raises(UserError, match="Is a directory"):
        Space.load(tmp_path)
    # Shipped ones are found by name and, from any folder, by the path that the README shows.
    assert Space.load("ppo") == Space.load("search_spaces/ppo.yaml")
    Path("ppo").write_text("space: {x: {log: [1, 2]}}")
    assert list(Space.load("ppo").dimensions) == ["x"], "a file of one's own comes first"


# -- the spaces that ship


def shipped(name: str) -> tuple[Space, Any]:
    s = Space.load(name)
    config_class = registry.config_class(str(s.agent))
    return s.checked_against(hyperparameters(config_class)), config_class


@pytest.mark.parametrize("name", shipped_spaces())
def test_shipped_spaces_suit_their_agent(name: str) -> None:
    s, config_class = shipped(name)
    assert s.agent, "a search needs no more than the file"
    assert s.env
    assert s.budget
    assert Space.from_dict(s.to_dict()) == s
    for start in s.starts:
        config = make_config(config_class, s.resolve(start.values))
        if isinstance(config, PPOConfig):
            assert config.n_steps * config.n_envs % config.batch_size == 0


@pytest.mark.parametrize("n", quick([500], [500, 10_000]))
@pytest.mark.parametrize("name", shipped_spaces())
def test_samples_of_every_shipped_space_violate_nothing(name: str, n: int) -> None:
    s, config_class = shipped(name)
    generator = rng()
    for _ in range(n):
        values = s.sample(generator)
        config = s.resolve(values)
        assert not s.violations(config)
        if config_class is PPOConfig:
            assert config["batch_size"] <= config["n_steps"] * config["n_envs"]
    assert s.contains(values)
    make_config(config_class, config)


def test_the_known_good_settings_of_cartpole() -> None:
    (start,) = Space.load("ppo").starts_for("CartPole-v1")
    config = make_config(PPOConfig, start.values)
    assert (config.n_steps, config.batch_size, config.n_epochs) == (32, 256, 20)
    assert (config.learning_rate, config.clip_range) == ("lin_1e-3", "lin_0.2")


# -- anything at all

names = st.sampled_from(["a", "b", "c", "d", "env", "name", "n_envs", "1x", "", "lambda"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["adam", "a", "a + b", "a <= b", "c // d", "log", "1e5", "not a", ""]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
ranges = st.lists(st.one_of(st.integers(-2, 64), st.floats(0, 1)), min_size=2, max_size=2)
dimension_dicts = st.one_of(
    st.builds(
        lambda kind, r: {kind: r}, st.sampled_from(["log", "uniform", "int", "pow2"]), ranges
    ),
    st.builds(lambda r: {"one_minus_log": sorted(r)}, ranges),
    st.builds(lambda c: {"choice": c}, st.lists(scalars, max_size=4)),
    anything,
)
conditional = st.builds(
    lambda d, w: {**d, "when": w} if isinstance(d, dict) else d,
    dimension_dicts,
    st.dictionaries(names, st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=2),
)
space_dicts = st.fixed_dictionaries(
    {
        "space": st.one_of(
            st.dictionaries(names, st.one_of(dimension_dicts, conditional), max_size=4), anything
        )
    },
    optional={
        "agent": anything,
        "env": anything,
        "budget": anything,
        "fixed": st.one_of(st.dictionaries(names, scalars, max_size=3), anything),
        "derived": st.one_of(st.dictionaries(names, scalars, max_size=3), anything),
        "constraints": st.one_of(st.lists(scalars, max_size=3), anything),
        "start": st.one_of(st.lists(st.dictionaries(names, scalars), max_size=2), anything),
        "other": anything,
    },
)


@settings(relaxed, max_examples=200)
@given(space_dicts)
def test_any_dict_is_a_space_or_one_clear_error(data: dict[str, Any]) -> None:
    with contextlib.suppress(UserError):
        s = Space.from_dict(data)
        assert Space.from_dict(s.to_dict()) == s
        values = s.suggest(lambda dimension: dimension.sample(rng()))
        assert s.contains(values)
        s.violations(s.resolve(values))


@settings(relaxed, max_examples=50)
@given(anything)
def test_anything_is_a_space_or_one_clear_error(data: Any) -> None:
    with contextlib.suppress(UserError):
        Space.from_dict(data)


@st.composite
def valid_spaces(draw: st.DrawFn) -> Space:
    """Spaces with conditions on conditions and satisfiable constraints."""
    n = draw(st.integers(1, 5))
    parts: dict[str, Any] = {}
    for i in range(n):
        kind = draw(st.sampled_from(["int", "choice"]))
        parts[f"x{i}"] = {"int": [0, 5]} if kind == "int" else {"choice": [0, 1, 2, 3]}
        if i and draw(st.booleans()):
            parent = draw(st.integers(0, i - 1))
            wanted = draw(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True))
            parts[f"x{i}"]["when"] = {f"x{parent}": wanted}
    order = draw(st.permutations(list(parts)))
    a, b = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
    return Space.from_dict(
        {
            "space": {name: parts[name] for name in order},
            "fixed": {"k": 2},
            "derived": {"total": f"x{a} + k * x{b}"},
            "constraints": [f"x{a} <= x{b} + 2", "total != 3"],
        }
    )


@relaxed
@given(valid_spaces(), st.integers(0, 1000))
def test_samples_respect_conditions_and_constraints(s: Space, seed: int) -> None:
    values = s.sample(rng(seed))
    config = s.resolve(values)
    assert s.contains(values)
    assert not s.violations(config)
    for name, dimension in s.dimensions.items():
        met = all(values.get(p) in wanted for p, wanted in dimension.when.items())
        assert (name in config) == met
    assert Space.from_dict(s.to_dict()) == s


@pytest.mark.parametrize("agent", ["sac", "td3", "ddpg"])
def test_small_networks_alone_may_be_updated_several_times_per_env_step(agent: str) -> None:
    space, generator = Space.load(agent), rng()
    most = {64: 0.0, 256: 0.0}
    for values in (space.sample(generator) for _ in range(500)):
        width = values["net_arch"][0]
        most[width] = max(most[width], values["gradient_steps"] / values["train_freq"])
    assert most == {64: 4.0, 256: 1.0}
