from __future__ import annotations

import re

import pytest
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import make_config
from rltune.agents.errors import UserError
from rltune.agents.schedules import first_value, parse_schedule, value_at

STEPS = "pw_0:1e-3_0.5:1e-3_0.5:1e-4_0.8:0"


@pytest.mark.parametrize(
    ("schedule", "progress", "value"),
    [
        (3e-4, 0.7, 3e-4),
        ("lin_1e-3", 0.0, 1e-3),
        ("lin_1e-3", 0.25, 7.5e-4),
        ("lin_1e-3", 1.0, 0.0),
        ("lin_1e-3", 1.2, 0.0),  # the last rollout goes beyond the end
        ("2e-4", 0.5, 2e-4),
        ("lin_1e-3_1e-4", 0.5, 5.5e-4),
        ("lin_1e-4_1e-3", 1.0, 1e-3),
        ("exp_1e-3_1e-5", 0.0, 1e-3),
        ("exp_1e-3_1e-5", 0.5, 1e-4),
        ("exp_1e-3_1e-5", 1.2, 1e-5),
        (STEPS, 0.49, 1e-3),
        (STEPS, 0.5, 1e-4),
        (STEPS, 0.65, 5e-5),
        (STEPS, 0.9, 0.0),
        ("pw_0.5:1_1:2", 0.2, 1.0),
    ],
)
def test_value_at(schedule: float | str, progress: float, value: float) -> None:
    assert value_at(schedule, progress) == pytest.approx(value)


@pytest.mark.parametrize(
    "wrong",
    ["exp_1e-3", "exp_1e-3_0", "lin_1_2_3", "pw_1e-3", "pw_0.5:1_0.2:2", "pw_0:1_2:1", "exp_nan_1"],
)
def test_what_is_no_schedule_is_refused_with_examples(wrong: str) -> None:
    said = "a number or a schedule such as lin_1e-3, exp_1e-3_1e-5 or pw_0:1e-3_0.5:1e-4"
    with pytest.raises(UserError, match=f"learning_rate is '{re.escape(wrong)}'.*{said}"):
        make_config(PPOConfig, {"learning_rate": wrong})


def test_every_value_of_a_schedule_must_be_allowed() -> None:
    with pytest.raises(UserError, match="must be at least 0"):
        make_config(PPOConfig, {"learning_rate": "pw_0:1e-3_1:-1e-3"})
    assert make_config(PPOConfig, {"learning_rate": STEPS}).learning_rate == STEPS


def test_a_schedule_stands_where_it_begins() -> None:
    assert parse_schedule(STEPS).initial == first_value(STEPS) == 1e-3
    assert first_value("exp_1e-2_1e-3") == 1e-2
    assert first_value("adam") == "adam"
    assert first_value("lin_nonsense") == "lin_nonsense"  # of a run of somebody else's
