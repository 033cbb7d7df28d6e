"""Design matrices: the hyperparameters that a search varied, and the values of its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rltune.analysis.importance.fanova import N_CELLS, Array, Design, DesignColumn
from rltune.analysis.importance.response import Values
from rltune.common.formats import plural, score
from rltune.common.reading import reading
from rltune.runs.trials_table import as_text
from rltune.samplers.registry import learns
from rltune.schedulers.registry import is_population
from rltune.space.dimensions import same
from rltune.space.space import Space
from rltune.stats.estimates import far_below
from rltune.study.distributions import make_distribution, nearest, to_unit
from rltune.study.reasons import blames

if TYPE_CHECKING:
    from rltune.runs.reader import RunReader
    from rltune.space.dimensions import Dimension

MAX_BUDGETS = 4  # at which the values of trials are compared
MAX_CHOSEN = 200  # trials that a model of chosen ones learns from: its time grows with their cube
TENFOLD = 0.46  # how far a tenth of the budget is from all of it, where a whole range is 1
POPULATION = "in a population a trial's value is not that of its hyperparameters alone"
TrialRow = Mapping[str, Any]
Reports = Mapping[int, Mapping[int, float]]  # trial -> {env_steps: value}


@dataclass(frozen=True)
class Factors:
    """The factors of a search: its hyperparameters and its seeds.

    Attributes:
        design: the trials that count
        chosen: their values at all budgets, when a sampler chose them or a scheduler cut them; None
            when they were drawn at random and ran the same budget
        seeds: scores of one configuration on several seeds each, one array per configuration
        per_trial: the part of a seed's variance that is left in a trial's value, a mean of seeds
        notes: sentences on trials left out and on unknown shares
        why_not: why nothing can be said of such a search; empty when something can
    """

    design: Design
    chosen: Values | None
    seeds: Sequence[Array]
    per_trial: float
    notes: Sequence[str]
    why_not: str = ""


def read_factors(run: RunReader, seed: int = 0) -> Factors:
    """Read the trials of a search.

    Trials that failed through their configuration count with the worst value that was seen. Trials
    that failed otherwise are left out.

    Args:
        run: a search
        seed: of the values of inactive parameters, which have no influence
    """
    table: list[dict[str, Any]] = run.trials().to_dict("records")  # type: ignore[assignment]
    seeds = _seeds(run, [row for row in table if _has_value(row)])
    return factors_of(run.spec, table, lambda: _reports(run), seeds, seed)


def factors_of(
    spec: Mapping[str, Any],
    table: Sequence[TrialRow],
    reports: Callable[[], Reports],
    seeds: Sequence[Array] = (),
    seed: int = 0,
) -> Factors:
    """Return the factors of a search; see `read_factors`.

    Args:
        spec: of the search
        table: of the trials
        reports: returns each trial's values at the scheduler's budgets
        seeds: scores of one configuration on several seeds each
        seed: of the values of inactive parameters
    """
    space = Space.from_dict(spec["space"])
    known = [row for row in table if _has_value(row)]
    usable, notes = _usable(space, known, [row for row in table if row["state"] == "FAIL"])
    worst = min((row["objective"] for row in known), default=0.0)
    every = [places for _, places in usable]
    columns = _columns(space, every)
    x, active = _matrix(columns, every, seed)
    y = np.array([row["objective"] if _has_value(row) else worst for row, _ in usable], dtype=float)
    chosen = None
    ends = [_budget(row) for row, _ in usable if _has_value(row)]
    if _is_chosen(spec, ends):
        chosen = _values(np.where(active, x, 0.5), [r for r, _ in usable], reports(), ends, seed)
        far, raised = _raised(chosen.y, chosen.trial)
        chosen = replace(chosen, y=(raised - raised.mean()) / max(float(raised.std()), 1e-12))
        if (count := len(set(chosen.trial.tolist()))) < len(y):
            notes.append(f"Of {len(y)} trials, {count} by chance: more would take too long.")
    else:
        far, y = _raised(y, np.arange(len(y)))
    if far:
        notes.append(far)
    per_trial = [1 / max(1, len(_list(row.get("seeds")))) for row in known]
    return Factors(
        design=Design(tuple(columns), x, y, active),
        chosen=chosen,
        seeds=seeds,
        per_trial=float(np.mean(per_trial)) if per_trial else 1.0,
        notes=notes,
        why_not=POPULATION if is_population(spec.get("scheduler")) else "",
    )


def _usable(
    space: Space, known: Sequence[TrialRow], failed: Sequence[TrialRow]
) -> tuple[list[tuple[TrialRow, dict[str, float]]], list[str]]:
    """Return the trials that count with their places in the space, and notes on the others."""
    notes: list[str] = []
    blamed = [row for row in failed if known and blames(str(row["reason"]))]
    if blamed:
        notes.append(
            f"{plural(len(blamed), 'trial')} failed through their configuration and count with the "
            "worst value that was seen."
        )
    if len(failed) > len(blamed):
        notes.append(f"{plural(len(failed) - len(blamed), 'failed trial')} left out.")
    placed = [(row, _places(space, row)) for row in (*known, *blamed)]
    usable = [(row, places) for row, places in placed if places is not None]
    if len(usable) < len(placed):
        left = plural(len(placed) - len(usable), "trial")
        notes.append(f"{left} outside of the space left out.")
    return usable, notes


def _matrix(
    columns: Sequence[DesignColumn], trials: Sequence[Mapping[str, float]], seed: int
) -> tuple[Array, NDArray[np.bool_]]:
    """Return places, random where inactive, and the active ones, both (trials, columns)."""
    shape = (len(trials), len(columns))
    active = np.array([[c.name in p for c in columns] for p in trials], dtype=np.bool_)
    x = np.random.default_rng(seed).random(shape)
    for row, places in enumerate(trials):
        for i, column in enumerate(columns):
            x[row, i] = places.get(column.name, x[row, i])
    return x, active.reshape(shape)


def _raised(y: Array, trial: NDArray[np.intp]) -> tuple[str, Array]:
    """Return the values with those far below all others at the fence, and a sentence on them."""
    fence = far_below(y)
    if fence is None:
        return "", y
    n = len(set(trial[y < fence].tolist()))
    says = f"{plural(n, 'trial')} far below all others {'counts' if n == 1 else 'count'} as "
    says += f"{score(fence)}: how poor a poor trial is would drown what sets the others apart."
    return says, np.maximum(y, fence)


def _is_chosen(spec: Mapping[str, Any], ends: Sequence[int]) -> bool:
    """Whether a sampler that learns chose the trials, or not all had the same budget."""
    learned = learns(spec.get("sampler")) or bool(spec.get("warm_start"))
    return bool(ends) and (learned or len(set(ends)) > 1)


def _values(
    x: Array, rows: Sequence[TrialRow], reports: Reports, ends: Sequence[int], seed: int
) -> Values:
    """Return the values at the budgets at which trials ended.

    A failed trial has the worst value at the next budget that it would have reached.
    """
    counted = Counter(ends)
    often = [budget for budget, _ in counted.most_common(MAX_BUDGETS - 1)]
    budgets = sorted({*often, max(ends)})
    some = np.arange(len(rows))
    if len(some) > MAX_CHOSEN:
        some = np.sort(np.random.default_rng(seed).choice(some, MAX_CHOSEN, replace=False))
    found: list[tuple[int, int, float | None]] = []
    for n in some.tolist():
        row = rows[n]
        own = {b: v for b, v in reports.get(int(row["trial"]), {}).items() if b in budgets}
        if _has_value(row):
            end = budgets[int(np.argmin(np.abs(np.array(budgets) - _budget(row))))]
            own.setdefault(end, row["objective"])
        found += [(n, budget, value) for budget, value in own.items()]
        left = [budget for budget in budgets if budget > max(own, default=0)]
        if not _has_value(row) and left:
            found.append((n, left[0], None))
    worst: dict[int, float] = {}
    for _, budget, value in found:
        if value is not None:
            worst[budget] = min(value, worst.get(budget, value))
    lowest = min(worst.values())
    y = [worst.get(budget, lowest) if value is None else value for _, budget, value in found]
    part = np.array([budget for _, budget, _ in found]) / budgets[-1]
    trial = np.array([n for n, _, _ in found])
    places = np.maximum(1 + TENFOLD * np.log10(np.maximum(part, 1e-9)), 0.0)
    return Values(x[trial], trial, places, np.array(y, dtype=np.float64))


def _reports(run: RunReader) -> Reports:
    """Return the study's values of the trials by env steps; empty without a study."""
    path = run.rundir.study_path
    if not path.exists():
        return {}
    from rltune.study.database import read_study
    from rltune.study.study import intermediate

    with reading(path):
        return {
            trial.number: {step: values[0] for step, values in intermediate(trial).items()}
            for trial in read_study(path)
        }


def _has_value(row: TrialRow) -> bool:
    value = row["objective"]
    ended = row["state"] in ("COMPLETE", "PRUNED")
    return ended and value is not None and bool(np.isfinite(value))


def _budget(row: TrialRow) -> int:
    for name in ("rung", "budget_reached"):
        if row[name] is not None and row[name] == row[name]:
            return int(row[name])
    return 0


def _places(space: Space, row: TrialRow) -> dict[str, float] | None:
    """Return the places of the active parameters in 0..1; None: one lies outside of its range.

    A number beyond the end of its range, as a start may have it, is at the end.
    """
    values: dict[str, Any] = {}
    for name, dimension in space.dimensions.items():
        value = _value(dimension, row.get(f"config.{name}"))
        if value is not None:
            values[name] = value[0]
    places: dict[str, float] = {}
    for name in space.active(values):
        if name not in values:
            return None
        dimension = space.dimensions[name]
        if dimension.kind == "choice":
            index = next(i for i, c in enumerate(dimension.choices) if same(c, values[name]))
            places[name] = (index + 0.5) / len(dimension.choices)
        else:
            places[name] = to_unit(
                make_distribution(dimension), dimension.to_internal(values[name])
            )
    return places


def _value(dimension: Dimension, cell: Any) -> tuple[Any] | None:
    """Return the dimension's value for a cell of the table; None: it has none."""
    cell = cell.item() if hasattr(cell, "item") else cell
    if dimension.kind == "choice":
        for choice in dimension.choices:
            if same(choice, cell) or as_text(choice) == as_text(cell):
                return (choice,)
        return None
    if cell is None or cell != cell:
        return None
    number = nearest(dimension, cell)
    if number is None:
        return None
    return (int(number) if dimension.kind in ("int", "pow2") else number,)


def _columns(space: Space, trials: Sequence[Mapping[str, float]]) -> list[DesignColumn]:
    """Return a column for each dimension that the trials varied."""
    varied = {
        name
        for name in space.dimensions
        if len({places[name] for places in trials if name in places}) > 1
    }
    names = [name for name in space.dimensions if name in varied]
    columns: dict[str, DesignColumn] = {}
    for name in space.order:  # parents before children
        if name not in varied:
            continue
        dimension = space.dimensions[name]
        when: dict[int, NDArray[np.bool_]] = {}
        for parent, wanted in dimension.when.items():
            if parent not in varied:
                continue
            held = [any(same(v, w) for w in wanted) for v in _levels(space.dimensions[parent])]
            for k, cells in {**columns[parent].when, names.index(parent): np.array(held)}.items():
                when[k] = when[k] & cells if k in when else cells
        when = {k: cells for k, cells in when.items() if cells.any()}
        columns[name] = DesignColumn(name, _edges(dimension), _kind(dimension), when)
    return [columns[name] for name in names]


def _kind(dimension: Dimension) -> str:
    if dimension.kind == "choice":
        return "choice"
    return "levels" if _levels(dimension) else "continuous"


def _levels(dimension: Dimension) -> list[Any]:
    """Return the values of a dimension that has few, in order."""
    internal = dimension.internal
    if internal.type == "categorical":
        return list(dimension.choices)
    steps = (internal.high - internal.low) / internal.step
    if internal.type == "float" or steps >= N_CELLS:
        return []
    return [
        dimension.from_internal(internal.low + internal.step * i) for i in range(int(steps) + 1)
    ]


def _edges(dimension: Dimension) -> Array:
    levels = _levels(dimension)
    if not levels:
        return np.linspace(0, 1, N_CELLS + 1)
    if dimension.kind == "choice":
        return np.linspace(0, 1, len(levels) + 1)
    internal, distribution = dimension.internal, make_distribution(dimension)
    between = [internal.low + internal.step * (i - 0.5) for i in range(1, len(levels))]
    return np.array([0.0, *(to_unit(distribution, value) for value in between), 1.0])


def _seeds(run: RunReader, trials: Iterable[TrialRow]) -> list[Array]:
    """Return the scores on several seeds: of the trials, or else of the tournament's finalists."""
    groups = [_list(row.get("seed_objectives")) for row in trials]
    if not any(len(group) > 1 for group in groups):
        ranking = (run.answer or {}).get("ranking") or []
        groups = [list((entry.get("scores") or {}).values()) for entry in ranking]
    arrays = [np.array(group, dtype=np.float64) for group in groups]
    return [array[np.isfinite(array)] for array in arrays if np.isfinite(array).sum() > 1]


def _list(cell: Any) -> list[Any]:
    return [] if cell is None or isinstance(cell, float) else list(cell)
