"""Importances of a search's hyperparameters, with intervals and noise floors.

A row per method and parameter: the importance, its 95 % interval, and the noise floor, the most
that the same method finds where the parameter has no influence. docs/importances.md says what the
numbers mean; importances.parquet and importances.csv in the report keep them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

import pandas as pd
from rltune.agents.errors import UserError
from rltune.agents.errors import unknown as unknown_name
from rltune.analysis.importance.chosen_trials import ChosenTrials
from rltune.analysis.importance.design import Factors, read_factors
from rltune.analysis.importance.rows import Importance, unknown
from rltune.analysis.importance.shuffled_trials import ShuffledTrials
from rltune.common.formats import plural
from rltune.runs.reader import RunReader, read_run
from threadpoolctl import threadpool_limits

METHODS = ("fanova", "ped-anova", "permutation")
COLUMNS = (
    "method",
    "parameter",
    "kind",
    "importance",
    "low",
    "high",
    "floor",
    "is_noise",
    "trials",
)
TITLES = {
    "fanova": "fANOVA: what a parameter makes alone",
    "ped-anova": "PED-ANOVA: what the best trials need",
    "permutation": "permutation: what a model misses without it",
}
KINDS = ("parameter", "pair", "seed")
MIN_TRIALS = 20  # with a value; of fewer nothing is said
ENOUGH_TRIALS = 60  # show what makes half of the differences: docs/importances.md
SMALL = 0.05  # a share that one may want to find
SURE = 2  # times the floor is what nine in ten searches find


def importances(
    run: RunReader | str | os.PathLike[str],
    methods: Sequence[str] = METHODS,
    samples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the importances of a search's hyperparameters, a row per method and parameter.

    Columns: method; parameter; kind (`KINDS`); importance, low and high (95 % interval) and floor,
    all of them shares of 1; is_noise; trials, that the row was judged on. ``frame.attrs["notes"]``
    has sentences on what could not be said, ``frame.attrs["needs"]`` says how many trials it takes,
    ``frame.attrs["interval"]`` what the intervals are called.

    Args:
        run: a run, its directory, its name or latest
        methods: of `METHODS`
        samples: of the bootstrap
        seed: of all random numbers; the same search gives the same table

    Raises:
        UserError: there is no such run, it is no search, or there is no such method.
    """
    for method in methods:
        if method not in METHODS:
            raise unknown_name("method", method, METHODS, "--method")
    run = run if isinstance(run, RunReader) else read_run(run)
    if run.rundir.kind != "search":
        raise UserError(f"{run.name} is a training; only a search has importances.")
    return judge(read_factors(run), methods, samples, seed)


def judge(
    factors: Factors, methods: Sequence[str] = METHODS, samples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Return the table of `importances` for these factors."""
    notes, design = list(factors.notes), factors.design
    why_not = factors.why_not or _why_not(factors)
    rows: list[Importance] = []
    if why_not:
        notes.append(f"Nothing is claimed: {why_not}.")
        trials = design.active.sum(axis=0).tolist()
        rows = [
            unknown(method, column.name, count)
            for method in methods
            for column, count in zip(design.columns, trials, strict=True)
        ]
    elif factors.chosen is not None:
        chosen = ChosenTrials(factors, factors.chosen, seed)
        # Its matrices are small: with several threads for each, they wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            rows = [row for method in methods for row in chosen.rows(method)]
        notes += chosen.notes
    else:
        shuffled = ShuffledTrials(factors, samples, seed)
        rows = [row for method in methods for row in shuffled.rows(method)]
        notes += shuffled.notes
    frame = pd.DataFrame([vars(row) for row in rows], columns=list(COLUMNS))
    used = len(design.y) if factors.chosen is None else len(set(factors.chosen.trial.tolist()))
    frame.attrs = {
        "notes": notes,
        "trials": len(design.y),
        "needs": needs(rows, used),
        # Of a model's intervals it is known that they are too narrow (docs/importances.md).
        "interval": "95 % interval" if factors.chosen is None else "interval",
    }
    return frame


def _why_not(factors: Factors) -> str:
    """Return the reason for which nothing can be said; empty when something can."""
    design = factors.design
    count = len(design.y)
    if not len(design.columns):
        return "no parameter was varied"
    if count < MIN_TRIALS:
        return f"{plural(count, 'trial')} with a value, and it takes at least {MIN_TRIALS}"
    return "all values are the same" if design.y.max() == design.y.min() else ""


def needs(rows: Iterable[Importance], trials: int) -> str:
    """Return a sentence on the trials it takes to find a small share; empty without an importance.

    A floor falls as the number of trials grows. A parameter is above it in nine of ten searches
    when its share is twice the floor.
    """
    known = [row for row in rows if row.kind == "parameter" and row.importance == row.importance]
    known = [row for row in known if row.method == known[0].method]
    if not known:
        if trials >= MIN_TRIALS:
            return ""
        return f"About {ENOUGH_TRIALS} trials show a parameter that makes half of the differences."
    floors = sorted(row.floor for row in known)
    shown = SURE * floors[len(floors) // 2]
    found = any(not row.is_noise for row in known)
    says = "" if found else f"{trials} trials can't tell which parameters matter. "
    says += f"With {trials} trials, a share of about {_percent(shown)} is found nine times in ten"
    if shown <= SMALL:
        return f"{says}."
    return (
        f"{says}; for one of {_percent(SMALL)} it takes about {_rounded(shown / SMALL * trials):,}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _rounded(number: float) -> int:
    """Return it in tens, or with two digits that count."""
    step = int(10 ** max(math.floor(math.log10(number)) - 1, 1))
    return math.ceil(number / step) * step


def write(run: RunReader, frame: pd.DataFrame) -> None:
    """Write importances.parquet and importances.csv in the report of the run."""
    folder = f"{run.rundir.report_dir.name}/importances"
    run.rundir.write_parquet(f"{folder}.parquet", frame)
    run.rundir.write_text(f"{folder}.csv", frame.to_csv(index=False))
