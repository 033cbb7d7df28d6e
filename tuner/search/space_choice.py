"""The choice of the search space: a given one or the agent's, with changes by the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltune.agents.config import NETWORK_FIELDS, config_dict, make_config, own_name
from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError
from rltune.backends.names import is_name_of
from rltune.space.changes import held
from rltune.space.dimensions import Dimension, same, word
from rltune.space.samples import try_out
from rltune.space.space import Space, Start, shipped_name, shipped_spaces
from rltune.space.surroundings import searchable

Asked = Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class Choice:
    """The space of a search, with notes for the user.

    Attributes:
        space: in the agent's own names and types
        env: the environment: the one that is asked for, or the space's; None: neither
        notes: a sentence for each default that was taken and each setting that was changed
    """

    space: Space
    env: str | None
    notes: list[str]


def named_agent(space: Asked | None) -> str:
    """Return the agent that a space names. UserError: there is no space, or it names none."""
    named = None if space is None else read_space(space).agent
    if named is None:
        raise UserError(
            "which agent? Name one first, such as ppo, or give a space with agent: in it."
        )
    return named


def choose_space(
    agent: str,
    env: str | None,
    space: Asked | None,
    config_class: type[Any],
    dimensions: Mapping[str, Dimension | Any],
    zoo: str | os.PathLike[str] | None = None,
) -> Choice:
    """Return the given space, or the one that ships for the agent, or one of its hyperparameters.

    Values that the space or ``dimensions`` fix hold in all configurations, known-good ones too.

    Args:
        agent: its name
        env: the environment; None: that of the space
        space: a dict, a file, or the name of one that ships; None: see above
        config_class: of the agent's configurations
        dimensions: dimensions and fixed values, which are added to the space or replace its own
        zoo: a file of rl-zoo3's, whose settings for the environment are a start

    Raises:
        UserError: there is no such space, it is for another agent, or something in it is wrong.
    """
    from rltune.backends.registry import is_own_code

    known = searchable(config_class)
    if space is not None:
        read = read_space(space)
    elif (shipped := shipped_name(agent)) in shipped_spaces():
        read = Space.load(shipped)
    else:
        read = Space.from_hyperparameters(known, agent)
    if read.agent is not None and not is_name_of(read.agent, agent):
        raise UserError(f"the space is for the agent {read.agent!r}, not {agent!r}.")
    if env is None and read.env and not is_own_code(agent):
        _check_env(read, read.env)
    if zoo is not None:
        read = replace(read, starts=(*read.starts, _zoo_start(zoo, agent, env or read.env)))
    own = read.checked_against(known)
    fixed = {str(own_name(name, known)) for name in read.fixed}
    changes = {name: value for name, value in own.fixed.items() if name in fixed}
    texts = [name for name, value in dimensions.items() if value and isinstance(value, str)]
    if any(name in known and known[name].outputs for name in texts):
        # A model file takes the place of what the space and its starts say about the network.
        changes |= {name: known[name].default for name in NETWORK_FIELDS if name in known}
    changes |= dimensions
    chosen = own.with_overrides(changes).checked_against(known)
    if not chosen.dimensions:
        raise UserError("the space has nothing to search; give at least one dimension.")
    try_out(chosen, config_class)
    notes = [
        *_taken(read, space, takes_env=env is None),
        *_changed_defaults(chosen, changes, config_class),
        *_changed(own, chosen, changes, env),
    ]
    return Choice(chosen, env or read.env, notes)


def read_space(space: Asked) -> Space:
    """Return the space of a dict, or of a file or name."""
    return Space.from_dict(space) if isinstance(space, Mapping) else Space.load(os.fspath(space))


def _zoo_start(file: str | os.PathLike[str], agent: str, env: str | None) -> Start:
    from rltune.backends.registry import backend_of

    if env is None:
        raise UserError("which environment? Give --env ID, or env: in the space file.")
    found = backend_of(agent).zoo_settings(agent, env, os.fspath(file))
    return Start(found.config, f"zoo ({Path(file).name})", (env,))


def _check_env(read: Space, env: str) -> None:
    from rltune.agents.envs.make import check_env_name

    try:
        for name in environments(env):
            check_env_name(name)
    except UserError as error:
        raise read.source.error(("env",), str(error)) from None


def _taken(read: Space, asked: Asked | None, takes_env: bool) -> Iterator[str]:
    """Yield a sentence for the environment and the file that were taken without being named."""
    file = Path(read.source.name).name or "the space"
    if takes_env and read.env:
        yield f"The environment is {read.env}, as {file} says; --env ID takes another."
    if isinstance(asked, (str, os.PathLike)) and Path(asked).suffix and not Path(asked).exists():
        yield f"{asked} is not here; the {file} that ships with rltune is taken."


def _changed_defaults(
    chosen: Space, changes: Mapping[str, Any], config_class: type[Any]
) -> Iterator[str]:
    """Yield a sentence if the defaults of the search aren't those of the agent."""
    if not getattr(config_class, "has_defaults", True):  # a function has what the space says
        return
    own = config_dict(make_config(config_class, {}))
    fixed = {name: value for name, value in chosen.fixed.items() if name in changes}
    if values := _instead(fixed, own):
        yield f"The agent's defaults have {values}: what is fixed holds for them, too."


def _instead(fixed: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return what is fixed otherwise, such as "n_envs 2 instead of 8"; "" if nothing is."""
    return ", ".join(
        f"{n} {word(value)} instead of {word(own[n]) or 'none'}"
        for n, value in fixed.items()
        if n in own and not same(value, own[n])
    )


def _changed(
    before: Space, chosen: Space, changes: Mapping[str, Any], env: str | None
) -> Iterator[str]:
    """Yield a sentence for each of the known-good settings that the fixed values change."""
    fixed = {name: value for name, value in chosen.fixed.items() if name in changes}
    lost = fixed.keys() | (before.dimensions.keys() - chosen.dimensions.keys())
    for start in before.starts_for(env or before.env):
        if not (values := _instead(fixed, start.values)):
            continue
        settings = f"The known-good settings {start.name}".rstrip()
        if held(chosen, start, lost):
            yield f"{settings} have {values}: what is fixed holds for them, too."
        elif start.values.keys() <= lost:
            yield f"{settings} are left out: everything in them is fixed otherwise ({values})."
        else:
            yield f"{settings} are left out: with what is fixed ({values}) they break a constraint."
