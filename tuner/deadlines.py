"""When a search with a time limit has to be done, and when it gives way to the tournament."""

from __future__ import annotations

import math
import time

# Until trials have shown their speed, this part of the time limit is kept for the tournament.
TOURNAMENT_SHARE = 0.4
# Then as much as it is expected to take, and a little for starting and saving.
TOURNAMENT_MARGIN = 1.1
# However slow the trials are, the search itself gets the rest.
MAX_TOURNAMENT_SHARE = 0.6
# Time to write the answer and to close everything: seconds, and a part of the time limit.
CLOSING_TIME = 3.0
CLOSING_SHARE = 0.01


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
        if limit is not None:
            self.end = started + limit * (1 - CLOSING_SHARE) - CLOSING_TIME

    def of_search(self, tests_seconds: float | None) -> float:
        """Return when the tournament, which is expected to take so long, has to begin."""
        if math.isinf(self.end) or not self.tournament:
            return self.end
        share = TOURNAMENT_SHARE
        if tests_seconds is not None:
            share = TOURNAMENT_MARGIN * tests_seconds / self.limit
        return self.end - min(share, MAX_TOURNAMENT_SHARE) * self.limit

    def is_over(self) -> bool:
        """Whether there is no time left for anything."""
        return time.time() >= self.end
