"""Rounds of a search over several agents: who goes on, and with how much.

Sequential halving (Karnin et al., "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013):
every round has the same budget, shared by the agents that are left; after each, the better half
goes on, down to two. The last round is that of the two, with their tournaments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rltune.agents.errors import UserError
from rltune.common.formats import duration

LEADING = 2  # agents in the last round
LEAST_SECONDS = 20.0  # of an agent in a round: to start takes a part of them
LEAST_TRIALS = 3  # of an agent in the first round: the defaults, and two others
FACTOR = 2  # both leading agents together get this many times the trials of one search


def sizes(agents: int) -> list[int]:
    """Return the number of agents in each round; six agents: 6, 3, 2."""
    found = [agents]
    while found[-1] > LEADING:
        found.append(max(LEADING, math.ceil(found[-1] / 2)))
    return found


def trials_until(agents: int, trials: int) -> list[int]:
    """Return the number of trials of an agent up to the end of each round.

    All agents together have twice the ``trials`` of a search for one. Six agents and 60 trials: 7,
    20 and 40.
    """
    rounds = sizes(agents)
    share = FACTOR * trials / len(rounds)
    found, total = list[int](), 0.0
    for left in rounds:
        total += share / left
        found.append(max(LEAST_TRIALS, round(total)))
    return found


def seconds_of(left: float, agents: int, waiting: int, later: int) -> float:
    """Return the seconds of the next agent in a round; all rounds are equally long.

    Args:
        left: seconds for what is left of this round, and for those after it
        agents: in this round
        waiting: of them, those that have not had their part
        later: rounds after this one
    """
    return left / (waiting + later * agents)


def check_time(agents: int, limit: float | None, trial_time: float) -> None:
    """Raise UserError where the time limit is too short for so many agents.

    In the first round, each needs the time to start, and that of two trials after each other.

    Args:
        agents: their number
        limit: seconds for everything; None: no limit
        trial_time: seconds of a trial, as far as they are known
    """
    if limit is None:
        return
    least = LEAST_SECONDS + 2 * trial_time
    first = seconds_of(limit, agents, agents, len(sizes(agents)) - 1)
    if first < least:
        minutes = math.ceil(least * agents * len(sizes(agents)) / 60)
        shorter = ", a shorter --trial-time" if trial_time else ""
        raise UserError(
            f"--time-limit {duration(limit)} is too short for {agents} agents: each would have "
            f"{first:.0f} seconds in the first round and needs {least:.0f}. Give {minutes}m"
            f"{shorter} or fewer agents."
        )


def survivors(
    objectives: Mapping[str, Sequence[float]], agents: Sequence[str], size: int
) -> list[str]:
    """Return the agents with the best trials, in the order in which they were named.

    Where the best trials of two are equal, as at an environment's highest return, the next best
    decide: an agent that gets there often is the faster one, or the surer one.

    Args:
        objectives: of each agent's trials, best first; empty: it has no result
        agents: of the round that has ended
        size: how many go on
    """
    usable = [agent for agent in agents if objectives.get(agent)]
    kept = sorted(usable, key=lambda agent: list(objectives[agent]), reverse=True)[:size]
    return [agent for agent in agents if agent in kept]
