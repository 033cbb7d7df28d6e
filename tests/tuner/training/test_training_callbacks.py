"""Callbacks of a training: each event once and in order, the end that one asks for, mistakes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune.cli import main
from rltune.training.train import resume_training

pytestmark = pytest.mark.usefixtures("toy")


class Witness(rltune.Callback):
    """Writes down what it is told, and when."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, Any]] = []

    def note(self, event: str, about: Any) -> None:
        self.heard.append((event, self.env_steps, about))

    def on_training_start(self, training: Any) -> None:
        self.note("start", training)

    def on_step(self, env_steps: int) -> str | None:
        self.note("step", env_steps)
        return None

    def on_update(self, metrics: Any) -> None:
        self.note("update", dict(metrics))

    def on_evaluation(self, evaluation: Any) -> None:
        self.note("evaluation", evaluation)

    def on_checkpoint(self, path: Path) -> None:
        self.note("checkpoint", path.name)

    def on_training_end(self, training: Any) -> None:
        self.note("end", training)

    def of(self, event: str) -> list[tuple[int, Any]]:
        return [(steps, about) for name, steps, about in self.heard if name == event]


def train(folder: Path, agent: str = "toy:ToyAgent", **options: Any) -> rltune.TrainResult:
    usual: dict[str, Any] = {"total_timesteps": 200, "eval_freq": 100, "wandb": "off"}
    return rltune.train(
        agent, "toy:ToyEnv", name="run", storage_path=folder, plain=True, **{**usual, **options}
    )


def test_each_event_comes_once_and_in_order(tmp_path: Path) -> None:
    witness = Witness()
    result = train(tmp_path, callbacks=[witness])
    events = [event for event, *_ in witness.heard]
    assert (events[0], events[-1]) == ("start", "end")
    assert [steps for _, steps in witness.of("step")] == list(range(1, 201))
    assert [steps for steps, _ in witness.of("update")] == list(range(10, 201, 10))
    assert [about["loss"] for _, about in witness.of("update")] == [1 / k for k in range(1, 21)]
    assert [steps for steps, _ in witness.of("evaluation")] == [100, 200]
    assert witness.of("evaluation")[1][1].mean == result.last_return
    saved = [(100, "best.pt"), (100, "last.pt"), (200, "best.pt"), (200, "last.pt")]
    assert witness.of("checkpoint") == saved
    # An update follows the step that made it due; an evaluation, all that came before it.
    around = [name for name, _ in itertools.groupby(events)]
    assert around[1:4] == ["step", "update", "step"]
    assert around.count("evaluation") == 2
    ((_, start),) = witness.of("start")
    assert (start.path, start.resumed, start.spec["agent"]) == (
        *(result.path, False),
        "toy:ToyAgent",
    )


def test_nobody_is_told_of_steps_who_does_not_ask(tmp_path: Path) -> None:
    class Evaluations(rltune.Callback):
        seen = 0

        def on_evaluation(self, evaluation: Any) -> None:
            self.seen += 1

    watched: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "rltune.agents.loop.agent.Agent.watch", lambda self, watcher: watched.append(watcher)
        )
        callback = Evaluations()
        train(tmp_path, callbacks=[callback])
    assert callback.seen == 2
    assert set(watched) == {None}


class Stopper(Witness):
    """Ends a training after so many env steps."""

    def on_step(self, env_steps: int) -> str | None:
        super().on_step(env_steps)
        return self.STOP if env_steps == 137 else None


def test_a_callback_ends_a_training_which_can_be_resumed(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    stopped = train(tmp_path / "stopped", callbacks=[Stopper()])
    assert stopped.env_steps == 137
    assert stopped.stop_reason == "a callback has asked for the end"
    assert not stopped.interrupted
    witness = Witness()
    resumed = resume_training(stopped.path, plain=True, callbacks=[witness])
    assert witness.of("start")[0][1].resumed
    assert witness.of("step")[0] == (138, 138)
    assert (resumed.env_steps, resumed.last_return) == (200, whole.last_return)
    assert resumed.stop_reason is None


class Clumsy(rltune.Callback):
    """Fails with every step."""

    def on_step(self, env_steps: int) -> str | None:
        raise KeyError("mine")


def test_a_mistake_is_told_once_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train(tmp_path, callbacks=[Clumsy()])
    assert result.env_steps == 200
    shown = capsys.readouterr()
    text = " ".join((shown.out + shown.err).split())
    assert text.count("Clumsy.on_step has failed with KeyError: 'mine'; going on") == 1
    assert "KeyError" in (result.path / "callbacks.log").read_text()


def test_a_mistake_ends_the_training_where_that_is_wanted(tmp_path: Path) -> None:
    class Strict(Clumsy, Witness):
        raises = True

    strict = Strict()
    with pytest.raises(KeyError, match="mine"):
        train(tmp_path, callbacks=[strict])
    assert [event for event, *_ in strict.heard] == ["start", "end"]


def test_agents_that_tell_no_steps_tell_their_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = Witness()
    rltune.train(
        "toy:ToyAgent", "toy:ToyEnv=0:1,toy:SteepEnv=0:3", total_timesteps=200, eval_freq=100,
        wandb="off", name="run", storage_path=tmp_path, plain=True, callbacks=[witness],
    )  # fmt: skip
    assert witness.of("step") == []
    assert [steps for steps, _ in witness.of("update")] == [100, 200]
    shown = capsys.readouterr()
    assert "on_step is not called: only rltune's own agents" in shown.out + shown.err


def test_the_command_line_takes_them_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_callbacks.py").write_text(
        "import rltune\n\nclass Mine(rltune.Callback):\n"
        "    def on_training_end(self, training):\n"
        "        (training.path / 'mine.txt').write_text(str(self.env_steps))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = "train toy:ToyAgent --env toy:ToyEnv -n 100 --wandb off --plain --name run"
    where = ["--storage-path", str(tmp_path)]
    assert main([*words.split(), *where, "--callback", "my_callbacks:Mine"]) == 0
    assert (tmp_path / "run" / "mine.txt").read_text() == "100"
    assert main([*words.split(), *where, "--callback", "my_callbacks:Other"]) == 2
    assert "unknown callback in my_callbacks 'Other'" in capsys.readouterr().err
