"""Imported searches: a run directory of somebody else's trials, to be read by rltune's commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rltune.agents.config import config_hash
from rltune.agents.envs.suite import NO_ENV
from rltune.agents.errors import UserError
from rltune.backends.names import IMPORTED
from rltune.importing.trials import COMPLETE, ForeignSearch, ForeignTrial
from rltune.runs.directory import STORAGE, RunDir, default_name, run_path
from rltune.runs.history import HistoryWriter
from rltune.runs.search_spec import SearchSpec
from rltune.runs.trials_table import TrialsTable
from rltune.samplers.proposer import open_study
from rltune.space.space import Space
from rltune.study.records import StartConfig

SEED = 0  # nobody tells us theirs


def import_search(
    source: str | os.PathLike[str],
    name: str | None = None,
    storage_path: str | os.PathLike[str] = STORAGE,
    *,
    metric: str | None = None,
    mode: str = "max",
    time_attr: str | None = None,
    study: str | None = None,
    env: str | None = None,
) -> Path:
    """Turn a finished experiment of Ray Tune, or a study of Optuna, into a run directory.

    Where less is better, the values change their sign, and the metric is called "-NAME".

    `report`, `show`, `importances`, `compare` and ``--from`` read it like any other; it can't go
    on. Nothing of the source is run or unpickled.

    Args:
        source: the folder of an experiment of Ray Tune, or an Optuna storage, as
            sqlite:///optuna.db
        name: of the run; None: made of the source's
        storage_path: the folder of the runs
        metric, mode, time_attr: of an experiment: what is reported, "max" or "min", and what counts
        study: the name of the study, where a storage has several
        env: what it was about, for titles

    Raises:
        UserError: there is no such thing, or it can't be read.
    """
    found = to_maximize(read_source(str(source), metric, mode, time_attr, study))
    path = run_path(storage_path, name or default_name(found.name, NO_ENV, storage_path))
    space = Space.from_dict(found.space, where=str(source))
    budget = max(max(trial.values) for trial in found.trials if trial.values)
    spec = SearchSpec(
        agent=f"{IMPORTED}{re.sub(r'[^A-Za-z0-9_]', '_', found.name)}",
        env=env or NO_ENV,
        space=space.to_dict(),
        budget=max(1, budget),
        trials=len(found.trials),
        metric=found.metric,
        eval_episodes=1,
        eval_share=None,
        tournament=False,
        scheduler="none",
        report=False,
        wandb="off",
    )
    run = RunDir.create(path, spec.to_dict())
    with run.lock():
        _fill(run, spec, space, found)
    return path


def read_source(
    source: str, metric: str | None, mode: str, time_attr: str | None, study: str | None
) -> ForeignSearch:
    """Return the search of a source; the arguments are those of `import_search`."""
    from rltune.importing.from_optuna import read_study
    from rltune.importing.from_tune import is_experiment, read_experiment

    if mode not in ("max", "min"):
        raise UserError(f"--mode {mode!r}: write max or min")
    if "://" in source:
        return read_study(source, study)
    path = Path(source).expanduser()
    if is_experiment(path):
        direction = "maximize" if mode == "max" else "minimize"
        return read_experiment(path.absolute(), metric, direction, time_attr)
    raise UserError(
        f"{source} is no experiment of Ray Tune (a folder whose trials have a params.json), and no "
        "storage of Optuna; write sqlite:///FILE for one"
    )


def to_maximize(found: ForeignSearch) -> ForeignSearch:
    """Return the search with values that are the better the greater they are, as rltune's."""
    if found.direction == "maximize":
        return found
    trials = [
        replace(trial, values={at: -value for at, value in trial.values.items()})
        for trial in found.trials
    ]
    return replace(found, metric=f"-{found.metric}", direction="maximize", trials=trials)


def _fill(run: RunDir, spec: SearchSpec, space: Space, found: ForeignSearch) -> None:
    """Write study, history and trials."""
    starts, numbers = [], dict[str, int]()
    for trial in found.trials:
        hash_ = config_hash(trial.config)
        if hash_ not in numbers:  # a configuration twice: the study has it once
            numbers[hash_] = len(numbers)
            starts.append(StartConfig("start", trial.config))
    study = open_study(run.path / "study.db", space, sampler="random", starts=starts)
    history = HistoryWriter(run)
    done: set[int] = set()
    try:
        for _ in starts:
            study.ask()
        for trial in found.trials:
            number = numbers[config_hash(trial.config)]
            if number in done:
                continue
            done.add(number)
            _append(history, number, trial)
            for at, value in trial.values.items():
                study.report(number, at, value)
            study.tell(number, trial.state, _last(trial), trial.reason, _attrs(trial))
        table = TrialsTable(run.path / "trials.parquet", spec.goals if len(spec.goals) > 1 else ())
        table.write(study.trials, force=True)
        if (best := study.incumbent()) is not None:
            (run.path / "best").mkdir(exist_ok=True)
            run.write_yaml("best/config.yaml", best.config)
    finally:
        history.close()
        study.close()


def _last(trial: ForeignTrial) -> float | None:
    return trial.values[max(trial.values)] if trial.values else None


def _attrs(trial: ForeignTrial) -> Mapping[str, Any]:
    seconds = (trial.finished or 0.0) - (trial.started or 0.0) if trial.started else None
    last = max(trial.values, default=0)
    return {
        "env_steps": last,
        "budget_reached": last,
        "seeds": [SEED],
        "seed_objectives": [_last(trial)] if trial.state == COMPLETE else [],
        "objective_mean": _last(trial),
        "seconds": seconds,
        "started": trial.started,
        "finished": trial.finished,
    }


def _append(history: HistoryWriter, number: int, trial: ForeignTrial) -> None:
    began = trial.started or 0.0
    span = max(0.0, (trial.finished or began) - began)
    last = max(trial.values, default=1)
    for iteration, (at, value) in enumerate(trial.values.items(), 1):
        history.append(
            {
                "trial": number,
                "seed": SEED,
                "role": "tune",
                "iteration": iteration,
                "env_steps": at,
                "step": at,
                "time": span * at / max(1, last),
                "timestamp": began + span * at / max(1, last),
                "eval_return": value,
                "eval_episodes": 1,
            }
        )
