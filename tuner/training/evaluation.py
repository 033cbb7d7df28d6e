"""Evaluation and playing of trained agents: `rltune.evaluate` and `rltune.play`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from rltune.agents.envs.suite import environments, is_suite
from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.agents.loop.agent import Agent
    from rltune.agents.loop.random_agent import RandomAgent
    from rltune.agents.loop.results import Evaluation
    from rltune.backends.base import Trainer
    from rltune.training.policy import Policy

RANDOM = "random"  # in place of a run: actions drawn at random
EPISODES = 100


class HasPath(Protocol):
    """A result with a path: `Run`, `SearchResult` or `TrainResult`."""

    @property
    def path(self) -> Path:
        """The run directory."""
        ...


Trained: TypeAlias = "str | os.PathLike[str] | HasPath | Policy"


def evaluate(
    run: Trained,
    episodes: int = EPISODES,
    *,
    seed: int | None = None,
    max_steps: int | None = None,
    eval_mode: str = "greedy",
    best: bool = False,
    trial: int | None = None,
    env: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> Evaluation:
    """Run episodes of a trained agent, or of actions at random.

    Args:
        run: a run directory, its name, "latest", a checkpoint file, an exported policy, a policy,
            what a search or a training has given; or "random", with ``env``
        episodes: how many
        seed: episode k starts from a seed made of this and k; by default that of the agent's own
            evaluations, of random actions 0
        max_steps: episodes are cut off after so many steps
        eval_mode: "greedy", or "stochastic": exploring as at the end of the training
        best, trial, env, device: as in `rltune.load`
        env_kwargs: of the environment of random actions; an agent has its own

    Raises:
        UserError: there is no such checkpoint, or what is asked for can't be.
    """
    with opened(
        run, best=best, trial=trial, env=env, env_kwargs=env_kwargs, device=device
    ) as found:
        return found[1].evaluate(episodes, seed, max_steps, eval_mode)


def play(
    run: Trained,
    episodes: int = 1,
    *,
    window: bool = False,
    video: str | os.PathLike[str] | None = None,
    frames: str | os.PathLike[str] | None = None,
    record: str | os.PathLike[str] | None = None,
    delay: float | None = None,
    every_nth: int = 1,
    max_steps: int | None = None,
    seed: int = 0,
    best: bool = False,
    trial: int | None = None,
    env: str | None = None,
    device: str = "auto",
) -> Evaluation:
    """Play greedy episodes in a window, or into a video or pictures.

    Args:
        run: as in `evaluate`
        episodes: how many
        window: the default where no file is asked for
        video: an .mp4 or .gif file
        frames: a folder for one PNG per picture
        record: a file of demonstrations: the episodes step by step
        delay: seconds per step; by default the natural speed
        every_nth: record every so many steps
        max_steps: episodes are cut off after so many steps
        seed: episode k starts from a seed made of this and k
        best, trial, env, device: as in `rltune.load`

    Raises:
        UserError: there is no such checkpoint, no display, or the environment can't be drawn.
    """
    from rltune.agents.loop.video import play as play_agent

    if run == RANDOM:
        raise UserError("random actions can be evaluated, not played")
    with opened(run, best=best, trial=trial, env=env, device=device) as (_, agent):
        if is_suite(agent.env):
            raise UserError(
                f"which environment? Give --env, one of {', '.join(environments(agent.env))}."
            )
        return play_agent(
            cast("Agent", agent),  # RLlib's have all that is needed here
            episodes,
            window=window or (video is None and frames is None and record is None),
            video=None if video is None else Path(video),
            frames=None if frames is None else Path(frames),
            record=None if record is None else Path(record),
            delay=delay,
            every_nth=every_nth,
            max_steps=max_steps,
            seed=seed,
        )


@contextmanager
def opened(
    run: Trained,
    *,
    best: bool = False,
    trial: int | None = None,
    env: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> Iterator[tuple[Path | None, Trainer | RandomAgent]]:
    """Yield the checkpoint and the agent of a run, and close what was opened for them.

    Args: as those of `evaluate`.
    """
    from rltune.training.policy import Policy

    if isinstance(run, Policy):
        if env not in (None, run.env):
            raise UserError(f"the policy is of {run.env!r}, not of {env!r}")
        yield run.path, run.agent
        return
    path = None
    agent: Trainer | RandomAgent
    if run == RANDOM:
        from rltune.agents.loop.random_agent import RandomAgent

        if env is None or is_suite(env):
            raise UserError("random actions in which environment? Give --env with one of them.")
        agent = RandomAgent(env, env_kwargs)
    else:
        from rltune.backends.checkpoints import find_checkpoint, load_agent, place_of

        if env_kwargs:
            raise UserError("--env-kwargs: an agent has those that it was trained with")
        path = find_checkpoint(place_of(run), best=best, trial=trial)
        agent = load_agent(path, env=env, device=device)
    try:
        yield path, agent
    finally:
        agent.close()


def shown(path: Path) -> str:
    """Return a path as one would type it: relative to the working folder if it is below it."""
    path = path.absolute()
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def summary(
    path: Path | None,
    agent: Trainer | RandomAgent,
    evaluation: Evaluation,
    eval_mode: str = "greedy",
) -> dict[str, Any]:
    """Return an evaluation as JSON-able values.

    The interval is None where there is none, as for fewer than 5 episodes; the success rate where
    it is unknown.
    """
    import math

    from rltune.stats.estimates import bootstrap_interval, iqm

    low, high = bootstrap_interval(evaluation.returns)
    known = math.isfinite(low) and math.isfinite(high)
    ends = (low, high) if known else (None, None)
    return {
        "checkpoint": None if path is None else shown(path),
        "agent": agent.algorithm_spec,
        "env": agent.env,
        "env_steps": agent.env_steps,
        "eval_mode": RANDOM if path is None else eval_mode,
        "episodes": len(evaluation.returns),
        "mean": evaluation.mean,
        "std": evaluation.std,
        "iqm": iqm(evaluation.returns),
        "iqm_interval": list(ends),
        "success_rate": evaluation.success_rate,
        "mean_length": sum(evaluation.lengths) / len(evaluation.lengths),
        "seconds": evaluation.seconds,
        "returns": evaluation.returns,
        "lengths": evaluation.lengths,
        "cut_off": evaluation.cut,
    }


def describe(result: Mapping[str, Any]) -> str:
    """Return an evaluation in a few lines."""
    returns, (low, high) = result["returns"], result["iqm_interval"]
    interval = "" if low is None else f"  95 % interval {low:.6g} to {high:.6g}"
    if low is None and len(returns) > 1 and len(set(returns)) == 1:
        interval = f"  all {returns[0]:.6g}"
    lengths = result["lengths"]
    rows = {
        "mean": f"{result['mean']:.6g}  standard deviation {result['std']:.6g}",
        "interquartile mean": f"{result['iqm']:.6g}{interval}",
        "lowest, highest": f"{min(returns):.6g}, {max(returns):.6g}",
        "success rate": "" if result["success_rate"] is None else f"{result['success_rate']:.6g}",
        "episode length": f"{result['mean_length']:.6g}  ({min(lengths)} to {max(lengths)} steps)",
        "cut off": f"{result['cut_off']} episodes (no time limit)" if result["cut_off"] else "",
    }
    what = f"{result['agent']} on {result['env']}"
    if result["checkpoint"] is not None:
        what = f"{result['checkpoint']}: {what}, trained for {result['env_steps']:,} env steps"
    return "\n".join(
        [
            what,
            f"return of {result['episodes']} {result['eval_mode']} episodes, "
            f"{result['seconds']:.1f} s",
            *(f"  {name:<20}{value}" for name, value in rows.items() if value),
        ]
    )
