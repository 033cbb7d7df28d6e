"""The end of a search: after its trials, at its time limit, on request, or if nothing works."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rltune.agents.errors import UserError
from rltune.agents.user_code import place_in_own_code
from rltune.planning.deadlines import Deadlines, TournamentTime

if TYPE_CHECKING:
    from rltune.execution.messages import JobFailure
    from rltune.search.jobs import Running, RunningTrial
    from rltune.search.parts import SearchParts

# So many trials with the same exception, before anything came of any: it is no chance.
HOPELESS = 2


class Ending:
    """Knows when the search gives way to the tournament, and when everything is over.

    Args:
        parts: of the search
        running: its jobs and trials
        asked: how many trials the study was asked for so far

    Attributes:
        stop_requested: whether everything has to stop, to be resumed later
    """

    def __init__(self, parts: SearchParts, running: Running, asked: int) -> None:
        self.parts = parts
        self.spec = parts.spec
        self.running = running
        self.stop_requested = False
        self._deadlines = Deadlines(
            parts.progress.started, parts.spec.time_limit, parts.spec.tournament
        )
        self._asked = asked
        self._space_exhausted = False
        self._warned = False  # that the time is too short

    # By trials

    def trial_asked(self, found: bool) -> None:
        """Note that the study was asked for a trial; without one, the space is exhausted."""
        self._asked += found
        self._space_exhausted = self._space_exhausted or not found

    def more_trials(self) -> bool:
        """Whether the study is to be asked for further trials, if there is time."""
        exhausted = self._space_exhausted or self.parts.events.search_is_over
        return not exhausted and (self.spec.trials is None or self._asked < self.spec.trials)

    def search_goes_on(self) -> bool:
        """Whether more trainings of the search are to be started, now or later."""
        if self.search_time_is_up():
            return False
        return self.more_trials() or any(map(self._may_grow, self.running.trials.values()))

    def _may_grow(self, trial: RunningTrial) -> bool:
        """Whether not all of the trial's seeds are being trained: more may have to be started."""
        seeds = self.parts.plan.seeds(self.parts.plan.most)
        return not all(self.running.is_training(trial.number, seed) for seed in seeds)

    def is_searching(self) -> bool:
        """Whether something of the search runs, or waits to go on."""
        waiting = self.running.trials and not self.search_time_is_up()
        return bool(waiting) or any(self.running.search_jobs())

    def tournament_may_run(self) -> bool:
        """Whether re-trainings may start: the search has no further trials for idle workers."""
        more = self.more_trials() and not self.search_time_is_up()
        return self.spec.tournament and not more and not self.time_is_up()

    # By time

    def seconds_left(self) -> float:
        """Return the seconds until everything has to have ended; infinite without a limit."""
        return self.deadline - time.time()

    def time_is_up(self) -> bool:
        """Whether there is no time left for anything."""
        return self._deadlines.is_over()

    def search_time_is_up(self) -> bool:
        """Whether the search has given way to the tournament."""
        return self._deadlines.search_is_over(self._tests())

    @property
    def deadline(self) -> float:
        """The deadline of the whole run: Unix seconds, infinite without a limit."""
        return self._deadlines.end

    def search_deadline(self) -> float:
        """Return the moment at which the search gives way, as it looks now: Unix seconds."""
        return self._deadlines.of_search(self._tests())

    def may_go_on(self) -> bool:
        """Whether a training of the search that has run out of its time gets more."""
        return self._deadlines.has_more(self._tests())

    def warn_of_too_short_a_limit(self) -> None:
        """Say once, as soon as it is known, that there will be no tournament."""
        tests = self._tests()
        if tests is not None and not self._warned and self._deadlines.too_short(tests):
            self._warned = True
            self.parts.view.message(self._deadlines.advice(tests, self.spec.budget))

    def _tests(self) -> TournamentTime | None:
        if math.isinf(self.deadline) or not self.spec.tournament:
            return None  # no deadline depends on it, and this is asked all the time
        return self.parts.progress.expected_tests(self.spec.test_seeds)

    # Now

    def request_stop(self) -> None:
        """Stop everything soon, such that `rltune resume` goes on without a gap."""
        self.stop_requested = True
        self.parts.view.begin("stopping")

    def is_now(self) -> bool:
        """Whether everything has to stop now, running jobs included."""
        idle = not self.running.jobs and self.time_is_up()
        return self.stop_requested or idle or self._deadlines.is_exceeded()

    def end_if_metric_is_missing(self, flag: str, reason: str) -> None:
        """End the search when no trial has reported the metric so far: the next would not either.

        Raises:
            UserError: with the flag that names the metric.
        """
        if not any(trial.intermediate for trial in self.parts.study.trials()):
            raise UserError(f"{flag}: {reason}.")

    def end_if_hopeless(self, failure: JobFailure) -> None:
        """End the search when all of its trials so far have raised the same, without one result.

        Raises:
            UserError: with what they raised, and where in the user's code.
        """
        trials = self.parts.study.trials()
        failed = [trial for trial in trials if trial.state == "FAIL"]
        if (
            len(failed) < min(HOPELESS, self.spec.trials or HOPELESS)
            or any(trial.reason != failure.reason for trial in failed)
            or any(trial.intermediate for trial in trials)
            or any(job.env_steps for job in self.running.jobs.values())
        ):
            return
        *numbers, last = (str(trial.number) for trial in failed)
        ended = f"trials {', '.join(numbers)} and {last}" if numbers else f"trial {last}"
        said = failure.reason.removeprefix("error: ")
        where = place_in_own_code(failure.traceback)
        self.parts.recorder.write_trials_table(force=True)  # it has the traceback
        raise UserError(
            f"nothing works: {ended} ended before any result with {said}"
            f"{where and f' ({where})'}. Once that is mended, start the search anew."
        )
