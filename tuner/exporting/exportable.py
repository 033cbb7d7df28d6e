"""Exportable configurations: the winner, a trial or a training, with score and origin."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rltune.agents.config import config_dict, make_config
from rltune.agents.errors import UserError
from rltune.analysis.summary import Summary, cell_value
from rltune.answer.front import FrontMember, seed_of
from rltune.answer.model import Ranked
from rltune.backends.checkpoints import kept_weights
from rltune.backends.registry import config_class, is_own
from rltune.common.reading import load_yaml
from rltune.common.version import __version__
from rltune.runs.directory import RunDir
from rltune.runs.reader import RunReader
from rltune.runs.search_spec import SearchSpec
from rltune.runs.train_spec import TrainSpec
from rltune.space.surroundings import split
from rltune.stats.estimates import Estimate
from rltune.study.lineage import lineage

if TYPE_CHECKING:
    from rltune.study.records import TrialRecord


@dataclass(frozen=True, kw_only=True)
class Exportable:
    """One training that can be repeated, and where it comes from.

    Attributes:
        spec: all that the training needs, its configuration in full
        origin: a line such as "trial 7, the winner of the search 'cartpole'"
        score: a line on how good it is on seeds that the search never saw; empty: not tested
    """

    spec: TrainSpec
    origin: str
    score: str = ""
    name: str = field(default="")  # of the run

    @property
    def header(self) -> list[str]:
        """Its origin and score, as lines of a comment."""
        what = f"{self.spec.agent} on {self.spec.env}: {self.origin}"
        return [what, *([self.score] if self.score else []), f"exported by rltune {__version__}"]


def exportable(run: RunDir, trial: int | None = None) -> Exportable:
    """Return the winner of a run, one of its trials, or the training that it is.

    Raises:
        UserError: there is no winner yet, or no such trial.
    """
    if run.kind == "train":
        if trial is not None:
            raise UserError(f"run {run.name!r} is a training, it has no trials; leave out --trial.")
        spec = TrainSpec.from_dict(run.spec)
        return Exportable(
            spec=_complete(dataclasses.replace(spec, weights=kept_weights(run.name, spec.weights))),
            origin=f"the training {run.name!r}",
            score="not tested on several seeds: it is one training",
            name=run.name,
        )
    summary = Summary(RunReader(run))
    if trial is None:
        return _winner(run, summary)
    ranked = _ranked(summary, trial)
    if ranked is not None:
        return _of_ranked(run, summary, ranked)
    members = summary.front.members if summary.front is not None else ()
    for member in members:
        if member.trial == trial:
            return _of_member(run, member)
    known = sorted(int(number) for number in summary.trials["trial"])
    if trial not in known:
        there_is = f"it has {known[0]} to {known[-1]}" if known else "it has none yet"
        raise UserError(f"run {run.name!r} has no trial {trial}; {there_is}.")
    config, changes = lineage(_records(summary), trial)
    return _found(run, config, changes, SearchSpec.from_dict(run.spec).first_seed, f"trial {trial}")


def _winner(run: RunDir, summary: Summary) -> Exportable:
    answer = summary.answer
    if answer is not None and answer.best is not None:
        return _of_ranked(run, summary, answer.best)
    if summary.front is not None and summary.front.best is not None:
        return _of_member(run, summary.front.best)
    config = summary.run.best
    if config is None:
        yet = "ended without a winner" if summary.ended_without_winner else "has no winner yet"
        raise UserError(f"run {run.name!r} {yet}; choose a trial: --trial N, or trial=N in Python.")
    schedule = run.best_dir / "schedule.yaml"
    changes = load_yaml(schedule) if schedule.exists() else []
    return _found(run, config, changes, SearchSpec.from_dict(run.spec).first_seed, "the best trial")


def _ranked(summary: Summary, trial: int) -> Ranked | None:
    ranking = summary.answer.ranking if summary.answer is not None else ()
    return next((ranked for ranked in ranking if ranked.trial == trial), None)


def _of_ranked(run: RunDir, summary: Summary, ranked: Ranked) -> Exportable:
    """Return a finalist with the seed of its best test, as the command that a search prints."""
    what = _name(ranked)
    if summary.answer is not None and summary.answer.winner == ranked.trial:
        what += ", the winner"
    seed = max(ranked.scores, key=lambda seed: ranked.scores[seed])
    return _found(run, ranked.config, list(ranked.changes), seed, what, _score(ranked))


def _of_member(run: RunDir, member: FrontMember) -> Exportable:
    """Return a configuration that the answer of a search with several objectives names."""
    what = _name(member) + (", on the front" if member.on_front else "")
    seed = seed_of(member, SearchSpec.from_dict(run.spec))
    if not member.scores:
        return _found(run, member.config, [], seed, what)
    n = min(map(len, member.scores.values()))
    score = _scores({f"{name} ": e for name, e in member.estimates.items()}, n)
    return _found(run, member.config, [], seed, what, score)


def _name(found: Ranked | FrontMember) -> str:
    what = f"trial {found.trial}"
    return what if found.label == what else f"{what} ({found.label})"


def _score(ranked: Ranked) -> str:
    return _scores({"": Estimate(ranked.iqm, ranked.low, ranked.high)}, len(ranked.scores))


def _scores(estimates: Mapping[str, Estimate], n: int) -> str:
    """Return a line with the estimates by their names, from ``n`` seeds."""
    if not all(math.isfinite(estimate.value) for estimate in estimates.values()):
        return f"test score: diverged on some of {n} seeds"
    texts, any_known = [], False
    for name, (value, low, high) in estimates.items():
        known = math.isfinite(low) and math.isfinite(high)
        any_known = any_known or known
        texts.append(f"{name}{value:.6g}" + (f" [{low:.6g}, {high:.6g}]" if known else ""))
    of = f"{n} seeds" if n > 1 else "one seed"
    what = "interquartile mean" + (" and 95 % interval" if any_known else "")
    return f"test score {', '.join(texts)}: {what} of {of}"


def _found(
    run: RunDir,
    config: Mapping[str, Any],
    changes: list[dict[str, Any]],
    seed: int,
    what: str,
    score: str = "not tested on seeds of its own",
) -> Exportable:
    spec = SearchSpec.from_dict(run.spec)
    parts = split(config, spec.env_kwargs, spec.budget)
    training = TrainSpec(
        agent=spec.agent,
        env=spec.env,
        total_timesteps=parts.env_steps,
        config=parts.config,
        schedule=changes,
        env_kwargs=parts.env_kwargs,
        seed=seed,
        **spec.evaluation,
        controls=spec.controls,
        weights=kept_weights(run.name, spec.weights),
    )
    origin = f"{what} of the search {run.name!r}"
    return Exportable(spec=_complete(training), origin=origin, score=score, name=run.name)


def _complete(spec: TrainSpec) -> TrainSpec:
    """Return the training with all hyperparameters in its configuration."""
    if is_own(spec.agent):  # nothing is imported; a run holds the whole configuration
        return spec
    made = make_config(config_class(spec.agent), spec.config)
    return dataclasses.replace(spec, config=config_dict(made))


def _records(summary: Summary) -> dict[int, TrialRecord]:
    """Return the trials as `lineage` reads them, from the table alone."""
    from rltune.study.records import TrialRecord

    found = {}
    table = summary.trials
    for row in table.to_dict("records"):
        number = int(row["trial"])
        config = summary.config(number)
        changes, before = [], config
        for change in _list(row.get("schedule")):
            before = {**before, **change["config"]}
            changes.append({**change, "config": before})
        found[number] = TrialRecord(
            number=number,
            state=str(row["state"]),
            reason="",
            origin=str(row["origin"]),
            config=config,
            hash=str(row["hash"]),
            value=None,
            intermediate={},
            attrs={"schedule": changes} if changes else {},
            started=None,
            finished=None,
        )
    return found


def _list(cell: object) -> list[dict[str, Any]]:
    """Return a cell that holds a list, or nothing."""
    value = cell_value(cell)
    return value if isinstance(value, list) else []


def commented(lines: list[str]) -> str:
    """Return lines as comments of a shell script, of Python or of YAML."""
    # A name with a line break in it would be no comment any more.
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)
