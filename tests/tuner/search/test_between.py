"""Between trials: proposals made ahead for several workers, and nothing is kept for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rltune.execution.messages import PAYLOAD, TASK
from rltune.execution.trainable import AgentTrainable
from rltune.study.study import SearchStudy
from searching import SPACE
from serial import Serial

OPTIONS: dict[str, Any] = {
    "agent": "toy:ToyAgent",
    "env": "toy:ToyEnv",
    "space": SPACE,
    "budget": 90,
    "evaluations": 9,
    "eval_episodes": 1,
    "trials": 12,
    "tournament": False,
    "screen": "none",
}


def drive(search: Serial) -> int:
    """Run the search as Tune does, to its end; return how many proposals were made ahead."""
    driver, jobs, ahead = search.driver, dict[str, AgentTrainable](), 0
    asked = search.study.ask_ahead

    def ask_ahead() -> None:
        nonlocal ahead
        before = search.study._ahead
        asked()
        ahead += search.study._ahead is not before

    search.study.ask_ahead = ask_ahead  # type: ignore[method-assign]
    while True:
        while not driver.exhausted() and (task := driver.next_job()):
            jobs[task["job"]] = AgentTrainable({TASK: task})
            driver.on_start(task["job"])
        if not jobs:
            return ahead
        driver.use_the_time()
        name, job = next(iter(jobs.items()))
        jobs[name] = jobs.pop(name)  # to the end of the queue
        if driver.on_result(name, job.step()[PAYLOAD]):
            jobs.pop(name).cleanup()


@pytest.mark.parametrize("slots", [1, 3])
def test_one_worker_waits_for_every_result_and_several_have_a_proposal_ready(
    tmp_path: Path, toy: None, slots: int
) -> None:
    search = Serial(tmp_path, slots, **OPTIONS)
    ahead = drive(search)
    # The first trials are there from the start: the defaults, and one for each further worker.
    assert ahead == (0 if slots == 1 else 12 - slots)
    assert len(search.study.trials()) == 12
    assert all(trial.state in ("COMPLETE", "PRUNED") for trial in search.study.trials())


def test_of_trials_that_have_ended_the_driver_keeps_nothing_but_what_it_learned(
    tmp_path: Path, toy: None
) -> None:
    search = Serial(tmp_path, 3, **OPTIONS)
    drive(search)
    driver, parts = search.driver, search.driver.parts
    kept = [
        driver.running.jobs, driver.running.ended_jobs, driver.running.trials,
        driver.liveness._hung, parts.view.running, parts.progress.running,
    ]  # fmt: skip
    assert [len(each) for each in kept] == [0] * len(kept)
    assert parts.health is None or not parts.health.trials


def test_a_proposal_made_ahead_is_used_by_the_trial_that_starts_next(
    tmp_path: Path, toy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Serial(tmp_path, 2, **OPTIONS)
    used = []
    taken = SearchStudy._taken_ahead

    def spy(study: SearchStudy, *args: Any) -> Any:
        proposal = taken(study, *args)
        used.append(proposal is not None)
        return proposal

    monkeypatch.setattr(SearchStudy, "_taken_ahead", spy)
    drive(search)
    assert sum(used) >= len(used) - 3  # two trials may end at once, and the first ones begin so
