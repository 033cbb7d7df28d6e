"""The learning-curve front: a search's best objective against env steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.analysis.replay_scheduler import reports
from rltune.objectives.goals import STEPS
from rltune.objectives.metrics import metric_of, objective_of
from rltune.runs.search_spec import SearchSpec
from rltune.stats.estimates import bootstrap_interval, iqm

if TYPE_CHECKING:
    import pandas as pd
    from rltune.runs.reader import RunReader


def learning_front(run: RunReader, against: str = STEPS) -> pd.DataFrame:
    """Return the front of the objective against env steps: the best value so far, and its trial.

    All evaluations of the search compete, those of trials that were stopped later included. The
    values are those of the search, so they were chosen for being the best. Where a trial was
    trained again on test seeds, its value there is beside it.

    Args:
        run: of a search
        against: the resource; there is `goals.STEPS` only

    Returns:
        a row per point of the front: env_steps, trial, objective, and of the tests the
        interquartile mean at that point (test), its 95 % interval (low, high) and the number of
        seeds
    """
    import pandas as pd

    if against != STEPS:
        raise UserError(
            f"--against {against}: of a search that has run, only {STEPS} can be looked "
            f"at; rltune run ... --against {against} searches for that front."
        )
    if run.rundir.kind != "search":
        raise UserError(f"{run.path} is a training; only a search has a front.")
    spec, history = SearchSpec.from_dict(run.spec), run.history()
    columns = ["env_steps", "trial", "objective", "test", "low", "high", "seeds"]
    if not len(history) or "eval_return" not in history:
        return pd.DataFrame(columns=columns)
    table = run.trials()
    complete = set(table["trial"][table["state"] == "COMPLETE"])
    seen = [(p, -value, trial) for trial, p, value, *_ in reports(history, spec, complete)]
    tests = history[history["role"] == "test"].dropna(subset=["eval_return"])
    rows: list[dict[str, Any]] = []
    for point, loss, trial in sorted(seen):
        if rows and -loss <= rows[-1]["objective"]:
            continue
        row = {"env_steps": point, "trial": trial, "objective": -loss}
        rows.append({**row, **_tested(tests[tests["trial"] == trial], point, spec)})
    return pd.DataFrame(rows, columns=columns)


def _tested(tests: pd.DataFrame, point: int, spec: SearchSpec) -> dict[str, float]:
    """Return the scores of a trial's re-trainings at this point, as columns of the front."""
    scores = []
    by_seed: Any = tests.sort_values("iteration").groupby("seed")
    for _, rows in by_seed:
        reached = [(spec.points[row["iteration"] - 1], row) for row in rows.to_dict("records")]
        so_far = [metric_of(row, spec.metric) for at, row in reached if at <= point]
        if so_far and reached[-1][0] >= point:
            scores.append(objective_of(so_far, spec.objective))
    if not scores:
        return {"seeds": 0}
    low, high = bootstrap_interval(scores)
    return {"test": iqm(scores), "low": low, "high": high, "seeds": len(scores)}
