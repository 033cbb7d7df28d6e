"""Studies of Optuna, read from their storages."""

from __future__ import annotations

import math
from typing import Any

from rltune.agents.errors import UserError
from rltune.importing.trials import (
    COMPLETE,
    FAIL,
    PRUNED,
    ForeignSearch,
    ForeignTrial,
    flat,
    inferred_space,
)

STATES = {"COMPLETE": COMPLETE, "PRUNED": PRUNED, "FAIL": FAIL}


def read_study(storage: str, name: str | None) -> ForeignSearch:
    """Return a study of one objective.

    Args:
        storage: as Optuna takes it, such as sqlite:///optuna.db
        name: of the study; None: the only one

    Raises:
        UserError: there is no such storage or study, or it has several objectives.
    """
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from rltune.study.optuna_log import quiet

    with quiet():
        try:
            names = optuna.get_all_study_names(storage)
        except Exception as error:  # of whatever library opens it
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(f"{storage} can't be opened by Optuna: {said[:200]}") from None
        if name is None and len(names) != 1:
            raise UserError(
                f"{storage} has {len(names)} studies ({', '.join(names[:10])}); give --study NAME"
            )
        name = name or names[0]
        if name not in names:
            raise UserError(f"{storage} has no study {name!r}; it has {', '.join(names[:10])}")
        study = optuna.load_study(study_name=name, storage=storage)
    if len(study.directions) != 1:
        raise UserError(f"study {name!r} has {len(study.directions)} objectives; one is imported")

    def dimension(distribution: Any) -> dict[str, Any]:
        if isinstance(distribution, CategoricalDistribution):
            return {"choice": list(distribution.choices)}
        if isinstance(distribution, IntDistribution):
            more: dict[str, Any] = {"log": True} if distribution.log else {}
            if distribution.step > 1:
                more["step"] = distribution.step
            return {"int": [distribution.low, distribution.high], **more}
        assert isinstance(distribution, FloatDistribution)
        return {"log" if distribution.log else "uniform": [distribution.low, distribution.high]}

    trials = [_trial(trial) for trial in study.trials if trial.state.name in STATES]
    if not trials:
        raise UserError(f"study {name!r} has no trial that has ended")
    told = {
        next(iter(flat({parameter: 0}))): dimension(distribution)
        for trial in study.trials
        for parameter, distribution in trial.distributions.items()
    }
    space = inferred_space([trial.config for trial in trials])
    searched = {key: told.get(key, given) for key, given in space["space"].items()}
    # A parameter that never varied was searched, too.
    searched |= {key: told[key] for key in space.get("fixed", {}) if key in told}
    direction = study.direction.name.lower()
    return ForeignSearch(name, "objective", direction, {"space": searched}, trials)


def _trial(trial: Any) -> ForeignTrial:
    values = {
        int(step): float(value)
        for step, value in sorted(trial.intermediate_values.items())
        if math.isfinite(value)
    }
    if trial.state.name == "COMPLETE" and trial.value is not None:
        last = max(values, default=0)
        values[last if values.get(last) == trial.value else last + 1] = float(trial.value)
    state = STATES[trial.state.name] if values else FAIL
    reason = {PRUNED: "stopped by Optuna's pruner", FAIL: "error: failed in Optuna"}.get(state, "")
    began, ended = trial.datetime_start, trial.datetime_complete
    return ForeignTrial(
        flat(trial.params),
        state,
        values,
        reason,
        began.timestamp() if began else None,
        ended.timestamp() if ended else None,
    )
