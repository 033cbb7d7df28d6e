"""Warm starts: what earlier searches learned, and how far a search may trust it.

The trials of an earlier search are ranked among themselves, so that another environment's returns
are comparable. Its best configurations are proposed, and the samplers that learn from a model
(`Sampler.learns_from_earlier`) see its trials beside their own. How many of each is decided by its
*trust*: how often the earlier search would have foretold which of two of this search's trials is
the better one. An earlier search that misleads is soon forgotten; each of several is judged on its
own. The idea of weighing earlier tasks by the pairs that they rank rightly is that of Feurer et
al., "Scalable Meta-Learning for Bayesian Optimization" (arXiv:1802.02219).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are used: they take half a second
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from rltune.samplers.surrogate import Encoder, GaussianProcess, normal_scores
from rltune.samplers.views import completed, is_evidence, merit_of

# The sources of trials that an earlier search suggests, or a prior.
PROPOSAL, PRIOR = "warm start", "prior"
# Before the first trial: as if it had foretold so many pairs rightly, and so many wrongly. This is
# too little for any trust: an earlier search that misleads costs next to nothing.
BELIEF = (2.0, 1.0)
MAX_PROPOSALS = 5  # at full trust
MAX_SHOWN = 60  # earlier trials that a sampler sees, at full trust
MAX_LEARNED = 100  # earlier trials that foretell; the fit takes their cube
MAX_JUDGED = 200  # own trials that the trust comes from, the first ones: they are the most random
MAX_OWN = 100  # best own trials that are shown, and as many of the latest
APART = 0.1  # proposals differ by at least this part of a range in one dimension


@dataclass(frozen=True)
class Earlier:
    """An earlier search, in the dimensions of this one.

    Attributes:
        name: of its run
        values: of the active dimensions, a dict per trial
        ranks: 0 (worst) to 1 (best), one per trial
        source: of the trials that it suggests
        belief: pairs of trials that it is believed to foretell rightly, and wrongly, before any
    """

    name: str
    values: tuple[dict[str, Any], ...]
    ranks: tuple[float, ...]
    source: str = PROPOSAL
    belief: tuple[float, float] = BELIEF


class WarmStart:
    """Proposes and shows what earlier searches know, as far as they are to be trusted.

    Args:
        earlier: the searches
        parameters: Optuna's parameters of each of their trials
        distributions: Optuna's, by the name of the parameter
        minimize: whether lower values are better
    """

    def __init__(
        self,
        earlier: Sequence[Earlier],
        parameters: Sequence[Sequence[Mapping[str, Any]]],
        distributions: Mapping[str, BaseDistribution],
        minimize: bool,
    ) -> None:
        encoder = Encoder(distributions)
        self._minimize = minimize
        self._sources = [
            _EarlierSearch(search, own, encoder, distributions)
            for search, own in zip(earlier, parameters, strict=True)
        ]

    def proposals(self, trials: Sequence[FrozenTrial]) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield what earlier searches suggest now, best first, with its source; mostly nothing."""
        taken = sum(map(is_suggested, trials))
        if taken >= MAX_PROPOSALS:
            return
        judged = self._judged(trials)
        trusts = [source.trust(*judged) for source in self._sources]
        if taken >= math.ceil(MAX_PROPOSALS * max(trusts)):
            return
        best = int(np.argmax(trusts))
        for values in self._sources[best].best(trials):
            yield values, self._sources[best].source

    def shown(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials with ranks for values, and the trusted part of the earlier ones."""
        evidence = [trial for trial in trials if is_evidence(trial)]
        merits = ranks([merit_of(trial, self._minimize) for trial in evidence])
        sign = -1 if self._minimize else 1
        kept = sorted(range(len(merits)), key=lambda i: -merits[i])[:MAX_OWN]
        kept += range(max(0, len(merits) - MAX_OWN), len(merits))
        seen = [completed(evidence[i], sign * merits[i]) for i in dict.fromkeys(kept)]
        seen += [trial for trial in trials if trial.state == TrialState.RUNNING]
        judged = self._judged(trials)
        earlier: list[FrozenTrial] = []
        for source in self._sources:
            earlier += source.shown(source.trust(*judged), sign)
        for number, trial in enumerate(earlier, -len(earlier)):  # before all others
            trial.number = trial._trial_id = number
        return [*earlier, *sorted(seen, key=lambda trial: trial.number)]

    def _judged(self, trials: Sequence[FrozenTrial]) -> tuple[list[FrozenTrial], list[float]]:
        evidence = list(itertools.islice(filter(is_evidence, trials), MAX_JUDGED))
        return evidence, ranks([merit_of(trial, self._minimize) for trial in evidence])


class _EarlierSearch:
    """One earlier search: its predictions, its suggestions, and the trials that it shows."""

    def __init__(
        self,
        earlier: Earlier,
        parameters: Sequence[Mapping[str, Any]],
        encoder: Encoder,
        distributions: Mapping[str, BaseDistribution],
    ) -> None:
        self.source, self._belief = earlier.source, earlier.belief
        # The best first.
        order = sorted(range(len(earlier.ranks)), key=lambda i: -earlier.ranks[i])
        self._values = [earlier.values[i] for i in order]
        self._parameters = [dict(parameters[i]) for i in order]
        self._ranks = [earlier.ranks[i] for i in order]
        self._distributions = distributions
        self._encoder = encoder
        self._rows = encoder.rows(self._parameters)
        spread = _spread(len(order), MAX_LEARNED)
        self._model = GaussianProcess(encoder.owner).fit(
            self._rows[spread], normal_scores([self._ranks[i] for i in spread])
        )
        # By the number of the trial; what was computed once need not be again.
        self._foretold: dict[int, float] = {}
        self._tried: dict[int, NDArray[np.float64]] = {}

    def trust(self, trials: Sequence[FrozenTrial], ranks: Sequence[float]) -> float:
        """Return from 0 to 1 how well it foretells the order of these trials.

        A lower bound: one deviation below the mean of a beta distribution of the pairs that are
        foretold rightly, which counts the pairs as if they were as many as the trials.
        """
        new = [trial for trial in trials if trial.number not in self._foretold]
        if new:
            mean, _ = self._model.predict(self._encoder.rows([trial.params for trial in new]))
            self._foretold |= dict(zip((t.number for t in new), mean.tolist(), strict=True))
        foretold = np.array([self._foretold[trial.number] for trial in trials])
        right, wrong = self._belief
        better = np.sign(np.subtract.outer(ranks, ranks))
        if np.any(better):
            signs = np.sign(np.subtract.outer(foretold, foretold))
            agreement = float(np.mean(signs[better != 0] == better[better != 0]))
            right += agreement * (len(trials) - 1)
            wrong += (1 - agreement) * (len(trials) - 1)
        mean_right = right / (right + wrong)
        deviation = math.sqrt(mean_right * (1 - mean_right) / (right + wrong + 1))
        return max(0.0, 2 * (mean_right - deviation) - 1)

    def best(self, trials: Sequence[FrozenTrial]) -> Iterator[dict[str, Any]]:
        """Return its best configurations that are apart from those which were tried."""
        new = [trial for trial in trials if trial.number not in self._tried]
        if new:
            rows = self._encoder.rows([trial.params for trial in new])
            self._tried |= dict(zip((trial.number for trial in new), rows, strict=True))
        tried = np.array([self._tried[trial.number] for trial in trials])
        tried = tried.reshape(len(trials), self._rows.shape[1])
        for values, row in zip(self._values, self._rows, strict=True):
            if not np.any(np.all(np.abs(tried - row) < APART, axis=1)):
                yield values

    def shown(self, trust: float, sign: int) -> list[FrozenTrial]:
        """Return a part of its trials, good and bad ones, with values between 0 and 1.

        Args:
            trust: the part; the values move to the middle the less it is trusted
            sign: of the values
        """
        return [
            create_trial(
                value=sign * (0.5 + trust * (self._ranks[i] - 0.5)),
                params=self._parameters[i],
                distributions={n: self._distributions[n] for n in self._parameters[i]},
                user_attrs={"configuration": self._values[i]},
            )
            for i in _spread(len(self._ranks), round(trust * MAX_SHOWN))
        ]


def is_suggested(trial: FrozenTrial) -> bool:
    """Whether an earlier search or a prior has suggested the trial."""
    return trial.user_attrs.get("proposal") in (PROPOSAL, PRIOR)


def _spread(n: int, most: int) -> list[int]:
    """Return at most so many of the indices below n, evenly spread, the first one included."""
    return list(range(n)) if n <= most else [n * k // most for k in range(most)]


def ranks(merits: Sequence[Any]) -> list[float]:
    """Return ranks between 0 (worst) and 1 (best); ties share their mean."""
    order = {value: place for place, value in enumerate(sorted(set(merits)))}
    places = scipy.stats.rankdata([order[value] for value in merits])
    return [(place - 0.5) / len(merits) for place in places.tolist()]
