"""The registry of backends, and what each says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.loop.controls import Controls
from rltune.backends.base import Backend, SingleTrainer
from rltune.backends.own import OwnBackend
from rltune.backends.registry import (
    agent_type,
    backend_of,
    check_fit,
    check_start,
    config_class,
    is_own,
)
from rltune.backends.rllib.backend import RLlibBackend
from rltune.backends.single import BACKENDS
from rltune.backends.suite import SuiteAgent, SuiteBackend

SUITE = "CartPole-v1=0:500,Acrobot-v1=-500:-100"


class Renamed(Backend):
    """Our PPO under another name, on one environment alone."""

    name = "renamed"
    prefix = "renamed:"
    eval_modes = ("greedy",)

    def agents(self) -> list[str]:
        return ["renamed:ppo"]

    def config_class(self, agent: str) -> type[Any]:
        return PPOConfig

    def trainer(self, agent: str) -> type[SingleTrainer]:
        return Agent

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        if env != "CartPole-v1":
            raise UserError(f"{agent} knows CartPole-v1 alone, not {env}")


def test_a_new_backend_needs_its_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltune.backends.single.BACKENDS", [*BACKENDS, Renamed()])
    assert config_class("renamed:ppo") is PPOConfig
    assert agent_type("renamed:ppo", "CartPole-v1") is Agent
    assert agent_type("renamed:ppo", SUITE) is SuiteAgent
    assert not is_own("renamed:ppo")
    with pytest.raises(UserError, match="not Acrobot-v1"):  # each of several by itself
        check_fit("renamed:ppo", SUITE, [{}], {}, has_data=True)
    with pytest.raises(UserError, match="only be evaluated greedily"):
        check_start("renamed:ppo", "stochastic", None)
    check_start("renamed:ppo", "greedy", "weights.pt")


def test_an_agent_belongs_to_one_backend() -> None:
    for backend in BACKENDS:
        names = backend.agents() or [f"{backend.prefix}mine"]
        assert {backend_of(agent) for agent in names} == {backend}
    assert isinstance(backend_of("mine:Agent"), OwnBackend)
    assert isinstance(backend_of("rllib:PPO"), RLlibBackend)
    assert [is_own(agent) for agent in ("ppo", "rllib:PPO", "mine:Agent")] == [False, False, True]


@pytest.mark.parametrize("agent", ["ppo", "rllib:PPO", "sb3:PPO"])
def test_several_environments_change_no_ability(agent: str) -> None:
    one, several = backend_of(agent), backend_of(agent, SUITE)
    assert isinstance(several, SuiteBackend)
    for ability in ("starts_from_weights", "eval_modes", "changes_hyperparameters"):
        assert getattr(one, ability) == getattr(several, ability)
    one.check_controls(Controls(target_reward=1.0), {"a": 1})
    with pytest.raises(UserError, match="need a single environment"):
        several.check_controls(Controls(target_reward=1.0), None)
    with pytest.raises(UserError, match="--env-kwargs"):
        several.check_controls(Controls(), {"a": 1})
