"""Grid search: every combination once, in an order that spreads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from optuna.trial import FrozenTrial
from rltune.samplers.base import Draw, Sampler, SamplerOption
from rltune.study.distributions import ladder

_INDEX = "grid:index"  # of a trial in the grid


class Grid(Sampler):
    """Goes through the grid once, neighbours far apart in time, and goes on there when resumed."""

    name = "grid"
    options: ClassVar = {"points": SamplerOption(5, lowest=2)}  # of a range; all of a choice
    for_several = True
    learns = False
    is_exhaustive = True

    def notes(self) -> list[str]:
        """Return the size of the grid."""
        size = math.prod(map(len, self._ladders().values()))
        return [f"{size:,} points, the invalid ones included"]

    def draws(
        self, trials: Sequence[FrozenTrial], known: Sequence[FrozenTrial], seed: int
    ) -> Iterator[Draw]:
        """Draw the points of the grid that come after those of the trials."""
        ladders = self._ladders()
        size = math.prod(map(len, ladders.values()))
        stride = next(
            n for n in range(int(size * 0.618) + 1, 2 * size + 2) if math.gcd(n, size) == 1
        )
        first = self.seed % size
        begin = max((t.system_attrs.get(_INDEX, -1) for t in trials), default=-1) + 1
        for index in range(begin, size):
            place, point = (first + stride * index) % size, dict[str, Any]()
            for name, steps in ladders.items():
                place, step = divmod(place, len(steps))
                point[name] = steps[step]
            values = self.parameters.space.suggest(lambda d: point[d.name])  # noqa: B023
            yield Draw(values, self.name, {_INDEX: index})

    def _ladders(self) -> dict[str, list[Any]]:
        dimensions = self.parameters.space.dimensions
        return {name: ladder(d, self.values["points"]) for name, d in dimensions.items()}
