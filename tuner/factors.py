"""A search as a design: what its trials varied, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rltune.dimensions import same
from rltune.distributions import make_distribution, nearest, to_unit
from rltune.fanova import N_CELLS, Array, Column, Design
from rltune.formats import plural, score
from rltune.sampler_views import blames
from rltune.space import Space
from rltune.stats import far_below
from rltune.trials_table import as_text

if TYPE_CHECKING:
    from rltune.dimensions import Dimension
    from rltune.runs import Run

BUDGET = "budget"  # the factor: environment steps at which a trial had its value
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Factors:
    """What was varied in a search, the seeds too.

    Attributes:
        design: the trials that count
        budget: the number of the budget's column; None: all values were had at the same budget
        seeds: scores of one configuration on several seeds each, one array per configuration
        per_trial: the part of a seed's variance that is left in a trial's value, a mean of seeds
        notes: sentences on what was left out or is not known
    """

    design: Design
    budget: int | None
    seeds: Sequence[Array]
    per_trial: float
    notes: Sequence[str]


def read_factors(run: Run, seed: int = 0) -> Factors:
    """Read the trials of a search.

    Those that failed through their configuration count with the worst value that was seen, at the
    full budget, for that is where they were to go. Those that failed otherwise are left out.

    Args:
        run: a search
        seed: of the values of inactive parameters, which have no influence
    """
    space = Space.from_dict(run.spec["space"])
    table: list[dict[str, Any]] = run.trials().to_dict("records")  # type: ignore[assignment]
    notes: list[str] = []
    known = [row for row in table if _has_value(row)]
    failed = [row for row in table if row["state"] == "FAIL"]
    blamed = [row for row in failed if known and blames(str(row["reason"]))]
    if blamed:
        notes.append(
            f"{plural(len(blamed), 'trial')} failed through their configuration and count with the "
            "worst value that was seen."
        )
    if len(failed) > len(blamed):
        notes.append(f"{plural(len(failed) - len(blamed), 'failed trial')} left out.")
    worst = min((row["objective"] for row in known), default=0.0)
    full = max((_budget(row) for row in known), default=0)
    rows = [(row, row["objective"], _budget(row)) for row in known]
    rows += [(row, worst, full) for row in blamed]
    placed = [(_places(space, row), value, budget) for row, value, budget in rows]
    usable = [(places, value, budget) for places, value, budget in placed if places is not None]
    if len(usable) < len(placed):
        left = plural(len(placed) - len(usable), "trial")
        notes.append(f"{left} outside of the space left out.")
    every = [places for places, _, _ in usable]
    columns = _columns(space, every)
    shape = (len(usable), len(columns))
    active = np.array([[c.name in p for c in columns] for p in every], dtype=np.bool_).reshape(
        shape
    )
    x = np.random.default_rng(seed).random(shape)
    for row, places in enumerate(every):
        for i, column in enumerate(columns):
            x[row, i] = places.get(column.name, x[row, i])
    budgets = np.array([budget for _, _, budget in usable])
    number = None
    if len(set(budgets.tolist())) > 1:
        number = len(columns)
        edges, centres = _by_frequency(budgets)
        columns.append(Column(BUDGET, edges, "levels"))
        x = np.column_stack([x, centres])
        active = np.column_stack([active, np.ones(len(x), dtype=np.bool_)])
    y = np.array([value for _, value, _ in usable], dtype=np.float64)
    if (fence := far_below(y)) is not None:
        n = int((y < fence).sum())
        notes.append(
            f"{plural(n, 'trial')} far below all others {'counts' if n == 1 else 'count'} as "
            f"{score(fence)}: how poor a poor trial is would drown what sets the others apart."
        )
        y = np.maximum(y, fence)
    per_trial = [1 / max(1, len(_list(row["seeds"]))) for row in known]
    return Factors(
        design=Design(tuple(columns), x, y, active),
        budget=number,
        seeds=_seeds(run, known),
        per_trial=float(np.mean(per_trial)) if per_trial else 1.0,
        notes=notes,
    )


def _has_value(row: Row) -> bool:
    value = row["objective"]
    ended = row["state"] in ("COMPLETE", "PRUNED")
    return ended and value is not None and bool(np.isfinite(value))


def _budget(row: Row) -> int:
    for name in ("rung", "budget_reached"):
        if row[name] is not None and row[name] == row[name]:
            return int(row[name])
    return 0


def _places(space: Space, row: Row) -> dict[str, float] | None:
    """Return where in 0..1 the active parameters are; None: one of them is nowhere in its range.

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


def _columns(space: Space, trials: Sequence[Mapping[str, float]]) -> list[Column]:
    """Return a column for each dimension that the trials varied."""
    varied = {
        name
        for name in space.dimensions
        if len({places[name] for places in trials if name in places}) > 1
    }
    names = [name for name in space.dimensions if name in varied]
    columns: dict[str, Column] = {}
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
        columns[name] = Column(name, _edges(dimension), _kind(dimension), when)
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
    return np.array([0.0, *(to_unit(distribution, one) for one in between), 1.0])


def _by_frequency(values: Any) -> tuple[Array, Array]:
    """Return cells as wide as their values are frequent, and the middle of each value's cell."""
    _, own, counts = np.unique(values, return_inverse=True, return_counts=True)
    edges = np.concatenate([[0.0], np.cumsum(counts) / len(values)])
    edges[-1] = 1.0
    return edges, ((edges[1:] + edges[:-1]) / 2)[own]


def _seeds(run: Run, trials: Iterable[Row]) -> list[Array]:
    """Return the scores on several seeds: of the trials, or else of the tournament's finalists."""
    groups = [_list(row.get("seed_objectives")) for row in trials]
    if not any(len(group) > 1 for group in groups):
        ranking = (run.answer or {}).get("ranking") or []
        groups = [list((one.get("scores") or {}).values()) for one in ranking]
    arrays = [np.array(group, dtype=np.float64) for group in groups]
    return [array[np.isfinite(array)] for array in arrays if np.isfinite(array).sum() > 1]


def _list(cell: Any) -> list[Any]:
    return [] if cell is None or isinstance(cell, float) else list(cell)
