import pytest
from rltune.agents.schedules import value_at


@pytest.mark.parametrize(
    ("schedule", "progress", "value"),
    [
        (3e-4, 0.7, 3e-4),
        ("lin_1e-3", 0.0, 1e-3),
        ("lin_1e-3", 0.25, 7.5e-4),
        ("lin_1e-3", 1.0, 0.0),
        ("lin_1e-3", 1.2, 0.0),  # the last rollout goes beyond the end
        ("2e-4", 0.5, 2e-4),
    ],
)
def test_value_at(schedule: float | str, progress: float, value: float) -> None:
    assert value_at(schedule, progress) == pytest.approx(value)
