"""Samplers of others: a class of a plug-in or of the user's own, of our kind or of Optuna's."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from rltune.agents.errors import UserError, unknown
from rltune.samplers.base import Draw, Sampler
from rltune.samplers.optuna_based import OptunaSampler
from rltune.samplers.parameters import Parameters

SEED, SPACE = "seed", "search_space"  # arguments that a search gives


class Foreign(OptunaSampler):
    """A sampler with Optuna's interface, OptunaHub's included.

    One of Optuna's own package is made anew for every trial, as all of ours are: what it knows
    comes from the study, and a search that goes on draws what it would have drawn. Others may keep
    something in themselves, so they are made once in the life of a search's process, and see the
    trial that they draw for among the trials, as in Optuna. All keywords of its constructor are
    options. The seed is given where it takes one, and the unconditional dimensions where it needs a
    ``search_space``.

    Class attributes:
        kind: Optuna's class
    """

    for_several = True  # as far as Optuna's class does
    kind: ClassVar[type[BaseSampler]]
    _kept: BaseSampler | None = None

    def __init__(
        self,
        parameters: Parameters,
        directions: Sequence[StudyDirection],
        seed: int,
        values: Mapping[str, Any],
    ) -> None:
        super().__init__(parameters, directions, seed, values)
        self.sees_its_trial = self.kind.__module__.partition(".")[0] != "optuna"
        self.make(seed)  # what it refuses shows up before the search begins
        self._kept = None  # a resumed search must not draw again what it drew at its beginning

    @classmethod
    def checked_options(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options; UserError: its constructor doesn't take one, or lacks one."""
        taken = _parameters(cls.kind)
        own = [name for name in taken if name not in (SEED, SPACE)]
        if not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            for name in values:
                if name not in own:
                    raise unknown(f"option of sampler {cls.name!r}", name, own)
        lacking = [name for name in own if _is_needed(taken[name]) and name not in values]
        if lacking:
            raise UserError(
                f"sampler {cls.name!r} needs {', '.join(lacking)}; give it in --sampler-options"
            )
        return dict(values)

    def make(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler for the draws of one trial."""
        if self._kept is not None:
            return self._kept
        taken, values = _parameters(self.kind), dict(self.values)
        if SEED in taken:
            values[SEED] = seed
        if SPACE in taken and _is_needed(taken[SPACE]):
            values[SPACE] = self.parameters.unconditional()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                made = self.kind(**values)
        except Exception as error:
            raise self._failed("can't be made", error) from error
        if self.sees_its_trial:
            self._kept = made
        return made

    def draws(
        self, trials: Sequence[FrozenTrial], known: Sequence[FrozenTrial], seed: int
    ) -> Iterator[Draw]:
        """Draw candidates; whatever it raises is a `UserError` that names it."""
        try:
            yield from super().draws(trials, known, seed)
        except UserError:
            raise
        except Exception as error:
            raise self._failed("has failed", error) from error

    def _failed(self, what: str, error: Exception) -> UserError:
        said = (str(error).splitlines() or [""])[0]
        return UserError(
            f"sampler {self.name!r} {what}: {type(error).__name__}{said and f': {said}'}"
        )


def as_sampler(name: str, found: object) -> type[Sampler]:
    """Return a class of ours for what a name stands for.

    Raises:
        UserError: it is no sampler, or a part of it is missing.
    """
    if not isinstance(found, type) or not issubclass(found, (Sampler, BaseSampler)):
        raise UserError(
            f"sampler {name!r} is no class below optuna.samplers.BaseSampler or "
            "rltune.samplers.base.Sampler"
        )
    if issubclass(found, BaseSampler):
        made: type[Sampler] = type(found.__name__, (Foreign,), {"name": name, "kind": found})
    else:
        made = found
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    missing += [] if hasattr(made, "name") else ["name"]
    if missing:
        raise UserError(f"sampler {name!r} lacks {', '.join(missing)}")
    return made


def _parameters(kind: type) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(kind).parameters


def _is_needed(parameter: inspect.Parameter) -> bool:
    variable = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variable
