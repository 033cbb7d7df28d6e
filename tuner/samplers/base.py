"""The base class of samplers: options, objectives, view of the study, and draws.

A new sampler is a subclass in a file of its own and a line in `registry.py`. Those on top of one of
Optuna's derive from `optuna_based.OptunaSampler`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from rltune.agents.errors import UserError, unknown
from rltune.samplers.parameters import Parameters


@dataclass(frozen=True)
class SamplerOption:
    """An option of a sampler; its type is that of the default.

    Attributes:
        default: a bool, text, int or float; None: Optuna's or the paper's own choice of an int
        lowest: of an int. A float is above 0 and at most 1.
        choices: of a text
    """

    default: Any
    lowest: int = 0
    choices: tuple[str, ...] = ()

    def checked(self, sampler: str, name: str, value: Any) -> Any:
        """Return the value in the option's type; UserError: it has another one, or is too low."""
        where = f"sampler {sampler!r}: {name}"
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise UserError(f"{where} must be true or false; got {value!r}")
            return value
        if isinstance(self.default, str):
            if not isinstance(value, str):
                raise UserError(f"{where} must be a text; got {value!r}")
            if value not in self.choices:
                raise unknown(name, value, self.choices)
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"{where} must be a number; got {value!r}")
        if isinstance(self.default, float):
            if not 0 < value <= 1:
                raise UserError(f"{where} must be above 0 and at most 1; got {value!r}")
            return float(value)
        if not float(value).is_integer() or value < self.lowest:
            raise UserError(
                f"{where} must be a whole number of at least {self.lowest}; got {value!r}"
            )
        return int(value)


@dataclass(frozen=True)
class Draw:
    """A candidate, not checked yet.

    Attributes:
        values: of the active dimensions
        source: the sampler's name, or "random" while it has too little to learn from
        system_attrs: what the sampler has to find again beside the trial
    """

    values: dict[str, Any]
    source: str
    system_attrs: dict[str, Any]


class Sampler(ABC):
    """Draws candidates for the trials of one search.

    Class attributes:
        name: as in `--sampler` and in the registry
        options: by name
        for_several: whether it knows several objectives
        learns: whether trials have a say in what it draws
        learns_from_earlier: whether a warm start shows it the trials of earlier searches
        needs: how many of the best trials it learns from, and how many of the latest; None: all
        is_exhaustive: whether it goes through the space once. It draws nothing twice then, not
            even what was refused, and no other configuration is tried in its stead.

    Args:
        parameters: the space as Optuna's parameters
        directions: of the objectives, the first one first
        seed: of the search
        values: of all options, see `checked_options`

    Raises:
        UserError: it cannot search this space.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, SamplerOption]] = {}
    for_several: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    learns_from_earlier: ClassVar[bool] = False
    is_exhaustive: ClassVar[bool] = False
    needs: tuple[int, int] | None = None

    def __init__(
        self,
        parameters: Parameters,
        directions: Sequence[StudyDirection],
        seed: int,
        values: Mapping[str, Any],
    ) -> None:
        self.parameters = parameters
        self.directions = list(directions)
        self.seed = seed
        self.values = dict(values)

    @property
    def minimize(self) -> tuple[bool, ...]:
        """Whether lower is better, of each objective."""
        return tuple(direction == StudyDirection.MINIMIZE for direction in self.directions)

    @classmethod
    def checked_options(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options, defaults filled in.

        Raises:
            UserError: unknown option, or a value of the wrong type or out of range.
        """
        filled = {name: option.default for name, option in cls.options.items()}
        for name, value in values.items():
            if name not in filled:
                if not filled:
                    raise UserError(f"sampler {cls.name!r} has no options; remove {name!r}")
                raise unknown(f"option of sampler {cls.name!r}", name, filled)
            filled[name] = cls.options[name].checked(cls.name, name, value)
        return filled

    def merit(self, trial: FrozenTrial) -> float | None:
        """Return how good an ended trial is, the greater the better; None: never of the best."""
        if trial.state != TrialState.COMPLETE or trial.value is None:
            return None
        return -trial.value if self.minimize[0] else trial.value

    def describe(self) -> str:
        """Say in one sentence what it does in this space, and what it leaves to chance."""
        notes = self.notes()
        return f"{self.name}: {'; '.join(notes)}" if notes else self.name

    def notes(self) -> list[str]:
        """Return the parts of the description beside the name."""
        for option in ("n_startup_trials", "population_size"):
            if option in self.values:
                return [f"until {self.values[option]} trials have ended, it draws at random"]
        return []

    @abstractmethod
    def draws(
        self, trials: Sequence[FrozenTrial], known: Sequence[FrozenTrial], seed: int
    ) -> Iterator[Draw]:
        """Draw candidates for the trial that comes after `trials`, until the caller takes one.

        Args:
            trials: all trials of the study, by number
            known: those to learn from: inside of the ranges, and with a warm start, if
                `learns_from_earlier`, the trials of earlier searches before them
            seed: of these draws
        """
