"""Searches whose trials have actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.planning import processes
from searching import check_history

pytestmark = pytest.mark.usefixtures("toy_ray", "toy")
SPACE = {
    "space": {"learning_rate": {"log": [1e-4, 1e-2]}},
    "fixed": {"num_actors": 1, "n_envs": 2, "max_policy_lag": 20, "learning_starts": 50},
}


@pytest.mark.parametrize("victim", ["actor", pytest.param("learner", marks=pytest.mark.slow)])
def test_a_trial_survives_its_actor_and_its_learner(
    victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 4)
    options: dict[str, Any] = {"screen": "plain", "wandb": "off", "report": False}
    result = rltune.Search(
        "dqn", "mortal:mortal", SPACE, budget=600, trials=1, evaluations=3, eval_episodes=5,
        env_kwargs={"folder": str(tmp_path), "victim": victim}, tournament=False,
        cpus_per_actor=0.5, name="run", storage_path=tmp_path, **options,
    ).run()  # fmt: skip
    assert (tmp_path / f"killed-{victim}").exists()
    trials = result.trials()
    assert list(trials["state"]) == ["COMPLETE"]
    assert list(trials["retries"]) == [int(victim == "learner")]
    history = result.history()
    check_history(history)
    assert history["env_steps"].max() >= 600
    assert history["cpu_time"].max() > 0
    assert history["policy_lag"].max() > 0
    said = "actor 0 died; another one begins new episodes"
    assert (said in capsys.readouterr().out) == (victim == "actor")


def test_what_can_not_have_actors_that_run_ahead_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 4)
    space = {**SPACE, "fixed": {"num_actors": 1, "max_policy_lag": 5}}
    with pytest.raises(UserError, match="trpo learns from the policy that acted alone"):
        rltune.Search("trpo", "CartPole-v1", space, budget=100, trials=1, storage_path=tmp_path)
