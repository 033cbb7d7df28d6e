"""The winner of a search, another trial of it or a training, as something that others can use.

`rltune export` writes what trains it again: with rltune, rl-zoo3, Stable-Baselines3, CleanRL or
RLlib. Reads the run directory alone; no path of the machine and no secret comes out.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import yaml
from rltune.agents.config import config_dict, make_config
from rltune.agents.envs.suite import is_suite
from rltune.agents.errors import UserError, unknown
from rltune.analysis.summary import Summary, cell_value
from rltune.answer.front import Member, seed_of
from rltune.answer.model import Ranked
from rltune.backends.checkpoints import kept_weights
from rltune.backends.names import is_own
from rltune.backends.registry import config_class
from rltune.common.reading import load_yaml
from rltune.common.version import __version__
from rltune.runs.directory import RunDir
from rltune.runs.reader import RunReader
from rltune.runs.search_spec import SearchSpec
from rltune.runs.train_spec import retrain_command
from rltune.space.recipes import KEYS
from rltune.space.surroundings import split
from rltune.stats.estimates import FEW_RUNS, Estimate
from rltune.study.lineage import lineage
from rltune.training_loop import TrainSpec

if TYPE_CHECKING:
    from rltune.study.records import TrialRecord

STDIN = "/dev/stdin"  # takes a schedule along in the command, without a file


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
        """Where it comes from, as lines of a comment."""
        what = f"{self.spec.agent} on {self.spec.env}: {self.origin}"
        return [what, *([self.score] if self.score else []), f"exported by rltune {__version__}"]


def export(
    run: str | os.PathLike[str] | RunReader,
    to: str = "rltune",
    trial: int | None = None,
    own_code: bool = False,
) -> str:
    """Return the winner, or another trial, or a training's configuration, in the words of others.

    Args:
        run: the run directory, its name, or latest
        to: "rltune", "yaml", "json", "zoo", "sb3", "cleanrl" or "rllib"
        trial: of a search; None: the winner
        own_code: whether an environment of the user's own may be imported, which the words of
            others need; a run directory may come from anybody

    Raises:
        UserError: nothing to export yet, no such trial or format, or no equal for what it uses.
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS, "--to")
    path = getattr(run, "path", run)
    found = exportable(RunDir.open(cast("str | os.PathLike[str]", path)), trial)
    if to not in _ANY:
        _check_simple(found.spec, to)
        if ":" in found.spec.env and not own_code:
            raise UserError(
                f"--to {to} has to make the environment {found.spec.env!r}, and what only reads a "
                "run imports no code that it names; --own-code allows it."
            )
    module, name = FORMATS[to]
    render: Callable[[Exportable], str] = getattr(importlib.import_module(module), name)
    return render(found)


_ANY = ("rltune", "yaml", "json")
FORMATS = {
    "rltune": ("rltune.exported", "as_command"),
    "yaml": ("rltune.exported", "as_yaml"),
    "json": ("rltune.exported", "as_json"),
    "zoo": ("rltune.export_sb3", "as_zoo"),
    "sb3": ("rltune.export_sb3", "as_sb3"),
    "cleanrl": ("rltune.export_cleanrl", "as_cleanrl"),
    "rllib": ("rltune.export_rllib", "as_rllib"),
}


def _check_simple(spec: TrainSpec, to: str) -> None:
    """Raise for what only rltune itself can repeat."""
    instead = f"--to {to} can't say; --to {', '.join(_ANY[:-1])} or {_ANY[-1]} can."
    if is_suite(spec.env):
        raise UserError(f"this run has several environments at once, which {instead}")
    if spec.weights:
        raise UserError(f"this training starts from weights, which {instead}")
    if spec.schedule:
        raise UserError(f"its hyperparameters change as it trains, which {instead}")


# ------------------------------------------------------------------------------ from the directory


def exportable(run: RunDir, trial: int | None = None) -> Exportable:
    """Return what of a run can be exported.

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
        raise UserError(f"run {run.name!r} {yet}; choose a trial: --trial N.")
    schedule = run.best_dir / "schedule.yaml"
    changes = load_yaml(schedule) if schedule.exists() else []
    return _found(run, config, changes, SearchSpec.from_dict(run.spec).first_seed, "the best trial")


def _ranked(summary: Summary, trial: int) -> Ranked | None:
    ranking = summary.answer.ranking if summary.answer is not None else ()
    return next((one for one in ranking if one.trial == trial), None)


def _of_ranked(run: RunDir, summary: Summary, ranked: Ranked) -> Exportable:
    """Return a finalist with the seed of its best test, as the command that a search prints."""
    what = _name(ranked)
    if summary.answer is not None and summary.answer.winner == ranked.trial:
        what += ", the winner"
    seed = max(ranked.scores, key=lambda one: ranked.scores[one])
    return _found(run, ranked.config, list(ranked.changes), seed, what, _score(ranked))


def _of_member(run: RunDir, member: Member) -> Exportable:
    """Return a configuration that the answer of a search with several objectives names."""
    what = _name(member) + (", on the front" if member.on_front else "")
    seed = seed_of(member, SearchSpec.from_dict(run.spec))
    if not member.scores:
        return _found(run, member.config, [], seed, what)
    n = min(map(len, member.scores.values()))
    score = _scores({f"{name} ": one for name, one in member.estimates.items()}, n)
    return _found(run, member.config, [], seed, what, score)


def _name(one: Ranked | Member) -> str:
    what = f"trial {one.trial}"
    return what if one.label == what else f"{what} ({one.label})"


def _score(ranked: Ranked) -> str:
    return _scores({"": Estimate(ranked.iqm, ranked.low, ranked.high)}, len(ranked.scores))


def _scores(estimates: Mapping[str, Estimate], n: int) -> str:
    """Return a line with the estimates by their names, from ``n`` seeds."""
    if not all(math.isfinite(one.value) for one in estimates.values()):
        return f"test score: diverged on some of {n} seeds"
    texts = []
    for name, (value, low, high) in estimates.items():
        known = math.isfinite(low) and math.isfinite(high)
        texts.append(f"{name}{value:.6g}" + (f" [{low:.6g}, {high:.6g}]" if known else ""))
    of = f"{n} seeds" if n > 1 else "one seed"
    what = "interquartile mean" + (" and 95 % interval" if n >= FEW_RUNS else "")
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


# --------------------------------------------------------------------------------------- our words


def commented(lines: list[str]) -> str:
    """Return lines as comments of a shell script, of Python or of YAML."""
    # A name with a line break in it would be no comment any more.
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def as_command(found: Exportable) -> str:
    """Return the command that trains it again, bit for bit on a CPU."""
    spec = found.spec
    known = not is_own(spec.agent)
    defaults = config_dict(make_config(config_class(spec.agent), {})) if known else {}
    command = retrain_command(
        spec.agent,
        spec.env,
        spec.total_timesteps,
        spec.config,
        defaults,
        spec.seed,
        STDIN if spec.schedule else "[]",
        env_kwargs=spec.env_kwargs,
        controls=spec.controls,
        evaluation={
            "eval_freq": spec.eval_freq,
            "eval_episodes": spec.eval_episodes,
            "eval_mode": spec.eval_mode,
        },
        weights=spec.weights,
    )
    if spec.schedule:
        changes = "".join(f"- {json.dumps(change)}\n" for change in spec.schedule)
        command += f" <<'SCHEDULE'\n{changes}SCHEDULE"
    return commented(found.header) + command + "\n"


def as_yaml(found: Exportable) -> str:
    """Return what `rltune train --config` reads, and the `start` of a search space."""
    text: str = yaml.safe_dump(_words(found.spec), sort_keys=False, allow_unicode=True, width=100)
    return commented(found.header) + text


def as_json(found: Exportable) -> str:
    """Return the same for programs."""
    return json.dumps({"about": found.header, **_words(found.spec)}, indent=2) + "\n"


def _words(spec: TrainSpec) -> dict[str, Any]:
    values = {**dataclasses.asdict(spec), "budget": spec.total_timesteps}
    return {name: values[name] for name in KEYS if values[name] or name in ("seed", "config")}
