from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents.algorithms.sac import SAC
from rltune.agents.algorithms.sac_config import SACConfig
from rltune.agents.algorithms.sac_temperature import TargetEntropy, Temperature
from rltune.agents.errors import UserError
from rltune.agents.spaces import Spaces


def make(action: spaces.Space[Any], **config: Any) -> SAC:
    space = Spaces(spaces.Box(-1, 1, (4,), np.float32), action, 2)
    return SAC(SACConfig(net_arch=(4,), **config), space, seed=0)


@pytest.mark.parametrize(
    ("text", "value", "learned"), [("auto", 1, True), ("auto_0.1", 0.1, True), ("0.2", 0.2, False)]
)
def test_the_temperature_begins_as_it_is_told(text: str, value: float, learned: bool) -> None:
    temperature = Temperature(text, 2)
    assert temperature.value().tolist() == pytest.approx([value] * 2)
    assert temperature.learned == learned
    temperature.clip(0.15)
    assert temperature.value().tolist() == pytest.approx([min(value, 0.15)] * 2)


@pytest.mark.parametrize(
    ("space", "target"),
    [
        (spaces.Box(-2, 2, (2,), np.float32), [-2]),
        (spaces.Discrete(3), [0.89 * math.log(3)]),
        (spaces.MultiDiscrete([2, 3]), [0.89 * math.log(2), 0.89 * math.log(3)]),
        (spaces.MultiBinary(2), [0.89 * math.log(2)] * 2),
    ],
)
def test_it_aims_at_the_usual_targets(space: spaces.Space[Any], target: list[float]) -> None:
    obs = torch.zeros(5, 4)
    assert make(space).target_entropy.of(obs).tolist() == pytest.approx(target)
    told = make(space, target_entropy="-0.3").target_entropy.of(obs).tolist()
    assert told == pytest.approx([-0.3 * one / sum(target) for one in target])


def test_a_target_is_shared_where_no_choice_has_two_values() -> None:
    agent = make(spaces.MultiDiscrete([1, 1]), target_entropy="0.5")
    assert agent.target_entropy.fixed.tolist() == [0.25, 0.25]


@pytest.mark.parametrize("wrong", ["automatic", "auto_0", "-1"])
def test_wrong_temperatures_are_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="ent_coef"):
        Temperature(wrong)


def test_wrong_targets_are_refused() -> None:
    actor = make(spaces.Discrete(2)).nets.actor
    with pytest.raises(UserError, match="target_entropy is 'low'"):
        TargetEntropy("low", actor, torch.device("cpu"))
    with pytest.raises(UserError, match="target_entropy is 'low'"):
        make(spaces.Discrete(2), target_entropy="low")
