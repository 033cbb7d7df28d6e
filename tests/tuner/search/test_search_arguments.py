"""Arguments of `rltune.Search` are checked before anything is done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import optuna
import pytest
import rltune

GOOD: dict[str, Any] = {"agent": "ppo", "env": "CartPole-v1", "trials": 1, "budget": 100}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": None}, "seed must be a whole number, not None"),
        ({"sampler": optuna.samplers.RandomSampler()}, "sampler must be a name such as 'tpe'"),
        ({"scheduler": optuna.pruners.NopPruner()}, "scheduler must be a name such as 'asha'"),
        ({"env": gymnasium.make("CartPole-v1")}, "is one object.*give the id 'CartPole-v1'"),
        ({"agent": 3}, "3 is one object"),
        ({"trials": "5"}, "trials must be a whole number or None, not '5'"),
        ({"trials": 2.5}, "trials must be a whole number or None, not 2.5"),
        ({"budget": "many"}, "budget must be a whole number, not 'many'"),
        ({"budget": float("nan")}, "budget must be a whole number, not nan"),
        ({"gpus_per_trial": float("nan")}, "gpus_per_trial must be a finite number, not nan"),
        ({"space": [1]}, "space must be a dict, a path, or a name that ships"),
        ({"name": 5}, "name must be a text"),
        ({"storage_path": None}, "storage_path must be a folder or a URI"),
        (
            {"storage_path": "/dev/null/x"},
            "cannot write /dev/null/x/.*a file stands where a folder",
        ),
        ({"wandb": False}, "wandb must be a text, not False"),
        ({"metric": len}, "metric must be the name of a column"),
        ({"controls": {"target": 1}}, "unknown control 'target'; did you mean 'target_reward'"),
    ],
)
def test_a_wrong_argument_is_one_sentence(
    change: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rltune.UserError, match=words) as raised:
        rltune.Search(**{**GOOD, **change})
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())
