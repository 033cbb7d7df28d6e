"""The agents of a search over several."""

from __future__ import annotations

import pytest
from rltune.agents.errors import UserError
from rltune.selection.candidates import budget_in, candidates, names_several, two_digits


def test_several_agents_are_told_from_one() -> None:
    assert names_several("auto")
    assert names_several("ppo,sac")
    assert not names_several("ppo")
    assert not names_several(None)


def test_auto_takes_every_agent_that_can_act_there_and_says_why_others_cannot() -> None:
    found = candidates("auto", "CartPole-v1", {})
    assert found.agents == ["a2c", "acer", "dqn", "ppo", "sac", "trpo"]
    assert set(found.left_out) == {"bc", "ddpg", "td3"}
    assert "demonstrations alone" in found.left_out["bc"]
    assert "Box" in found.left_out["td3"]
    assert "dqn" in candidates("auto", "Pendulum-v1", {}).left_out
    lander = candidates("dqn,sac,td3", "LunarLander-v3", {"continuous": True})
    assert lander.agents == ["sac", "td3"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("ppo,", "name each once"),
        ("ppo,ppo", "name each once"),
        ("ppo,foo", "unknown agent 'foo'"),
        ("td3,ddpg", "none of td3, ddpg can act in CartPole-v1: TD3 acts in Box"),
        ("ppo,td3", "only ppo can act in CartPole-v1; write rltune run ppo --env CartPole-v1"),
    ],
)
def test_what_can_not_be_compared_is_refused(asked: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        candidates(asked, "CartPole-v1", {})


def test_a_budget_is_what_the_defaults_train_in_the_time() -> None:
    quick, slow = (budget_in(10, agent, "Pendulum-v1", {}) for agent in ("ppo", "sac"))
    assert quick > 5 * slow > 0
    assert two_digits(48_731) == 49_000
    assert two_digits(7.4) == 7
    assert two_digits(0.3) == 1
