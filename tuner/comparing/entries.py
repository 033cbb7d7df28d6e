"""Entries of a comparison: a label, and its trainings on one environment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rltune.agents.errors import UserError
from rltune.common.formats import plural, settings
from rltune.comparing.own_runs import read_run
from rltune.comparing.sb3_logs import holds_logs, read_logs
from rltune.comparing.trainings import EVALUATION, TrainingRecord
from rltune.runs.directory import find_run

MOST_NAMED = 3  # hyperparameters that tell agents apart by a label

Place: TypeAlias = str | os.PathLike[str]
# A list of "PATH" or "LABEL=PATH", or a dict from label to one path or several.
Runs: TypeAlias = Place | Iterable[Place] | Mapping[str, Place | Iterable[Place]]


@dataclass(frozen=True)
class Entry:
    """The trainings of one label on one environment: its seeds."""

    label: str
    env: str
    trainings: tuple[TrainingRecord, ...]

    def scores(self, objective: str, until: float | None = None) -> list[float]:
        """Return the score of each; -inf for one that diverged."""
        return [training.score(objective, until) for training in self.trainings]


def collect(
    runs: Runs, metric: str = EVALUATION, *, env: str | None = None, defaults: bool = False
) -> tuple[list[Entry], list[str]]:
    """Return the entries in the order given, and sentences on trainings left out.

    Args:
        runs: paths, see `Runs`
        metric: the column of the history to compare
        env: the environment of logs that don't say it
        defaults: of searches the agents' defaults, too

    Raises:
        UserError: something isn't there, is damaged, or has no such metric.
    """
    labelled: list[tuple[str | None, TrainingRecord]] = []
    for label, path in _paths(runs):
        labelled += [
            (label, training) for training in read(path, metric, env=env, defaults=defaults)
        ]
    if not labelled:
        raise UserError("give the runs or folders to compare.")
    return _grouped(labelled)


def read(
    path: Place, metric: str = EVALUATION, *, env: str | None = None, defaults: bool = False
) -> list[TrainingRecord]:
    """Return the trainings of a run, of a folder of runs, or of Stable-Baselines3's logs."""
    place = find_run(path)
    if (place / "run.yaml").exists():
        return read_run(place, metric, defaults=defaults)
    runs = sorted(file.parent for file in place.glob("*/run.yaml")) if place.is_dir() else []
    if runs:
        return [training for run in runs for training in read_run(run, metric, defaults=defaults)]
    if holds_logs(place):
        return read_logs(place, metric, env)
    raise UserError(
        f"{place} is no run directory of rltune and has no logs of Stable-Baselines3 "
        "(monitor.csv, evaluations.npz)."
    )


def _paths(runs: Runs) -> list[tuple[str | None, Place]]:
    if isinstance(runs, (str, os.PathLike)):
        runs = [runs]
    if not isinstance(runs, Mapping):
        return [_parsed(run) for run in runs]
    found: list[tuple[str | None, Place]] = []
    for label, places in runs.items():
        several = [places] if isinstance(places, (str, os.PathLike)) else places
        found += [(label, place) for place in several]
    return found


def _parsed(text: Place) -> tuple[str | None, Place]:
    """Return (label, path) of "LABEL=PATH"; a path may have a = of its own."""
    label, equals, path = os.fspath(text).partition("=")
    if not equals or Path(text).expanduser().exists() or "/" in label:
        return None, text
    if not label.strip() or not path:
        raise UserError(f"{os.fspath(text)!r}: write LABEL=PATH, with both.")
    return label.strip(), path


def _grouped(
    labelled: Sequence[tuple[str | None, TrainingRecord]],
) -> tuple[list[Entry], list[str]]:
    names = _names([training for label, training in labelled if label is None])
    groups: dict[tuple[str, str], dict[object, TrainingRecord]] = {}
    repeats: dict[str, int] = {}
    for given, training in labelled:
        label = given or names[training.agent, training.variant]
        group = groups.setdefault((label, training.env), {})
        if training.identity in group:
            repeats[label] = repeats.get(label, 0) + 1
        group.setdefault(training.identity, training)
    remarks = [
        f"{label}: {plural(n, 'training')} with the configuration, seed and length of another "
        "count once."
        for label, n in repeats.items()
    ]
    entries = [Entry(label, env, tuple(group.values())) for (label, env), group in groups.items()]
    return entries, remarks


def _names(trainings: Sequence[TrainingRecord]) -> dict[tuple[str, str], str]:
    """Return a label for each agent and variant.

    Trainings of an agent are seeds of one entry, unless there are several variants of it on the
    same environment: then its label says what they differ by.
    """
    names: dict[tuple[str, str], str] = {}
    for agent in dict.fromkeys(training.agent for training in trainings):
        mine = [training for training in trainings if training.agent == agent]
        first = {training.variant: training for training in reversed(mine)}
        apart = len({(training.env, training.variant) for training in mine}) > len(
            {training.env for training in mine}
        )
        named = {
            variant: _told_apart(training, list(first.values()))
            for variant, training in first.items()
        }
        unique = len(set(named.values())) == len(named)
        for variant, training in first.items():
            names[agent, variant] = (
                agent if not apart else named[variant] if unique else f"{agent} ({training.name})"
            )
    return names


def _told_apart(training: TrainingRecord, others: Sequence[TrainingRecord]) -> str:
    """Return the agent's name with the hyperparameters by which it differs, or its run's name."""
    if training.agent.endswith(" tuned"):
        return training.name
    configs: list[Mapping[str, Any]] = [other.config or {} for other in others]
    keys = dict.fromkeys(key for config in configs for key in config)
    missing = object()
    differing = [
        k for k in keys if any(c.get(k, missing) != configs[0].get(k, missing) for c in configs)
    ]
    if training.config is None or not 0 < len(differing) <= MOST_NAMED or "schedule" in differing:
        return f"{training.agent} ({training.name})"
    return f"{training.agent}, {', '.join(settings(training.config, differing))}"
