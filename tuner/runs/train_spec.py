"""The specification of a training as run.yaml holds it, and the command that repeats it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rltune.agents.loop.controls import Controls
from rltune.agents.registry import canonical
from rltune.common.options import options_of
from rltune.common.redaction import masked
from rltune.runs.run_options import MAX_STEPS_PER_ITERATION
from rltune.runs.train_options import TrainOptions
from rltune.space.surroundings import split

EVALUATIONS = 20  # over a whole training, unless --eval-freq says otherwise


def retrain_command(
    agent: str,
    env: str,
    budget: int,
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
    seed: int,
    schedule: str = "[]",
    *,
    env_kwargs: Mapping[str, Any],
    controls: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    weights: str | None = None,
) -> str:
    """Return the command line that trains ``config`` again, bit for bit.

    It names only the values that differ from the agent's ``defaults``, and no secret among
    ``env_kwargs``.

    Args:
        agent, env, seed, env_kwargs, controls: as in `TrainSpec`
        budget: env steps of the training
        config: all hyperparameters
        defaults: those of the agent
        schedule: changes of hyperparameters on the way, as a file's name or in YAML
        evaluation: as `SearchSpec.evaluation`
        weights: checkpoint or run whose networks it starts from
    """
    parts = split(config, env_kwargs, budget)
    words = ["rltune", "train", agent, "--env", env, "-n", str(parts.env_steps)]
    for name, value in parts.config.items():
        if name not in defaults or _flag_value(value) != _flag_value(defaults[name]):
            words += [f"--{name.replace('_', '-')}", _flag_value(value)]
    if parts.env_kwargs:
        words += ["--env-kwargs", json.dumps(masked(parts.env_kwargs))]
    usual = options_of(TrainOptions)
    told = {name: value for name, value in evaluation.items() if value != usual[name].default}
    for name, value in {**controls, **told}.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    if weights:
        words += ["--weights", weights]
    if schedule != "[]":
        words += ["--schedule", schedule]
    words += ["--seed", str(seed)]
    return shlex.join(words)


def _flag_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return ",".join(_flag_value(element) for element in value)
    return "none" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class TrainSpec(TrainOptions):
    """A resolved training, as run.yaml holds it."""

    agent: str
    config: dict[str, Any] = field(default_factory=dict)
    schedule: list[dict[str, Any]] = field(default_factory=list)  # see `registry.with_config`

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainSpec:
        """Read the specification back from run.yaml."""
        from rltune.common.reading import from_dict  # imports YAML

        spec = from_dict(cls, data, "the spec in run.yaml")
        from_dict(Controls, spec.controls, "controls in run.yaml")
        return dataclasses.replace(spec, agent=canonical(spec.agent))

    def next_point(self, env_steps: int) -> int:
        """Return the env steps at which the iteration ends that begins at ``env_steps``."""
        evaluation = self.next_evaluation(env_steps)
        changes: list[int] = [c["env_steps"] for c in self.schedule if c["env_steps"] > env_steps]
        lengths = (self.iteration_steps, self.save_freq, self.export_freq)
        points = [(env_steps // length + 1) * length for length in lengths if length]
        return min([evaluation, *points, *changes])

    def next_evaluation(self, env_steps: int) -> int:
        """Return the env steps of the first evaluation after ``env_steps``."""
        return min(self.total_timesteps, (env_steps // self.eval_steps + 1) * self.eval_steps)

    @property
    def eval_steps(self) -> int:
        """Env steps from one evaluation to the next."""
        return self.eval_freq or max(1, self.total_timesteps // EVALUATIONS)

    @property
    def iteration_steps(self) -> int:
        """Env steps of the longest iteration."""
        return min(self.eval_steps, MAX_STEPS_PER_ITERATION)
