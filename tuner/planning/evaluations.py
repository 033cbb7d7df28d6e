"""Default evaluations of a training: how many, and on how many episodes.

Evaluations cost env steps of their own: ten episodes of 1,000 steps, twenty times, are 200,000
beside a training of 3,000. By default they are fewer then, by a rule that looks at nothing but the
training's length and the environment's time limit, so all trials of a search have the same ones.
(In a search, those that are not for the record may have fewer episodes: `objectives/episodes.py`.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError
from rltune.common.formats import count, plural
from rltune.objectives.episodes import LEAST, EvaluationPlan, affordable_steps

if TYPE_CHECKING:
    from rltune.runs.search_spec import SearchSpec

# env steps of evaluations for one of training, at most, in a training of its own. They are cheaper
# (`COST`), so evaluating takes less than half of the time.
SHARE = 3.0
OTHERS = 2  # episodes: the least of evaluations that decide (`LEAST`), and of those that don't (1)


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
    env_steps: int,
    longest: int | None,
    evaluations: int,
    episodes: int,
    *,
    recorded: int | None = None,
    share: float = SHARE,
) -> tuple[int, int]:
    """Return the evaluations of a training, and the episodes of each.

    Args:
        env_steps: of the training
        longest: env steps of an episode, at most; None: unknown
        evaluations, episodes: that it has where they are no more than the share of the training
        recorded: evaluations that run all episodes; the others may have `OTHERS`. None: all
        share: env steps of evaluations for one of training, where the others may have fewer
    """
    if longest is None:
        return evaluations, episodes
    most = int(SHARE * env_steps // longest)  # episodes in all
    each = min(episodes, max(LEAST, most // evaluations))
    times = min(evaluations, max(LEAST, most // each))
    if recorded is not None:
        whole = min(recorded, times)
        most = int(share * env_steps // longest)
        each = min(episodes, max(LEAST, (most - OTHERS * (times - whole)) // whole))
    return times, each


def explained(
    env_steps: int,
    longest: int | None,
    now: tuple[int, int],
    usual: tuple[int, int],
    share: float = SHARE,
) -> str:
    """Return a text on evaluations that are fewer than usual, or that dwarf the training.

    Args:
        env_steps: of the training
        longest: env steps of an episode, at most; None: unknown
        now: evaluations, and episodes of each
        usual: the defaults where the training is long enough
        share: of the training that they take no more than by default, in env steps
    """
    if longest is None:
        return ""

    def most(evaluations: int, episodes: int) -> int:
        return evaluations * episodes * longest

    said = f"up to {count(most(*now))} env steps beside {count(env_steps)} of training"
    if most(*now) > SHARE * env_steps:
        return f"evaluations take {said}; --eval-freq and --eval-episodes set how many"
    if most(*usual) <= share * env_steps or most(*now) >= most(*usual):
        return ""
    return (
        f"evaluated {now[0]} times on {plural(now[1], 'episode')}, {said}: {usual[0]} times on "
        f"{usual[1]} would be up to {count(most(*usual))}"
    )


def evaluation_plan(
    spec: SearchSpec, env_steps: int, stops: Sequence[int], cutoffs: Mapping[int, float]
) -> EvaluationPlan | None:
    """Return the episodes of a training's evaluations; None: all of them everywhere.

    Args:
        spec: the search
        env_steps: of the training
        stops: points at which it is judged, its end among them
        cutoffs: see `EvaluationPlan`
    """
    if spec.eval_share is None or spec.controls:  # these may end a training anywhere
        return None
    return EvaluationPlan(
        episodes=spec.eval_episodes,
        points=until(spec.evaluate_at, env_steps),
        stops=list(stops),
        cutoffs=dict(cutoffs),
        env_steps=affordable_steps(spec.eval_share, env_steps),
        objective=spec.objective,
    )


def until(points: Sequence[int], env_steps: int) -> list[int]:
    """Return the points of a training that ends there."""
    return [*(point for point in points if point < env_steps), env_steps]
