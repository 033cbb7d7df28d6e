"""Presets: known-good settings of the search spaces that ship, for one training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from rltune.space.space import Space


@dataclass(frozen=True)
class Preset:
    """Settings that are known to be good.

    ``env`` lists the environments that they are meant for; empty: any. ``space`` says what is fixed
    and what is derived from the ``values``.
    """

    name: str
    env: tuple[str, ...]
    values: dict[str, Any]
    space: Space


def presets(agent: str) -> list[Preset]:
    """Return the presets of an agent: the named starts of every space that ships for it."""
    from rltune.agents.config import hyperparameters
    from rltune.backends.registry import config_class
    from rltune.space.space import Space, shipped_name, shipped_spaces

    known = hyperparameters(config_class(agent))
    found = []
    for name, file in shipped_spaces().items():
        space = Space.load(file)
        if space.agent is None or space.agent.lower() != agent.lower():
            continue
        space = space.checked_against(known)
        # The space under the agent's name is a general one: its environment is only where a search
        # goes that names none. That of another one, such as ppo-atari, is what its starts are for.
        own = (space.env,) if space.env and name != shipped_name(agent) else ()
        named = [s for s in space.starts if s.name and s.part == "start"]
        found += [Preset(s.name, s.env or own, s.values, space) for s in named]
    return found


def environments(known: Iterable[Preset]) -> dict[str, str]:
    """Return the names of the presets, each with its environments in words."""
    found: dict[str, list[str]] = {}
    for preset in known:
        found.setdefault(preset.name, []).extend(preset.env or ["any environment"])
    return {name: ", ".join(envs) for name, envs in found.items()}


def preset(
    agent: str, env: str, name: str = "zoo", changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return known-good hyperparameters by name, as `rltune.agents.Agent` and TrainSpec take them.

    Args:
        agent: such as "td3"
        env: the gymnasium id that they are for
        name: of the preset; ``rltune train AGENT --help`` lists them
        changes: hyperparameters that win over the preset's; what is derived follows them

    Raises:
        UserError: there is no such preset for the environment, or no such hyperparameter.
    """
    from rltune.agents.config import canonical_name
    from rltune.backends.registry import config_class

    config = config_class(agent)
    changes = {canonical_name(config, key): value for key, value in (changes or {}).items()}
    known = presets(agent)
    for preset in known:
        if preset.name == name and (not preset.env or env in preset.env):
            return {**preset.space.resolve({**preset.values, **changes}), **changes}
    there_is = "; ".join(f"{n} for {envs}" for n, envs in environments(known).items())
    raise UserError(f"{agent} has no preset {name!r} for {env}; it has {there_is or 'none at all'}")
