"""Sample configurations, tried out before a search for mistakes that only values show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.config import Hyperparameter, coerce, hyperparameters
from rltune.agents.errors import UserError
from rltune.space.dimensions import checked_value

if TYPE_CHECKING:
    from rltune.space.space import Space

SAMPLES = 500


def try_out(space: Space, config_class: type[Any]) -> None:
    """Draw configurations as a search does, and see whether the agent can have them.

    What a constraint excludes may be impossible otherwise, too.

    Raises:
        UserError: an expression has no value, a derived value is none that its hyperparameter may
            have, no configuration satisfies the constraints, or the agent refuses one that does.
    """
    rng = np.random.default_rng(0)
    known = hyperparameters(config_class)
    valid = 0
    for _ in range(SAMPLES):
        values = space.suggest(lambda dimension: dimension.sample(rng))
        valid += _try(space, values, known, config_class)
    if not valid:  # rare ones may still be there
        _try(space, space.sample(rng), known, config_class)


def _try(
    space: Space,
    values: Mapping[str, Any],
    known: Mapping[str, Hyperparameter],
    config_class: type[Any],
) -> bool:
    """Whether the values satisfy the constraints; raises what is wrong if they do."""
    config = {**space.fixed, **values}
    failures: list[UserError] = []
    for name in space.derived_order:
        expression = space.derived[name]
        if expression.names <= config.keys():
            try:
                config[name] = _derived(space, name, config, known)
            except UserError as error:
                failures.append(error)
    for constraint in space.constraints:
        if constraint.names <= config.keys():
            try:
                if not space.evaluate(constraint, config):
                    return False
            except UserError as error:
                failures.append(error)
    if failures:
        raise failures[0]
    try:
        # The names are the agent's own, so `make_config` with its aliases would only be slow.
        given = {n: coerce(known[n], v) for n, v in config.items() if n in known and v is not None}
        config_class(**given)
    except UserError as error:
        raise space.source.error((), str(error)) from None
    return True


def _derived(
    space: Space, name: str, config: Mapping[str, Any], known: Mapping[str, Hyperparameter]
) -> Any:
    expression = space.derived[name]
    value = space.evaluate(expression, config)
    if name not in known:
        return value
    try:
        return checked_value(known[name], value)
    except UserError as error:
        raise space.source.error(
            expression.place, f"{expression.with_values(config)}: {error}"
        ) from None
