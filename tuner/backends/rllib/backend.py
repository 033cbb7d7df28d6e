"""The backend of RLlib's algorithms: ``rllib:PPO`` and the others of `rllib.config.NAMES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltune.agents.engines import AUTO, TORCH
from rltune.agents.eval_modes import GREEDY
from rltune.backends.base import Backend
from rltune.backends.names import RLLIB

if TYPE_CHECKING:
    from rltune.backends.base import SingleTrainer


class RLlibBackend(Backend):
    """RLlib's algorithms, with sampler and learner in the process of the trial."""

    name = "RLlib"
    prefix = RLLIB
    starts_from_weights = False
    eval_modes = (GREEDY,)
    engines = (AUTO, TORCH)
    changes_hyperparameters = False
    resumes_exactly = False

    def agents(self) -> list[str]:
        """Return the names of its algorithms that can be run."""
        from rltune.backends.rllib.config import NAMES

        return [self.prefix + name for name in NAMES]

    def config_class(self, agent: str) -> type[Any]:
        """Return the class of an agent's configurations; see `Backend.config_class`."""
        from rltune.backends.rllib.config import config_class

        return config_class(agent)

    def trainer(self, agent: str) -> type[SingleTrainer]:
        """Return the class that trains an agent."""
        from rltune.backends.rllib.agent import RLlibAgent

        return RLlibAgent

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        """See `Backend.check_fit`; building the algorithm would take seconds."""
        from rltune.backends.rllib.compatibility import check_fit

        check_fit(agent, env, configs, env_kwargs, has_data=has_data)
