"""The answer of a search, written into its run directory: best/ and its files."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.answer.command import command_of
from rltune.answer.front import Front, make_front, seed_of
from rltune.answer.model import Answer, Circumstances
from rltune.answer.ranking import build_answer
from rltune.answer.tournament import Tournament, pick_finalists
from rltune.backends.checkpoints import copy_to_use, kept_weights
from rltune.runs.history import read_history
from rltune.samplers.registry import check_options
from rltune.schedulers.registry import is_population
from rltune.study.lineage import lineage
from rltune.study.reasons import TIME_LIMIT
from rltune.study.records import is_reference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rltune.runs.directory import RunDir
    from rltune.runs.search_spec import SearchSpec
    from rltune.study.records import TrialRecord
    from rltune.study.study import SearchStudy


def conclude(
    run: RunDir,
    spec: SearchSpec,
    study: SearchStudy,
    scores: dict[tuple[int, int], float],
    defaults: dict[str, Any],
    not_started: int = 0,
) -> dict[str, Any]:
    """Write best/ and return the summary that wandb and others show.

    Without a winner best/ names no configuration, and the files of an earlier answer are removed.

    Args:
        run: the run directory
        spec: the search
        study: its trials
        scores: of the tournament, by (trial, seed)
        defaults: the agent's own configuration
        not_started: proposals for which there was no time
    """
    if spec.against:
        return _conclude_front(run, spec, study, scores, defaults, not_started)
    incumbent = study.incumbent()
    answer = None
    if spec.tournament or incumbent is None:
        answer = _answer(spec, study, scores, not_started)
        run.write_yaml("best/answer.yaml", answer.to_dict())
    if answer is not None and answer.best is not None:
        best, config, changes = answer.best.trial, answer.best.config, list(answer.best.changes)
        finished = answer.best.scores
        seed = max(finished, key=lambda seed: finished[seed])
        checkpoint = run.trial_dir(best) / f"test-{seed}.pt"
    elif incumbent is not None and not (answer and answer.ranking):
        best, seed = incumbent.number, spec.tune_seed
        config, changes = lineage({trial.number: trial for trial in study.trials()}, best)
        checkpoint = run.checkpoint(best)
    else:
        _clear_best(run)
        return outcome(answer)
    _write_best(run, config, checkpoint)
    schedule = run.best_dir / "schedule.yaml"
    schedule.unlink(missing_ok=True)  # of an earlier answer
    if changes:
        run.write_yaml("best/schedule.yaml", changes)
    weights = kept_weights(run.name, spec.weights)
    command = command_of(spec, weights, config, defaults, seed, changes)
    run.write_text("best/command.txt", command + "\n")
    return {"best_trial": best, "best_config": config, **outcome(answer), "command": command}


def outcome(answer: Answer | None) -> dict[str, Any]:
    """Return the numbers of the answer, as it shows them, and its first sentence."""
    if answer is None:
        return {}
    best = answer.best
    found: dict[str, Any] = {
        "answer": answer.sentences[0],
        "test_score": best.iqm if best else None,
        "beats_default": answer.beats_default,
    }
    if best is not None and best.difference is not None:
        ends = best.difference
        found["over_default"] = ends.value
        if math.isfinite(ends.low) and math.isfinite(ends.high):
            found |= {"over_default_low": ends.low, "over_default_high": ends.high}
    return found


def _clear_best(run: RunDir) -> None:
    """Take away the configuration that an earlier answer named."""
    for name in ("config.yaml", "command.txt", "schedule.yaml", "checkpoint.pt"):
        (run.best_dir / name).unlink(missing_ok=True)
    for clip in run.best_dir.glob("clip.*"):
        clip.unlink()


def _conclude_front(
    run: RunDir,
    spec: SearchSpec,
    study: SearchStudy,
    scores: dict[tuple[int, int], float],
    defaults: dict[str, Any],
    not_started: int,
) -> dict[str, Any]:
    """Write best/ of a search with several objectives; the first one decides which is best."""
    trials = study.trials()
    finalists = []
    if spec.tournament:
        finalists = pick_finalists(trials, spec.finalists, study.minimize)
        seeds, planned = spec.tournament_seeds, spec.test_seeds
        finalists = Tournament(finalists, seeds, planned, scores, race=False).results()
    about = _circumstances(spec, trials, not_started)
    told = replace(spec, weights=kept_weights(run.name, spec.weights))
    front: Front = make_front(told, trials, finalists, read_history(run.path), defaults, about)
    run.write_yaml("best/front.yaml", front.to_dict())
    best = front.best
    if best is None:
        _clear_best(run)
        return {"answer": front.sentences[0]}
    seed = seed_of(best, spec)
    tested = run.trial_dir(best.trial) / f"test-{seed}.pt"
    _write_best(run, best.config, tested if front.tested else run.checkpoint(best.trial))
    run.write_text("best/command.txt", best.command + "\n")
    return {
        "best_trial": best.trial,
        "best_config": best.config,
        "test_score": best.values()[0] if front.tested else None,
        "front": [member.trial for member in front.members if member.on_front],
        "command": best.command,
    }


def _write_best(run: RunDir, config: dict[str, Any], checkpoint: Path) -> None:
    if checkpoint.exists():
        copy_to_use(checkpoint, run.best_dir / "checkpoint.pt")
    run.write_yaml("best/config.yaml", config)


def _answer(
    spec: SearchSpec, study: SearchStudy, scores: dict[tuple[int, int], float], not_started: int
) -> Answer:
    trials = study.trials()
    finalists = pick_finalists(trials, spec.finalists)
    tournament = Tournament(finalists, spec.tournament_seeds, spec.test_seeds, scores)
    about = _circumstances(spec, trials, not_started)
    if (best := study.incumbent()) is not None and best.value is not None:
        about = replace(about, best_of_search=(best.number, best.value))
    return build_answer(tournament.results(), about)


def _circumstances(
    spec: SearchSpec, trials: Sequence[TrialRecord], not_started: int
) -> Circumstances:
    sampler = check_options(spec.sampler, spec.sampler_options)
    ended = [trial for trial in trials if trial.state in ("COMPLETE", "PRUNED", "FAIL")]
    failures = Counter(trial.reason.strip() for trial in ended if trial.state == "FAIL")
    return Circumstances(
        planned_seeds=spec.test_seeds,
        full_budget_trials=sum(trial.state == "COMPLETE" for trial in ended),
        # Of a population, nothing is left to the sampler but its beginning.
        sampled_trials=None
        if is_population(spec.scheduler)
        else sum(not is_reference(trial.origin) for trial in ended),
        startup_trials=0 if spec.warm_start else sampler.get("n_startup_trials", 0),
        sampler=spec.sampler,
        cut_by_time_limit=any(trial.reason.startswith(TIME_LIMIT) for trial in ended)
        or (spec.time_limit is not None and len(ended) < (spec.trials or 0)),
        not_started=not_started,
        failed_trials=failures.total(),
        failure=next((reason.partition("\n")[0] for reason, _ in failures.most_common(1)), ""),
    )
