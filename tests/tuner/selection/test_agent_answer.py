"""The answer of a search over several agents."""

from __future__ import annotations

import math

from rltune.selection.answer import AgentResult, build


def result(agent: str, scores: list[float], **values: object) -> AgentResult:
    by_seed = dict(enumerate(scores, 100))
    iqm = sum(scores) / len(scores) if scores else None
    about = {"best": 1.0, "trials": 9, "trial": 4, "label": "trial 4", "iqm": iqm, "seconds": 5.0}
    return AgentResult(agent=agent, scores=by_seed, **{**about, **values})  # type: ignore[arg-type]


def test_the_best_on_test_seeds_is_named_with_what_the_next_costs() -> None:
    ppo = result("ppo", [9.0, 8.0, 9.5, 9.2, 8.8], best=12.0, seconds=5.0, low=8.0, high=9.5)
    sac = result("sac", [20.0, 21.0, 19.0, 22.0, 20.5], seconds=60.0, low=19.0, high=22.0)
    a2c = AgentResult(agent="a2c", best=3.0, trials=7, dropped=1)
    answer = build([a2c, ppo, sac], {"dqn": "needs discrete actions"})
    assert answer.agent == "sac"
    assert answer.sure
    assert [found.agent for found in answer.results] == ["sac", "ppo", "a2c"]
    text = " ".join(answer.sentences)
    assert "Use sac with trial 4: 20.5 (19.0 to 22.0) on 5 test seeds." in text
    assert "ahead of ppo (8.90) by +11.6, beyond chance" in text or "beyond chance" in text
    assert "A training takes 1:00 with sac and 0:05 with ppo." in text
    assert "Left behind: a2c (best 3 after 7 trials)." in text
    assert "Left out, as they can't be trained there: dqn." in text


def test_a_lead_that_may_be_chance_is_called_so() -> None:
    answer = build([result("ppo", [9.0, 8.0, 7.0]), result("sac", [9.1, 8.2, 7.0])], {})
    assert answer.agent == "sac"
    assert not answer.sure
    assert "not beyond chance: both may be used" in answer.sentences[1]


def test_of_agents_that_reach_the_same_the_one_with_the_shorter_training_is_named() -> None:
    slow, fast = result("a2c", [500.0] * 3, seconds=20.0), result("ppo", [500.0] * 3, seconds=5.0)
    unknown = result("acer", [500.0] * 3, seconds=None)
    answer = build([unknown, slow, fast], {})
    assert [found.agent for found in answer.results] == ["ppo", "a2c", "acer"]
    assert not answer.sure
    assert "a2c reaches the same, 500.0: both may be used;" in answer.sentences[1]
    assert "A training takes 0:05 with ppo and 0:20 with a2c." in answer.sentences


def test_an_agent_whose_trainings_diverged_is_not_named() -> None:
    lost = result("ppo", [-math.inf] * 5, iqm=-math.inf)
    answer = build([lost, result("sac", [1.0, 2.0, 3.0])], {})
    assert answer.agent == "sac"
    nobody = build([lost], {})
    assert nobody.agent is None
    assert nobody.sentences == ("No agent has come to a result.",)


def test_without_tests_of_all_the_best_trial_decides_and_nothing_is_claimed() -> None:
    tested, untested = result("ppo", [1.0, 2.0, 3.0], best=2.0), result("sac", [], best=9.0)
    answer = build([tested, untested], {})
    assert answer.agent == "sac"
    assert not answer.sure
    assert "Perhaps sac: its best trial has 9" in answer.sentences[0]
    assert "no time to train the best of sac again" in answer.sentences[0]


def test_those_that_stayed_longer_come_before_those_that_left_sooner() -> None:
    first = AgentResult(agent="a2c", best=5.0, trials=7, dropped=1)
    second = AgentResult(agent="dqn", best=4.0, trials=9, dropped=2)
    answer = build([first, second, result("ppo", [1.0, 2.0, 3.0])], {})
    assert [found.agent for found in answer.results] == ["ppo", "dqn", "a2c"]
