"""The search's choice of space; what it fixes holds for every configuration."""

from __future__ import annotations

from typing import Any

import pytest
import rltune
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.errors import UserError
from rltune.backends import registry
from rltune.search.space_choice import choose_space, named_agent

FIXED: dict[str, Any] = {
    "agent": "ppo",
    "env": "CartPole-v1",
    "budget": 1000,
    "fixed": {"n_envs": 1, "gamma": 0.5},
    "space": {"learning_rate": {"log": [1e-5, 1e-2]}, "n_steps": {"pow2": [32, 256]}},
    "derived": {"batch_size": "max(n_steps // 4, 8)", "n_epochs": "n_envs + 2"},
    "constraints": ["batch_size >= 16"],
    "start": [
        {"name": "zoo", "n_envs": 16, "learning_rate": "lin_1e-3", "use_sde": True},
        {"name": "elsewhere", "env": "Acrobot-v1", "n_envs": 4, "learning_rate": 1e-3},
        {"gamma": 0.9},
    ],
}


def test_what_is_fixed_holds_for_the_defaults_and_the_starts() -> None:
    search = rltune.Search(space=FIXED, dimensions={"ent_coef": 0.25}, budget=100_000)
    default, zoo = search.starts
    for start in (default, zoo):
        known = {name: start.config[name] for name in ("n_envs", "gamma", "ent_coef")}
        assert known == {"n_envs": 1, "gamma": 0.5, "ent_coef": 0.25}
        assert start.config["n_epochs"] == 3, "it follows from what is fixed"
    own = PPOConfig()
    assert default.config["learning_rate"] == own.learning_rate
    assert (default.config["n_steps"], default.config["batch_size"]) == (
        own.n_steps,
        own.batch_size,
    )
    assert (zoo.config["learning_rate"], zoo.config["use_sde"]) == ("lin_1e-3", True)
    assert search.notes[:4] == [
        "The environment is CartPole-v1, as the space says; --env ID takes another.",
        "The agent's defaults have n_envs 1 instead of 8, gamma 0.5 instead of 0.99, ent_coef 0.25 "
        "instead of 0.0: what is fixed holds for them, too.",
        "The known-good settings zoo have n_envs 1 instead of 16: what is fixed holds for them, "
        "too.",
        "The known-good settings are left out: everything in them is fixed otherwise (gamma 0.5 "
        "instead of 0.9).",
    ]


def test_starts_that_what_is_fixed_makes_impossible_are_named() -> None:
    choice = choose_space("ppo", "CartPole-v1", "ppo", PPOConfig, {"n_envs": 1})
    assert choice.space.starts_for("CartPole-v1") == []
    assert choice.notes == [
        "The agent's defaults have n_envs 1 instead of 8: what is fixed holds for them, too.",
        "The known-good settings zoo are left out: with what is fixed (n_envs 1 instead of 8) they "
        "break a constraint.",
    ]
    assert choose_space("ppo", "CartPole-v1", "ppo", PPOConfig, {"n_envs": 8}).notes == []
    model = {"model": "[dense] units=8 common=1 [dense] output=1 [dense] output=1"}
    (note,) = choose_space("ppo", "CartPole-v1", "ppo", PPOConfig, model).notes
    assert "output=1 instead of none: what is fixed" in note


@pytest.mark.parametrize("agent", ["ppo", "a2c", "acer", "trpo", "dqn", "sac", "td3", "ddpg"])
def test_the_shipped_spaces_fix_nothing_that_defaults_or_starts_say_otherwise(agent: str) -> None:
    config_class = registry.config_class(agent)
    for env in ("CartPole-v1", "LunarLander-v3", "BipedalWalker-v3", "HalfCheetah-v5"):
        assert choose_space(agent, env, None, config_class, {}).notes == []


def test_the_agent_may_be_left_to_the_space() -> None:
    assert named_agent("sac") == "sac"
    assert named_agent(FIXED) == "ppo"
    for nameless in (None, {"space": {"gamma": {"uniform": [0.9, 0.99]}}}):
        with pytest.raises(UserError, match="which agent"):
            named_agent(nameless)
    with pytest.raises(UserError, match="the space is for the agent 'ppo', not 'a2c'"):
        rltune.Search("a2c", space=FIXED)


def test_an_expression_may_name_what_the_file_says_nothing_of() -> None:
    space = {
        "space": {"num_steps": {"int": [1, 64]}},
        "constraints": ["num_steps * num_envs > 400"],
    }
    chosen = choose_space("ppo", "CartPole-v1", space, PPOConfig, {}).space
    assert chosen.fixed == {"n_envs": 8}
    assert chosen.violations(chosen.resolve({"n_steps": 50})) != []
    assert chosen.violations(chosen.resolve({"n_steps": 51})) == []
    mine = {**space, "start": [{"n_envs": 2, "n_steps": 256}]}
    (start,) = choose_space("ppo", "CartPole-v1", mine, PPOConfig, {}).space.starts
    assert start.values == {"n_envs": 2, "n_steps": 256}, "nobody has fixed n_envs"
    wrong = {**space, "constraints": ["n_stepz > 4"]}
    with pytest.raises(
        UserError, match=r"constraints\[0\]: .*unknown name 'n_stepz'; did you mean"
    ):
        choose_space("ppo", "CartPole-v1", wrong, PPOConfig, {})
