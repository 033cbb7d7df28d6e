"""Samplers on top of Optuna's: built anew for every trial, asked through a view of the study."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState
from rltune.samplers.base import Draw, Sampler
from rltune.samplers.views import View, for_complete, running, shared_attrs
from rltune.study.optuna_log import quiet

if TYPE_CHECKING:
    from rltune.space.dimensions import Dimension


class OptunaSampler(Sampler):
    """A sampler that asks one of Optuna's, or one with its interface.

    Class attributes:
        max_draws: for one trial, before the candidate comes from the space itself
        left_kinds: what dimensions it does not draw together, in words
        sees_its_trial: whether the trial that it draws for is among those that it sees
    """

    max_draws: ClassVar[int] = 50
    left_kinds: ClassVar[str] = "conditional"
    sees_its_trial: bool = False
    _shared: tuple[int, dict[str, Any]] = (0, {})  # of so many trials

    @abstractmethod
    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""

    def joint(self) -> dict[str, BaseDistribution]:
        """Return the parameters drawn together; empty: Optuna's sampler finds its groups itself."""
        return self.parameters.unconditional()

    def view(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the trials as Optuna's sampler is to see them."""
        return for_complete(known, self.joint().keys(), self.minimize)

    def left_to_chance(self) -> list[str]:
        """Return the dimensions that are always drawn at random."""
        joint = self.joint()
        return [name for name, parameter in self.parameters.names.items() if parameter not in joint]

    def notes(self) -> list[str]:
        """Return the parts of the description beside the name."""
        left = self.left_to_chance()
        at_random = f"always at random: {', '.join(left)} ({self.left_kinds} dimensions)"
        return [*super().notes(), *([at_random] if left else [])]

    def draws(
        self, trials: Sequence[FrozenTrial], known: Sequence[FrozenTrial], seed: int
    ) -> Iterator[Draw]:
        """Draw candidates; each that was refused is shown as running, to keep away from it."""
        number = len(trials)
        trial = running(number, {}, {})
        with quiet():
            sampler = self.make(seed)
            view = View(self.view(known), self.directions, self._shared_attrs(trials))
            joint = self.joint() or self._groups(sampler, view, trial)
            if self.sees_its_trial:
                view.trials_seen.append(trial)
        for attempt in range(self.max_draws):
            with quiet():
                relative = sampler.sample_relative(view, trial, joint) if joint else {}
                draw = partial(self._value, sampler, view, trial, relative)
                values = self.parameters.space.suggest(draw)
            yield Draw(values, self.source(relative), view.notes.of_the_trial())
            view.trials_seen.append(running(number + 1 + attempt, *self.parameters.of(values)))

    def _shared_attrs(self, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
        """Return what was written for the whole study; only new trials are read for it."""
        read, known = self._shared if self._shared[0] <= len(trials) else (0, {})
        self._shared = len(trials), known | shared_attrs(trials[read:])
        return dict(self._shared[1])

    def source(self, relative: Mapping[str, Any]) -> str:
        """Return the source of a draw: the sampler where it has drawn something together."""
        return self.name if relative else "random"

    def _value(
        self,
        sampler: BaseSampler,
        view: View,
        trial: FrozenTrial,
        relative: Mapping[str, Any],
        dimension: Dimension,
    ) -> Any:
        name = self.parameters.names[dimension.name]
        distribution = self.parameters.distributions[name]
        if isinstance(distribution, CategoricalDistribution) and distribution.single():
            return dimension.from_internal(distribution.choices[0])
        if name in relative:
            return dimension.from_internal(relative[name])
        return dimension.from_internal(sampler.sample_independent(view, trial, name, distribution))

    def _groups(
        self, sampler: BaseSampler, view: View, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Let Optuna's sampler find the groups of parameters that appear together.

        One trial for each set of parameters tells as much as all of them, much faster.
        """
        examples: dict[frozenset[str], FrozenTrial] = {}
        for seen in view.trials_seen:
            if seen.state in (TrialState.COMPLETE, TrialState.PRUNED):
                examples.setdefault(frozenset(seen.params), seen)
        small = View(list(examples.values()), self.directions, {})
        return sampler.infer_relative_search_space(small, trial)
