"""Lineage of trials: the configurations that one has had, and the weights it has taken over.

A trial of `pbt` records under "schedule" what became of it on the way: at which ``env_steps`` it
took over the weights of which ``parent``, to go on with which ``config``. All other trials have
one configuration from beginning to end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.study.records import TrialRecord


def changes_of(trial: TrialRecord) -> list[dict[str, Any]]:
    """Return the changes of a trial on the way: env steps, parent and configuration of each."""
    return list(trial.attrs.get("schedule", ()))


def news_of(trial: TrialRecord) -> list[dict[str, Any]]:
    """Return the same with only those values of the configurations that are new to the trial."""
    news, before = [], trial.config
    for change in changes_of(trial):
        news.append({**change, "config": difference(change["config"], before)})
        before = change["config"]
    return news


def difference(config: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a configuration that differ from those before."""
    return {name: value for name, value in config.items() if value != before.get(name)}


def config_at(trial: TrialRecord, env_steps: int) -> dict[str, Any]:
    """Return the configuration that a trial has from ``env_steps`` on."""
    configs = [change["config"] for change in changes_of(trial) if change["env_steps"] <= env_steps]
    return dict(configs[-1] if configs else trial.config)


def lineage(trials: Mapping[int, TrialRecord], number: int) -> tuple[dict[str, Any], list[Any]]:
    """Return the schedule that a trial's weights were trained with, in whichever trials.

    Returns:
        the configuration that it begins with, and as changes (`messages.Change`) what is new then
    """
    stages: list[tuple[int, dict[str, Any]]] = []
    until = math.inf
    while True:
        mine = [change for change in changes_of(trials[number]) if change["env_steps"] < until]
        if not mine:
            break
        until, number = mine[-1]["env_steps"], mine[-1]["parent"]
        stages.insert(0, (int(until), mine[-1]["config"]))
    first = trials[number].config
    changes, before = [], first
    for env_steps, config in stages:
        if new := difference(config, before):
            changes.append({"env_steps": env_steps, "config": new})
        before = config
    return first, changes
