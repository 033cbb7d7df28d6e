"""The registry of backends: what trains an agent on an environment, by their names.

Each agent belongs to a backend of `single.py`; on several environments at once it is trained by
`suite.SuiteBackend`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.config import config_dict
from rltune.agents.engines import AUTO
from rltune.agents.envs.suite import environments, is_suite
from rltune.backends.single import single_backend

if TYPE_CHECKING:
    from rltune.agents.loop.controls import Controls
    from rltune.backends.base import Backend, Trainer
    from rltune.space.core import SpaceCore


# What env steps without an update are called.
WARM_UPS = ("learning_starts", "num_steps_sampled_before_learning_starts")


def backend_of(agent: str, env: str | None = None) -> Backend:
    """Return the backend of an agent; on this environment, or these, if they are given."""
    single = single_backend(agent)
    if env is None or not is_suite(env):
        return single
    from rltune.backends.suite import SuiteBackend  # late: it needs PyTorch

    return SuiteBackend(single)


def config_class(agent: str) -> type[Any]:
    """Return the class of an agent's configurations: a dataclass of hyperparameters.

    Raises:
        UserError: there is no such agent, or it can't be imported, or it is none.
    """
    return backend_of(agent).config_class(agent)


def config_class_in(agent: str, space: SpaceCore | None, more: Iterable[str] = ()) -> type[Any]:
    """Return the class of an agent's configurations in a search; see `Backend.config_class_in`."""
    return backend_of(agent).config_class_in(agent, space, more)


def is_own_code(agent: str) -> bool:
    """Whether it is no agent, but a training of the user's own: a function or a script."""
    return backend_of(agent).own_code


def check_fit(
    agent: str,
    env: str,
    configs: Sequence[Mapping[str, Any]],
    env_kwargs: Mapping[str, Any],
    *,
    has_data: bool,
) -> None:
    """Raise `UserError` when the agent can't be trained there; see `Backend.check_fit`."""
    backend_of(agent, env).check_fit(agent, env, configs, env_kwargs, has_data=has_data)


def check_start(agent: str, eval_mode: str, weights: str | None = None, engine: str = AUTO) -> None:
    """Raise `UserError` for what an agent can't; see `Backend.check_start`."""
    backend_of(agent).check_start(agent, eval_mode, weights, engine)


def is_own(agent: str) -> bool:
    """Whether an agent is ``module:Class`` of the user's own."""
    return backend_of(agent).is_own(agent)


def learns_nothing(config: Mapping[str, Any], env: str, env_steps: int) -> str:
    """Return the reason why so many env steps end before the first update; empty: they don't."""
    env_steps //= len(environments(env))
    for name in WARM_UPS:
        warm_up = config.get(name)
        if isinstance(warm_up, int) and warm_up >= env_steps:
            return f"nothing is learned: {name} is {warm_up:,} of {env_steps:,} env steps"
    return ""


def cut_off(row: Mapping[str, Any], env: str) -> str:
    """Return a note on episodes of an evaluation that were cut off; empty: there were none."""
    if not row.get("eval_cut"):
        return ""
    from rltune.agents.envs.vector import LONGEST_EPISODE

    said = f"episodes of evaluations are cut off after {LONGEST_EPISODE:,} steps: "
    if is_suite(env):
        return f"{said}an environment has no time limit (wrap it in gymnasium's TimeLimit)"
    return f'{said}{env} has no time limit (--env-kwargs "{{max_episode_steps: N}}" sets one)'


def agent_type(agent: str, env: str) -> type[Trainer]:
    """Return the class that trains the agent there."""
    return backend_of(agent, env).trainer(agent)


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
    engine: str = AUTO,
) -> Trainer:
    """Return a new trainer of the agent there, with the arguments of `Trainer`."""
    return agent_type(agent, env)(
        agent,
        env,
        config,
        total_timesteps=total_timesteps,
        seed=seed,
        device=device,
        controls=controls,
        env_kwargs=env_kwargs,
        engine=engine,
    )


def with_config(
    agent: Trainer, config: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]
) -> Trainer:
    """Return the agent with the configuration that it shall have at its env steps.

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
