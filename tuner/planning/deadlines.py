"""Deadlines of a search with a time limit: of the search itself, and of everything."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from rltune.common.formats import count, duration

# Until trials have shown their speed, this part of the time limit is kept for the tournament.
TOURNAMENT_SHARE = 0.4
# Then as much as it is expected to take, and a little for starting and saving.
TOURNAMENT_MARGIN = 1.1
# However slow the trials are, the search itself gets the rest (docs/measurements.md says why).
MAX_TOURNAMENT_SHARE = 0.4
# If one round of it takes longer than this part, there is none.
MAX_ROUND_SHARE = 0.6
# A training that was cut short goes on if the search has turned out to have so much time left.
WORTHWHILE_SHARE = 0.02
# A tournament whose first round takes longer than what is left, by this factor, is not begun.
TOO_LONG = 1.25
# Time to write the answer and to close everything: seconds, and a part of the time limit.
CLOSING_TIME = 3.0
CLOSING_SHARE = 0.01


class TournamentTime(NamedTuple):
    """The expected time of the tournament in seconds, with trainings side by side."""

    whole: float
    first_round: float  # every finalist on one test seed

    @classmethod
    def of(cls, runs: float, test_seeds: int, slots: int, seconds: float) -> TournamentTime:
        """Return it for so many re-trainings, of which each takes so long."""
        first_round = math.ceil(runs / test_seeds / slots) * seconds
        return cls(max(first_round, runs * seconds / slots), first_round)


class Deadlines:
    """The two deadlines, in seconds since the epoch; infinite without a time limit.

    Args:
        started: seconds since the epoch
        limit: seconds for everything; None: no limit
        tournament: whether there will be one
    """

    def __init__(self, started: float, limit: float | None, tournament: bool) -> None:
        self.limit = math.inf if limit is None else limit
        self.tournament = tournament
        # Of the whole command.
        self.end = math.inf
        self._limit_end = started + self.limit
        if limit is not None:
            self.end = started + limit * (1 - CLOSING_SHARE) - CLOSING_TIME
        self._search_is_over = False

    def of_search(self, tests: TournamentTime | None) -> float:
        """Return the moment at which the tournament, of this expected time, has to begin.

        It is the end where there is no time for one round of it: half a tournament says nothing.
        """
        if math.isinf(self.end) or not self.tournament or self.too_short(tests):
            return self.end
        share = TOURNAMENT_SHARE
        if tests is not None:
            share = TOURNAMENT_MARGIN * tests.whole / self.limit
        return self.end - min(share, MAX_TOURNAMENT_SHARE) * self.limit

    def search_is_over(self, tests: TournamentTime | None) -> bool:
        """Whether the search has given way; whatever is expected later, it has then."""
        self._search_is_over = self._search_is_over or time.time() >= self.of_search(tests)
        return self._search_is_over

    def has_more(self, tests: TournamentTime | None) -> bool:
        """Whether there is time for a training of the search that has run out of its own to go on.

        Its worker knows the deadline of the moment when it began.
        """
        left = self.of_search(tests) - time.time()
        return not self._search_is_over and left > WORTHWHILE_SHARE * self.limit

    def too_short(self, tests: TournamentTime | None) -> bool:
        """Whether not even the first round of the tournament can end in time."""
        if tests is None or not self.tournament or self._search_is_over:
            return False
        left = TOO_LONG * (self.end - time.time())
        return tests.first_round > min(left, MAX_ROUND_SHARE * self.limit)

    def advice(self, tests: TournamentTime, budget: int) -> str:
        """Return a text that says that the time is too short, and which values would do."""
        factor = TOURNAMENT_MARGIN * tests.whole / (MAX_TOURNAMENT_SHARE * self.limit)
        digit = 10 ** math.floor(math.log10(max(budget / factor, 1)))
        smaller = int(budget / factor / digit) * digit
        minutes = math.ceil(factor * self.limit / 60)
        longer = f"{math.ceil(minutes / 60)}h" if minutes > 90 else f"{minutes}m"
        return (
            f"{duration(self.limit)} is too short to train finalists again: for {count(budget)} "
            f"env steps on one test seed each that takes about {duration(tests.first_round)}. "
            f"While it looks so, the search gets all. Better: --time-limit {longer}, or --budget "
            f"{smaller}."
        )

    def is_over(self) -> bool:
        """Whether there is no time left for anything."""
        return time.time() >= self.end

    def is_exceeded(self) -> bool:
        """Whether jobs that have not ended by now are not waited for: an environment may hang."""
        return time.time() >= self._limit_end
