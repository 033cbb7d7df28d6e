"""The backends of Stable-Baselines3's and SBX's algorithms: ``sb3:PPO``, ``sbx:SAC``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.engines import AUTO, TORCH
from rltune.backends.base import Backend
from rltune.backends.sb3.libraries import LIBRARIES, Library

if TYPE_CHECKING:
    from rltune.backends.base import KnownGood, SingleTrainer


class SB3Backend(Backend):
    """The algorithms of one library, in the process of the trial.

    Args:
        library: of `rltune.backends.sb3.libraries`
    """

    starts_from_weights = False
    engines = (AUTO, TORCH)
    resumes_exactly = False

    def __init__(self, library: Library) -> None:
        self.name = library.name
        self.prefix = library.prefix
        self._library = library

    def agents(self) -> list[str]:
        """Return the names of its algorithms."""
        return [self.prefix + name for name in self._library.modules]

    def config_class(self, agent: str) -> type[Any]:
        """Return the class of an agent's configurations; see `Backend.config_class`."""
        from rltune.backends.sb3.config import config_class

        return config_class(agent)

    def trainer(self, agent: str) -> type[SingleTrainer]:
        """Return the class that trains an agent."""
        from rltune.backends.sb3.agent import SB3Agent

        return SB3Agent

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        """See `Backend.check_fit`; it makes environments and networks once."""
        from rltune.backends.sb3.building import check_fit

        check_fit(agent, env, configs, env_kwargs)

    def zoo_settings(self, agent: str, env: str, file: str | Path) -> KnownGood:
        """Return rl-zoo3's settings for an environment; see `Backend.zoo_settings`."""
        from rltune.backends.sb3.zoo import read_zoo

        return read_zoo(file, agent, env)


BACKENDS = [SB3Backend(library) for library in LIBRARIES]
