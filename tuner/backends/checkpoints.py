"""Checkpoints of runs: finding one, and loading the agent in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rltune.agents.envs.suite import is_suite
from rltune.agents.errors import UserError
from rltune.backends.registry import agent_type
from rltune.runs.directory import STORAGE, RunDir, find_run

if TYPE_CHECKING:
    from rltune.backends.base import Trainer
    from rltune.backends.suite import SuiteAgent

WHAT = "a checkpoint file, or a run: its folder, its name in runs/, or 'latest'"
WEIGHTS = "weights.pt"  # in a run: what it started from


def place_of(run: object) -> str:
    """Return the path or name of a run: it may be what a search or a training has given."""
    return os.fspath(cast("str | os.PathLike[str]", getattr(run, "path", run)))


def load_agent(path: Path, *, env: str | None = None, device: str = "auto") -> Trainer:
    """Return the agent in a checkpoint or an exported policy, to act with.

    Args:
        path: the file
        env: refuse an agent of another environment; of several environments, the agent on this one
        device: as in the constructor of agents; some exported policies run on a CPU alone

    Raises:
        UserError: no such file, or one of another environment.
    """
    # Late: readers of a run need no PyTorch.
    from rltune.agents.loop import checkpoint, saved_policy
    from rltune.backends.exported import files

    if (program := files.kind_of(path)) is not None:
        return cast("Trainer", files.load(path, program, env))  # it has all that acting needs
    state = checkpoint.plain(path)
    if saved_policy.is_policy(state):
        return saved_policy.rebuild(state, path, device=device, env=env)
    found = checkpoint.checked(state, path)
    kind = agent_type(found["agent"], found["env"])
    if not is_suite(found["env"]):
        return kind.load(path, device=device, env=env, acts_only=True)
    suite = cast("SuiteAgent", kind.load(path, device=device, acts_only=True))
    return suite if env is None else suite.member(env)


def find_checkpoint(
    where: str | os.PathLike[str], *, best: bool = False, trial: int | None = None
) -> Path:
    """Return the checkpoint file that is meant.

    Of a training: the last one, or that of the best evaluation. Of a search: the winner's, or that
    of one trial.

    Args:
        where: a checkpoint file (as a path, or as RUN/FILE in runs/), a run, its name, or "latest"
        best: of a training, the agent of its best evaluation
        trial: of a search, this trial's agent

    Raises:
        UserError: there is none.
    """
    for path in (Path(where).expanduser(), Path(STORAGE) / where):
        if path.is_file():
            if best or trial is not None:
                raise UserError(
                    f"{where} is one checkpoint; --best and --trial choose within a run"
                )
            return path
    run = RunDir.open(find_run(where))
    if run.kind == "train":
        return _of_training(run.path, best, trial)
    if trial is not None:
        return _of_trial(run.path / "trials", trial, run.checkpoint(trial))
    found = run.best_dir / "checkpoint.pt"
    if not found.is_file():
        answers = [run.best_dir / name for name in ("answer.yaml", "front.yaml")]
        ended = any(map(Path.exists, answers)) and not (run.best_dir / "config.yaml").exists()
        raise UserError(
            f"run {run.path} {'ended without a winner' if ended else 'has no winner yet'}; choose "
            "a trial: --trial N, or trial=N in Python. "
            f"Those with a checkpoint: {_numbers(run.path / 'trials')}"
        )
    return found


def check_weights(
    agent: str,
    env: str,
    configs: Sequence[Mapping[str, Any]],
    env_kwargs: Mapping[str, Any],
    weights: str,
) -> None:
    """Raise `UserError` where an agent with one of the configurations can't start from weights."""
    from rltune.agents.loop.agent import Agent

    file = find_checkpoint(weights)
    for config in configs:
        made = Agent(
            agent, env, config, total_timesteps=1, device="cpu", env_kwargs=env_kwargs,
            acts_only=True,
        )  # fmt: skip
        with contextlib.closing(made):
            made.load_weights(file)


def keep_weights(source: str | os.PathLike[str], run: Path) -> None:
    """Copy the weights that a run starts from into it, without what only their own run needs."""
    copy_to_use(find_checkpoint(source), run / WEIGHTS)


def kept_weights(run: str, weights: str | None) -> str | None:
    """Return the copy of the weights that a run started from as commands name it: "RUN/FILE"."""
    return f"{run}/{WEIGHTS}" if weights else None


def copy_to_use(source: Path, target: Path) -> None:
    """Copy a checkpoint without its replay memory: no training goes on from the copy."""
    from rltune.agents.loop import checkpoint

    state = checkpoint.read(source)
    for part in (state, *checkpoint.members(state, source)):
        part.update({name: None for name in ("memory", "replay") if name in part})
    checkpoint.write(target, state)


def _of_training(run: Path, best: bool, trial: int | None) -> Path:
    if trial is not None:
        raise UserError(f"run {run} is a training, it has no trials; leave out --trial")
    found = run / "checkpoints" / ("best.pt" if best else "last.pt")
    if not found.is_file():
        raise UserError(f"run {run} has no checkpoint {found.name} yet")
    return found


def _of_trial(trials: Path, number: int, found: Path) -> Path:
    if not found.is_file():
        raise UserError(
            f"{trials.parent} has no checkpoint of trial {number}; there are: {_numbers(trials)}"
        )
    return found


def _numbers(trials: Path) -> str:
    numbers = sorted(
        int(path.parent.name)
        for path in trials.glob("*/checkpoint.pt")
        if path.parent.name.isdecimal()
    )
    return ", ".join(map(str, numbers)) or "none"
