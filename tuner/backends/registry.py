"""Agents by name: ours and the user's own (`rltune.agents`), and RLlib's (`rllib:PPO`).

On several environments at once each is a `suite.SuiteAgent`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.config import config_dict
from rltune.agents.envs.suite import environments, is_suite
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY
from rltune.agents.registry import agent_class
from rltune.backends.names import EXPLORES, NO_WEIGHTS, RLLIB
from rltune.backends.single import one_agent_type

if TYPE_CHECKING:
    from rltune.agents.loop.controls import Controls
    from rltune.backends.base import Trainer


# What env steps without an update are called.
WARM_UPS = ("learning_starts", "num_steps_sampled_before_learning_starts")


def config_class(agent: str) -> type[Any]:
    """Return the class of an agent's configurations: a dataclass of hyperparameters.

    Raises:
        UserError: there is no such agent, or it can't be imported, or it is none.
    """
    if agent.startswith(RLLIB):
        from rltune.backends.rllib.config import config_class as of_rllib

        return of_rllib(agent)
    return agent_class(agent).Config


def check_fit(
    agent: str,
    env: str,
    configs: Sequence[Mapping[str, Any]],
    env_kwargs: Mapping[str, Any],
    *,
    has_data: bool,
) -> None:
    """Raise `UserError` when the agent can't be trained on the environment, before it is tried.

    ``has_data`` says whether what RLlib's offline algorithms learn from lies on this machine.
    """
    if agent.startswith(RLLIB):
        from rltune.backends.rllib.agent import check_fit as check_theirs

        check_theirs(agent, env, configs, env_kwargs, has_data=has_data)
    else:
        from rltune.agents.loop.compatibility import check_fit as check_ours

        check_ours(agent, env, configs, env_kwargs)


def check_start(agent: str, eval_mode: str, weights: str | None) -> None:
    """Raise `UserError` for what RLlib's agents can't: start from weights, be evaluated so."""
    if agent.startswith(RLLIB):
        if weights is not None:
            raise UserError(f"{agent} {NO_WEIGHTS}")
        if eval_mode != GREEDY:
            raise UserError(f"{agent} can only be evaluated greedily: {EXPLORES}")


def learns_nothing(config: Mapping[str, Any], env: str, env_steps: int) -> str:
    """Return why a training of so many env steps ends before its first update, if it does."""
    env_steps //= len(environments(env))
    for name in WARM_UPS:
        warm_up = config.get(name)
        if isinstance(warm_up, int) and warm_up >= env_steps:
            return f"nothing is learned: {name} is {warm_up:,} of {env_steps:,} env_steps"
    return ""


def cut_off(row: Mapping[str, Any], env: str) -> str:
    """Return what to do about episodes of an evaluation that would not end, if there were some."""
    if not row.get("eval_cut"):
        return ""
    from rltune.agents.envs.vector import LONGEST_EPISODE

    said = f"episodes of evaluations are cut off after {LONGEST_EPISODE:,} steps: "
    if is_suite(env):
        return f"{said}an environment has no time limit (wrap it in gymnasium's TimeLimit)"
    return f'{said}{env} has no time limit (--env-kwargs "{{max_episode_steps: N}}" sets one)'


def agent_type(agent: str, env: str) -> type[Trainer]:
    """Return the class that trains the agent there."""
    if is_suite(env):
        from rltune.backends.suite import SuiteAgent

        return SuiteAgent
    return one_agent_type(agent)


def make_trainer(
    agent: str,
    env: str,
    config: Mapping[str, object],
    *,
    total_timesteps: int,
    seed: int = 0,
    device: str = "auto",
    controls: Controls | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Trainer:
    """Return what trains the agent there, with the arguments of `Trainer`."""
    return agent_type(agent, env)(
        agent,
        env,
        config,
        total_timesteps=total_timesteps,
        seed=seed,
        device=device,
        controls=controls,
        env_kwargs=env_kwargs,
    )


def with_config(
    agent: Trainer, config: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]
) -> Trainer:
    """Return the agent with the configuration that it shall have at its env_steps.

    Args:
        agent: it is closed where another one takes its place
        config: to begin with, all of it in plain types
        changes: new values (``config``) of some hyperparameters from ``env_steps`` on, ascending

    Raises:
        UserError: a hyperparameter can't change in a training that has begun.
    """
    due = [change["config"] for change in changes if change["env_steps"] <= agent.env_steps]
    wanted = {name: value for values in (config, *due) for name, value in values.items()}
    has = config_dict(agent.config)
    if all(has.get(name) == value for name, value in wanted.items()):
        return agent
    return agent.with_config(wanted)
