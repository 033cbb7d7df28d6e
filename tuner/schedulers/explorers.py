"""Exploration in population based training: how members get other hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.config import Hyperparameter
from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension
    from rltune.space.space import Space

MAX_TRIES = 100  # changes that break a constraint before a member keeps its parent's values
# A change: a factor on a logarithmic scale, a part of the range on a linear one.
FACTOR = 1.25
SHIFT = 0.1


@dataclass(frozen=True)
class PopulationMember:
    """A member of the population at a pause.

    Attributes:
        number: of its trial
        config: that it has now
        value: its objective
        fixed: whether it is a point of comparison, which is never changed
    """

    number: int
    config: dict[str, Any]
    value: float
    fixed: bool


@dataclass(frozen=True)
class Observation:
    """The gain of a training with a configuration, from one pause to the next.

    Attributes:
        segment: how many pauses there were before
        config: that it had
        before: the objective at the beginning
        gain: what was added to it; None: the training failed
    """

    segment: int
    config: dict[str, Any]
    before: float
    gain: float | None


class Explorer:
    """Changes the hyperparameters of a trained agent, as far as that is possible.

    Args:
        space: what is searched
        known: the agent's hyperparameters
        resample: how probably a value is drawn anew instead of being changed a little

    Raises:
        UserError: the space has nothing that can change in a training that has begun.
    """

    def __init__(self, space: Space, known: Mapping[str, Hyperparameter], resample: float) -> None:
        self.space = space
        self.resample = resample
        self.kept = {name for name, parameter in known.items() if not parameter.mutable}
        self.mutable = [name for name in space.dimensions if name not in self.kept]
        if not self.mutable:
            some = [n for n, p in known.items() if p.mutable and p.low is not None]
            raise UserError(
                f"pbt and pb2 change hyperparameters while an agent trains, and of this space "
                f"({', '.join(space.dimensions)}) none can change then; search another one, such "
                f"as {', '.join(some[:3])}, or take --scheduler asha."
            )

    def learn(self, observations: Sequence[Observation]) -> None:
        """Take in what is known at a pause, before its changes are asked for."""

    def explore(
        self, parent: PopulationMember, segment: int, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return the parent's configuration, changed: every mutable dimension a little, or anew.

        Args:
            parent: where the weights come from
            segment: how many pauses there were, this one included
            rng: all chance comes from it
        """
        return self.changed(
            parent.config, lambda dimension, value: perturb(dimension, value, rng, self.resample)
        )

    def changed(
        self, config: Mapping[str, Any], change: Callable[[Dimension, Any], Any]
    ) -> dict[str, Any]:
        """Return a valid configuration with other values of the mutable dimensions.

        What ``change`` gives is tried until it satisfies the constraints; after so many tries the
        configuration stays as it is.
        """
        others = {n: v for n, v in config.items() if n not in self.space.dimensions}
        home = replace(
            self.space, fixed={n: v for n, v in others.items() if n not in self.space.derived}
        )

        def draw(dimension: Dimension) -> Any:
            value = config[dimension.name]
            return change(dimension, value) if dimension.name in self.mutable else value

        for _ in range(MAX_TRIES):
            try:
                resolved = home.resolve(home.suggest(draw))
            except UserError:  # such as a derived value that divides by zero
                continue
            new = {name: resolved.get(name, value) for name, value in config.items()}
            kept = all(new[name] == config[name] for name in self.kept if name in config)
            if kept and not home.violations(new):
                return new
        return dict(config)


def perturb(dimension: Dimension, value: Any, rng: np.random.Generator, resample: float) -> Any:
    """Return a value next to ``value`` on the dimension's own scale, or, now and then, any.

    On logarithmic scales (that of ``1 - x`` too) it is 1.25 times as large or as small, on linear
    ones a tenth of the range away; whole numbers and exponents change by 1 at least. Choices
    between numbers move to a neighbour, other choices change only when they are drawn anew. What
    lies outside of the range, such as a schedule in known-good settings, stays.
    """
    if rng.random() < resample:
        return dimension.sample(rng)
    up = rng.random() < 0.5
    if not dimension.contains(value):
        return value
    if dimension.kind == "choice":
        return _neighbour(dimension.choices, value, up)
    internal = dimension.internal
    x = dimension.to_internal(value)
    moved = x * (FACTOR if up else 1 / FACTOR)
    if not internal.log:
        moved = x + (SHIFT if up else -SHIFT) * (internal.high - internal.low)
    if internal.type == "int":
        least = internal.step
        moved = max(moved, x + least) if up else min(moved, x - least)
        moved = internal.low + least * round((moved - internal.low) / least)
    return dimension.from_internal(min(max(moved, internal.low), internal.high))


def _neighbour(choices: Sequence[Any], value: Any, up: bool) -> Any:
    if not all(isinstance(c, (int, float)) and not isinstance(c, bool) for c in choices):
        return value
    ordered = sorted(choices)
    place = ordered.index(value) + (1 if up else -1)
    return ordered[min(max(place, 0), len(ordered) - 1)]
