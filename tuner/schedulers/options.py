"""Options of schedulers: defaults, ranges, and their check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.agents.errors import UserError, unknown


@dataclass(frozen=True)
class SchedulerOption:
    """An option of a scheduler.

    Attributes:
        default: its value where none is given; None: the scheduler's own choice
        low, high: its range, both included; infinity itself is never allowed
        whole: whether it has to be a whole number
    """

    default: float | None
    low: float
    high: float = math.inf
    whole: bool = False

    def allows(self, value: object) -> bool:
        """Whether a value is in the range, and whole where that is needed."""
        return (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and self.low <= value <= self.high
            and not math.isinf(value)
            and (not self.whole or value == int(value))
        )

    @property
    def limits(self) -> str:
        """Its range in words: "a number between 0.01 and 0.5"."""
        kind = "a whole number" if self.whole else "a number"
        if math.isinf(self.high):
            return f"{kind} of at least {self.low:g}"
        return f"{kind} between {self.low:g} and {self.high:g}"


def check_options(
    name: str, known: Mapping[str, SchedulerOption], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of all options of a scheduler, defaults filled in.

    Args:
        name: of the scheduler, for messages
        known: the options that it has
        options: what was given

    Raises:
        UserError: an unknown option, or one out of its range.
    """
    values: dict[str, Any] = {option: about.default for option, about in known.items()}
    for option, value in options.items():
        if not known:
            raise UserError(f"scheduler {name!r} has no options; remove {option!r}")
        if option not in known:
            raise unknown(f"option of scheduler {name!r}", option, known)
        about = known[option]
        if not about.allows(value):
            raise UserError(f"scheduler {name!r}: {option} must be {about.limits}; got {value!r}")
        values[option] = int(value) if about.whole else float(value)
    return values
