"""Importances of trials that were drawn at random, with the shuffled parameters' as noise floors.

All have the same budget. A parameter's values can be shuffled among such trials: if it has no
influence, that changes nothing. So the greatest importance in 30 shuffles is its noise floor.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from rltune.analysis.importance.design import Factors
from rltune.analysis.importance.fanova import Array, Design, Effect, Forest, effect
from rltune.analysis.importance.ped_anova import Divergence
from rltune.analysis.importance.rows import (
    MIN_ACTIVE,
    Importance,
    percentile_interval,
    share,
    unknown,
)

SHUFFLES = 30  # a parameter without influence exceeds them all in 1 of 31 searches
PED_SAMPLES = 100  # of its bootstrap at most; an evaluation takes milliseconds
N_PAIRED = 8  # parameters, the most important ones, whose pairs are looked at
N_PAIRS = 5  # that are shown
FEW_GROUPS = 8  # trials with several seeds; below, their bootstrap means little


class ShuffledTrials:
    """The three methods on the same trials, with the same shuffles and samples.

    Args: as for `importances`
    """

    def __init__(self, factors: Factors, samples: int, seed: int) -> None:
        self._factors, self._seed = factors, seed
        self._design = factors.design
        self._columns = factors.design.columns
        count = len(factors.design.y)
        self.numbers = range(len(self._columns))
        self.notes: list[str] = []
        rng = np.random.default_rng(seed)
        # How often each trial was drawn, as a part of all.
        some = max(count, 1)
        self._samples = rng.multinomial(count, np.full(some, 1 / some), samples) / some

    def rows(self, method: str) -> Iterator[Importance]:
        """Return the rows of a method, the most important parameter first."""
        single = {
            "fanova": self._fanova,
            "ped-anova": self._ped_anova,
            "permutation": self._permutation,
        }[method]
        rows = [
            single(i)
            if self._trials(i) >= MIN_ACTIVE
            else unknown(method, self._columns[i].name, self._trials(i))
            for i in self.numbers
        ]
        yield from sorted(rows, key=lambda row: -np.nan_to_num(row.importance, nan=-1.0))
        if method == "fanova":
            yield from self._pairs()
            yield from self._seeds()

    def _trials(self, *columns: int) -> int:
        return int(self._design.active[:, list(columns)].all(axis=1).sum())

    def _row(self, method: str, i: int, value: float, samples: Array, floor: float) -> Importance:
        low, high = percentile_interval(samples)
        value, floor = share(value), share(floor)
        name = self._columns[i].name
        trials, noise = self._trials(i), value <= floor
        return Importance(method, name, "parameter", value, low, high, floor, noise, trials)

    # The methods

    def fanova(self, i: int) -> tuple[float, Array]:
        """Return a column's share of the variance, and that of samples of the trials.

        Both may lie outside of 0..1: they are without bias.
        """
        own = self._effects[i]
        return own.variance / self._total, own.resampled(self._samples) / self._totals

    def plain(self, i: int) -> float:
        """Return the forest's own share: that of the column's marginal in the forest's variance."""
        products = self._effects[i].products
        return float((products**2).sum() * self._effects[i].share / self._forest.variance)

    def _fanova(self, i: int) -> Importance:
        floor = max(shuffle.variance for shuffle in self._shuffled[i])
        return self._row("fanova", i, *self.fanova(i), floor / self._total)

    def _permutation(self, i: int) -> Importance:
        # A loss is twice the variance that the model gives to the column and its interactions.
        losses, floor = self._losses[i], max(shuffle.loss for shuffle in self._shuffled[i])
        samples = self._samples @ losses / (2 * self._totals)
        value, floor = losses.mean() / (2 * self._total), floor / (2 * self._total)
        return self._row("permutation", i, value, samples, floor)

    def _ped_anova(self, i: int) -> Importance:
        found, resampled, floors = self._divergences
        total = max(found.sum(), 1e-12)
        totals = np.maximum(resampled.sum(axis=1), 1e-12)
        # Fewer different trials lie further apart: the samples' excess says nothing of the search.
        samples = resampled[:, i] / totals
        samples = samples - np.median(samples) + found[i] / total
        return self._row("ped-anova", i, found[i] / total, samples, floors[i] / total)

    def _pairs(self) -> Iterator[Importance]:
        pairs = {pair: effect(self._forest, *pair) for pair in self._candidates}
        strongest = sorted(pairs, key=lambda pair: -pairs[pair].variance)[:N_PAIRS]
        for pair in strongest:
            samples = pairs[pair].resampled(self._samples) / self._totals
            value = share(pairs[pair].variance / self._total)
            # The strongest were picked out of many, so the shuffles may pick theirs, too.
            shuffles = [shuffle.pair for i in pair for shuffle in self._shuffled[i]]
            floor = share(max(shuffles) / self._total)
            low, high = percentile_interval(samples)
            name = " x ".join(self._columns[i].name for i in pair)
            trials = self._trials(*pair)
            yield Importance(
                "fanova", name, "pair", value, low, high, floor, value <= floor, trials
            )

    def _seeds(self) -> Iterator[Importance]:
        groups, count = self._factors.seeds, len(self._factors.seeds)
        if not groups:
            self.notes.append("The seed's share is not known: no configuration had several seeds.")
            return
        freedom = np.array([len(group) - 1 for group in groups])
        sums = np.array([group.var(ddof=1) for group in groups]) * freedom
        rng = np.random.default_rng([self._seed, 2])
        if count < FEW_GROUPS:
            drawn = sums.sum() / rng.chisquare(freedom.sum(), len(self._samples))
        else:
            picks = rng.integers(count, size=(len(self._samples), count))
            drawn = sums[picks].sum(axis=1) / freedom[picks].sum(axis=1)
        part, nan = self._factors.per_trial, float("nan")
        low, high = percentile_interval(part * drawn / self._totals)
        value = share(part * sums.sum() / freedom.sum() / self._total)
        yield Importance("fanova", "seed", "seed", value, low, high, nan, False, count)

    # What the methods share, computed once

    @cached_property
    def _forest(self) -> Forest:
        return Forest(self._design, self._seed)

    @cached_property
    def _total(self) -> float:
        return float(self._variance(self._forest.squares().mean()))

    @cached_property
    def _totals(self) -> Array:
        return np.asarray(self._variance(self._samples @ self._forest.squares()))

    def _variance(self, value: Any) -> Any:
        # By chance the first can come out too small with few trials.
        return np.maximum(value, 0.25 * self._design.y.var())

    @cached_property
    def _effects(self) -> list[Effect]:
        return [effect(self._forest, i) for i in self.numbers]

    @cached_property
    def _losses(self) -> list[Array]:
        return [self._forest.losses(i) for i in self.numbers]

    @cached_property
    def _candidates(self) -> list[tuple[int, int]]:
        """The pairs of the parameters with the greatest permutation importance."""
        order = sorted(self.numbers, key=lambda i: -self._losses[i].mean())[:N_PAIRED]
        return [pair for pair in itertools.combinations(sorted(order), 2) if self._is_pair(*pair)]

    def _is_pair(self, i: int, j: int) -> bool:
        """Whether neither is the other's condition, and enough trials have both."""
        related = i in self._columns[j].when or j in self._columns[i].when
        return not related and self._trials(i, j) >= MIN_ACTIVE

    @cached_property
    def _shuffled(self) -> list[list[_Shuffle]]:
        """For each column, its importances in shuffles of its values.

        Columns of about equal importance are shuffled at once: the less important ones hardly miss
        each other, and the floor of the others is a little higher for it.
        """
        found: list[list[_Shuffle]] = [[] for _ in self.numbers]
        rng = np.random.default_rng([self._seed, 1])
        for block in self._blocks():
            for _ in range(SHUFFLES):
                shuffled = self._design.shuffled(block, rng)
                forest = Forest(shuffled, int(rng.integers(2**31)))
                for i in block:
                    partners = [set(pair) for pair in self._candidates if i in pair]
                    pairs = [effect(forest, *sorted(pair)).variance for pair in partners]
                    loss = float(forest.losses(i).mean())
                    shuffle = _Shuffle(effect(forest, i).variance, loss, max(pairs, default=0.0))
                    found[i].append(shuffle)
        return found

    def _blocks(self) -> Iterator[list[int]]:
        order = sorted(self.numbers, key=lambda i: -self._effects[i].variance)
        size = 1
        while order:
            yield order[:size]
            order, size = order[size:], min(2 * size, 4)

    @cached_property
    def _divergences(self) -> tuple[Array, Array, Array]:
        """PED-ANOVA's divergences (d,), those of samples (samples, d), and their floors (d,)."""
        design, rng = self._design, np.random.default_rng([self._seed, 3])
        count = len(design.y)
        usable = [i for i in self.numbers if self._trials(i) >= MIN_ACTIVE]
        size = min(PED_SAMPLES, len(self._samples))

        def of(trials: Design, samples: Any) -> Array:
            found = np.zeros((len(samples), len(self.numbers)))
            for i in usable:
                own = Divergence(trials, i)
                found[:, i] = [own.of(drawn) for drawn in samples]
            return found

        each_once = np.arange(count)[None]
        drawn = of(design, np.vstack([each_once, rng.integers(count, size=(size, count))]))
        shuffles = [design.shuffled(self.numbers, rng) for _ in range(SHUFFLES)]
        floors = np.max([of(shuffle, each_once)[0] for shuffle in shuffles], axis=0)
        return drawn[0], drawn[1:], floors


@dataclass(frozen=True)
class _Shuffle:
    """The importances of a shuffled column: variance, loss, and the variance of its best pair."""

    variance: float
    loss: float
    pair: float
