"""The peers' proposals in the tuners' comparison, moved into what the search space allows."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.mark.parametrize("agent", ["sac", "td3", "ddpg"])
@pytest.mark.parametrize(
    ("net_arch", "train_freq", "asked", "taken"),
    [
        ([256, 256], 1, 16, 1),
        ([256, 256], 8, 16, 8),
        ([64, 64], 1, 16, 4),
        ([64, 64], 8, 16, 16),  # allowed
        ([256, 256], 8, 2, 2),  # allowed
    ],
)
def test_more_updates_than_the_space_allows_become_the_most_it_allows(
    agent: str,
    net_arch: list[int],
    train_freq: int,
    asked: int,
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tuners = importlib.import_module("benchmark_tuners")
    space = tuners.space_of(agent)
    kinds = space.to_dict()["space"]

    def drawn(name: str, value: int) -> int:
        return value.bit_length() - 1 if "pow2" in kinds[name] else value

    parameters = {
        "net_arch": net_arch,
        "train_freq": drawn("train_freq", train_freq),
        "gradient_steps": drawn("gradient_steps", asked),
    }
    assert tuners.decode(parameters, space)["gradient_steps"] == taken


def test_a_minibatch_is_no_longer_than_its_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tuners = importlib.import_module("benchmark_tuners")
    drawn = {"n_steps": 5, "batch_size": 12}  # powers of two: 32 env steps, minibatches of 4,096
    config = tuners.decode(drawn, tuners.space_of("ppo"))
    assert config["batch_size"] == 32 * 8  # the environments of PPO's defaults
