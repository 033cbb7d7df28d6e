"""Trainings read from run directories; of a search, its re-trainings on test seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import Scale, is_suite, parse_suite
from rltune.agents.errors import UserError
from rltune.analysis.summary import Summary
from rltune.comparing.trainings import EVALUATION, Curve, TrainingRecord, canonical, env_name
from rltune.objectives.metrics import DEFAULT, METRIC
from rltune.runs.directory import RunDir
from rltune.runs.reader import RunReader

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Tested:
    """A configuration of a search, with its scores on test seeds (-inf: diverged)."""

    trial: int
    config: Mapping[str, Any]
    scores: Mapping[int, float]
    finalists: int


def read_run(
    path: Path, metric: str = EVALUATION, *, defaults: bool = False
) -> list[TrainingRecord]:
    """Return the trainings of a run directory.

    Args:
        path: the run directory
        metric: a column of the history; with a minus in front, the lower the better
        defaults: of a search the agent's defaults, too, beside its answer

    Raises:
        UserError: there is nothing to compare yet, or no such metric.
    """
    summary = Summary(RunReader(RunDir.open(path)))
    if not len(summary.history):
        raise UserError(f"{path} has recorded nothing yet.")
    if summary.kind == "train":
        return _trainings(summary, metric)
    return _retrainings(summary, metric, defaults=defaults)


def _trainings(summary: Summary, metric: str) -> list[TrainingRecord]:
    spec, rows = summary.spec, summary.history
    broken = "diverged" in rows and bool((rows["diverged"] > 0).any())
    config = _whole(spec.get("config") or {}, spec.get("schedule"), spec.get("weights"))
    about = {"agent": spec["agent"], "config": config, "variant": canonical(config),
             "seed": spec.get("seed"), "planned": spec.get("total_timesteps"),
             "diverged": broken}  # fmt: skip
    return list(_legs(summary, rows, metric, about))


def _retrainings(summary: Summary, metric: str, *, defaults: bool) -> list[TrainingRecord]:
    spec, path = summary.spec, summary.path
    winner, standard = _tested(summary)
    if winner is None or not winner.scores:
        raise UserError(
            f"{path} has no answer on test seeds yet: rltune resume {path.name} goes on with it; "
            "a search with --no-tournament can't be compared."
        )
    chosen = [("tuned", winner, str(path))]
    if defaults and standard is not None and standard.trial != winner.trial:
        chosen.append(("defaults", standard, canonical(standard.config)))
    rows = summary.history[summary.history["role"] == "test"]
    tuned_for = " of ".join(
        str(spec.get(key, usual))
        for key, usual in (("objective", DEFAULT), ("metric", METRIC))
        if str(spec.get(key, usual)) != usual
    )
    own = f"The answer of {summary.run.name} is the agent's own defaults."
    found = []
    for what, tested, variant in chosen:
        for seed, score in tested.scores.items():
            about = {
                "agent": f"{spec['agent']} {what}", "config": tested.config, "variant": variant,
                "seed": seed, "planned": spec.get("budget"), "diverged": not math.isfinite(score),
                "finalists": tested.finalists if what == "tuned" else 0,
                "tuned_for": tuned_for if what == "tuned" else "",
                "remark": own if what == "tuned" and tested is standard else "",
            }  # fmt: skip
            mine = rows[(rows["trial"] == tested.trial) & (rows["seed"] == seed)]
            found += list(_legs(summary, mine, metric, about))
    return found


def _tested(summary: Summary) -> tuple[_Tested | None, _Tested | None]:
    """Return the search's answer and the agent's defaults, with their scores on test seeds."""
    weights = summary.spec.get("weights")
    if summary.answer is not None:
        ranking = summary.answer.ranking
        tested = {
            ranked.trial: _Tested(
                ranked.trial,
                _whole(ranked.config, ranked.changes, weights),
                ranked.scores,
                len(ranking),
            )
            for ranked in ranking
        }
        default = next((ranked.trial for ranked in ranking if ranked.is_default), -1)
        winner = summary.answer.winner
        return tested.get(-1 if winner is None else winner), tested.get(default)
    if summary.front is not None and summary.front.tested and summary.front.best is not None:
        goal, members = summary.front.goals[0].name, summary.front.members
        tested = {
            member.trial: _Tested(
                member.trial,
                _whole(member.config, None, weights),
                member.scores.get(goal, {}),
                len(members),
            )
            for member in members
        }
        default = next((member.trial for member in members if "default" in member.origins), -1)
        return tested[summary.front.best.trial], tested.get(default)
    return None, None


def _whole(config: Mapping[str, Any], schedule: object, weights: object) -> dict[str, Any]:
    """Return the configuration with its schedule and initial weights, if any."""
    more = {"schedule": schedule, "weights": weights}
    return {**config, **{name: value for name, value in more.items() if value}}


def _legs(
    summary: Summary, rows: pd.DataFrame, metric: str, about: Mapping[str, Any]
) -> Iterator[TrainingRecord]:
    """Yield the training of these rows; of several environments at once, one on each."""
    spec, name = summary.spec, summary.run.name
    env = str(spec["env"])
    column, sign = metric.removeprefix("-"), -1.0 if metric.startswith("-") else 1.0
    parts: list[tuple[str, str, Scale | None]] = [
        (env_name(env, spec.get("env_kwargs")), column, None)
    ]
    share = 1
    if is_suite(env):
        scales = parse_suite(env)
        parts, share = [(s.env, f"{column}/{s.env}", s) for s in scales], len(scales)
    rows = rows.sort_values("iteration")
    for place, source, scale in parts:
        if source not in summary.history:
            known = ", ".join(sorted(n for n in map(str, summary.history) if n.startswith("eval_")))
            raise UserError(f"{summary.path} has no metric {column!r}; it has {known}.")
        mine = rows.dropna(subset=[source])
        curve = Curve(
            mine["env_steps"].to_numpy(float) / share,
            sign * mine[source].to_numpy(float),
            mine["time"].to_numpy(float),
        )
        planned = about["planned"]
        more = {**about, "planned": planned and planned // share}
        reached = int(rows["env_steps"].max()) // share if len(rows) else 0
        yield TrainingRecord(
            name=name, source=summary.path, env=place, scale=scale, curve=curve, metric=metric,
            reached=reached, **more,
        )  # fmt: skip
