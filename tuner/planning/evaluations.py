"""Default evaluations of a training: how many, and on how many episodes.

Evaluations cost env steps of their own: ten episodes of 1,000 steps, twenty times, are 200,000
beside a training of 3,000. By default they are fewer then, by a rule that looks at nothing but the
training's length and the environment's time limit, so all trials of a search have the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError
from rltune.common.formats import count, plural

# env steps of evaluations for one of training, at most, by default. Without updates, and ten at
# once, they are cheaper: measured on CartPole, Acrobot and Pendulum (PPO, one core), a half to a
# seventh; so evaluating takes about as long as training at most.
SHARE = 3
LEAST = 3  # evaluations, and episodes of each


def longest_episode(env: str, env_kwargs: Mapping[str, Any] | None = None) -> int | None:
    """Return the env steps of an episode, at most; of several environments, of one on each.

    None: no time limit is known before the environment is made, or it can't be made.
    """
    from rltune.agents.envs.make import find_spec, is_atari, is_own, split_limit
    from rltune.agents.envs.vector import LONGEST_EPISODE

    total = 0
    for name in environments(env):
        try:
            _, limit = split_limit(name, env_kwargs)
            if limit is None and not is_own(name):
                limit = find_spec(name).max_episode_steps
                limit = limit or (LONGEST_EPISODE if is_atari(name) else None)
        except UserError:  # an error names it where it is made
            return None
        if not limit:
            return None
        total += limit
    return total


def affordable(
    env_steps: int, longest: int | None, evaluations: int, episodes: int
) -> tuple[int, int]:
    """Return the evaluations of a training, and the episodes of each.

    Args:
        env_steps: of the training
        longest: env steps of an episode, at most; None: unknown
        evaluations, episodes: that it has where they are no more than `SHARE` of the training
    """
    if longest is None:
        return evaluations, episodes
    most = SHARE * env_steps // longest  # episodes in all
    each = min(episodes, max(LEAST, most // evaluations))
    return min(evaluations, max(LEAST, most // each)), each


def explained(
    env_steps: int, longest: int | None, now: tuple[int, int], usual: tuple[int, int]
) -> str:
    """Return a text on evaluations that are fewer than usual, or that dwarf the training.

    Args:
        env_steps: of the training
        longest: env steps of an episode, at most; None: unknown
        now: evaluations, and episodes of each
        usual: the defaults where the training is long enough
    """
    if longest is None:
        return ""

    def most(evaluations: int, episodes: int) -> int:
        return evaluations * episodes * longest

    said = f"up to {count(most(*now))} env steps beside {count(env_steps)} of training"
    if most(*now) > SHARE * env_steps:
        return f"evaluations take {said}; --eval-freq and --eval-episodes set how many"
    if most(*usual) <= SHARE * env_steps or most(*now) >= most(*usual):
        return ""
    return (
        f"evaluated {now[0]} times on {plural(now[1], 'episode')}, {said}: {usual[0]} times on "
        f"{usual[1]} would be up to {count(most(*usual))}"
    )
