"""The backends of trainings of the user's own: ``function:module:name`` and ``script:FILE``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rltune.agents.engines import AUTO
from rltune.agents.envs.suite import NO_ENV
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import GREEDY
from rltune.backends.base import Backend
from rltune.backends.names import FUNCTION, METRIC_NAME, SCRIPT, SECTION
from rltune.objectives.metrics import METRIC

if TYPE_CHECKING:
    from rltune.agents.loop.controls import Controls
    from rltune.backends.base import SingleTrainer
    from rltune.space.core import SpaceCore


class ExternalBackend(Backend):
    """Trainings of the user's own, which report values; what they are is not known.

    Attributes:
        has_defaults: whether the code has values of its own for what it is not told
    """

    starts_from_weights = False
    eval_modes = (GREEDY,)
    engines = (AUTO,)
    changes_hyperparameters = False
    resumes_exactly = False
    own_code = True
    has_defaults = False

    def agents(self) -> list[str]:
        """Return nothing: they are known by their names alone."""
        return []

    def config_class(self, agent: str) -> type[Any]:
        """Raise `UserError`: a search has a space, which names the hyperparameters."""
        raise UserError(
            f"{agent.removeprefix(self.prefix)} is code of your own, which rltune runs in a search "
            "alone (rltune run, with a --space that names its hyperparameters)."
        )

    def config_class_in(
        self, agent: str, space: SpaceCore | None, more: Iterable[str] = ()
    ) -> type[Any]:
        """Return the class of configurations with what the space names."""
        from rltune.backends.external.config import config_class

        return config_class(space, more, has_defaults=self.has_defaults)

    def check_start(self, agent: str, eval_mode: str, weights: str | None, engine: str) -> None:
        """Raise `UserError` for weights, a mode of evaluation or an engine: it has its own."""
        for flag, given in (
            ("--weights", weights is not None),
            ("--eval-mode", eval_mode not in self.eval_modes),
            ("--engine", engine not in self.engines),
        ):
            if given:
                name = agent.removeprefix(self.prefix)
                raise UserError(f"{flag}: {name} is code of your own, which trains as it does.")

    def check_controls(self, controls: Controls, env_kwargs: Mapping[str, Any] | None) -> None:
        """Raise `UserError` for plateaus: of the controls, there is the target alone."""
        if controls.plateau_patience is not None:
            raise UserError("--plateau-patience is not for code of your own; leave it out.")

    def is_own(self, agent: str) -> bool:
        """Return True: all of it is the user's."""
        return True

    def _check_surroundings(
        self, agent: str, env_kwargs: Mapping[str, Any], has_arguments: bool
    ) -> None:
        """Raise `UserError` for arguments of an environment that nobody takes."""
        name = agent.removeprefix(self.prefix)
        for key in env_kwargs:
            if key.startswith("wrapper.") or not (has_arguments or key in (METRIC_NAME, SECTION)):
                raise UserError(f"{name} makes its environment by itself; leave out {key}.")


class FunctionBackend(ExternalBackend):
    """Functions ``def my_train(config, trial)``."""

    name = "functions"
    prefix = FUNCTION

    def trainer(self, agent: str) -> type[SingleTrainer]:
        """Return the class that runs a function."""
        from rltune.backends.external.agent import FunctionAgent

        return cast("type[SingleTrainer]", FunctionAgent)

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        """See `Backend.check_fit`; the function is imported, and not called."""
        from rltune.backends.external.function import function_of

        self._check_surroundings(agent, env_kwargs, has_arguments=True)
        function_of(agent)

    def command(
        self,
        agent: str,
        env: str,
        config: Mapping[str, Any],
        *,
        env_kwargs: Mapping[str, Any],
        budget: int,
        seed: int,
    ) -> str:
        """Return the command that calls the function outside of a search."""
        module, _, function = agent.removeprefix(FUNCTION).partition(":")
        given = {name: value for name, value in env_kwargs.items() if name != METRIC_NAME}
        about = "" if env == NO_ENV else f", env={env!r}"
        about += f", env_kwargs={given!r}" if given else ""
        code = (
            f"import rltune, {module}; rltune.Trial({seed}, {budget}{about})"
            f".run({module}.{function}, {dict(config)!r})"
        )
        return shlex.join(["python", "-c", code])


class ScriptBackend(ExternalBackend):
    """Scripts, as they are; the section ``script:`` of the space says how they are told."""

    name = "scripts"
    prefix = SCRIPT
    has_defaults = True

    def trainer(self, agent: str) -> type[SingleTrainer]:
        """Return the class that runs a script."""
        from rltune.backends.external.script import ScriptAgent

        return cast("type[SingleTrainer]", ScriptAgent)

    def check_fit(
        self,
        agent: str,
        env: str,
        configs: Sequence[Mapping[str, Any]],
        env_kwargs: Mapping[str, Any],
        *,
        has_data: bool,
    ) -> None:
        """See `Backend.check_fit`; the script is not run."""
        from rltune.backends.external.script import section_of
        from rltune.backends.external.words import script_of

        self._check_surroundings(agent, env_kwargs, has_arguments=False)
        script_of(agent)
        section = section_of(env_kwargs)
        name = agent.removeprefix(SCRIPT)
        if env != NO_ENV and section.env is None:
            raise UserError(
                f"--env {env}: {name} is not told its environment; write env: --env-id in the "
                "section script: of the space, or leave --env out."
            )
        named = env_kwargs.get(METRIC_NAME, METRIC) != METRIC
        if not named and section.results in ("tensorboard", "json"):
            what = "tag of TensorBoard" if section.results == "tensorboard" else "key of the JSON"
            raise UserError(f"which number of {name} counts? Give --metric with the {what}.")

    def command(
        self,
        agent: str,
        env: str,
        config: Mapping[str, Any],
        *,
        env_kwargs: Mapping[str, Any],
        budget: int,
        seed: int,
    ) -> str:
        """Return the command of the script; a file with its configuration is to be written."""
        from pathlib import Path

        from rltune.backends.external.script import section_of
        from rltune.backends.external.words import make_command, script_of

        made = make_command(
            section_of(env_kwargs),
            script_of(agent),
            config,
            seed=seed,
            budget=budget,
            env=None if env == NO_ENV else env,
            folder=Path("."),
        )
        variables = [f"{name}={value}" for name, value in made.variables.items()]
        return shlex.join([*(["env", *variables] if variables else []), *made.words])
