"""Options that a search and a training share: environment, evaluation, device, checkpoints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rltune.agents.engines import AUTO, ENGINES
from rltune.agents.envs.suite import HELP as ENVS
from rltune.agents.errors import UserError
from rltune.agents.eval_modes import EVAL_MODES, GREEDY
from rltune.common.options import option
from rltune.runs.tracking_options import FILES, Tracking

# Headings on the help pages.
AGENT = "agent and environment"
EVALUATION = "evaluation"
RESOURCES = "resources"

# An iteration is short enough to stop at, to watch and to save, and long enough to be worth a call.
MAX_STEPS_PER_ITERATION = 10_000


@dataclass(frozen=True, kw_only=True)
class RunOptions(Tracking):
    """The options that a search and a training share."""

    env: str = option(group=AGENT, help=ENVS, shown="the one that the given file names")
    env_kwargs: dict[str, Any] = option(
        {},
        group=AGENT,
        metavar="YAML",
        help='keyword arguments of the environment, such as "{continuous: true}"',
    )
    # The spec names where they came from; the run keeps a copy.
    weights: str | None = option(
        None,
        group=AGENT,
        metavar="CHECKPOINT_OR_RUN",
        help="checkpoint or run whose networks every training starts from, instead of new ones",
    )
    eval_episodes: int = option(
        10,
        least=1,
        group=EVALUATION,
        metavar="N",
        help="episodes per evaluation",
        shown="10, fewer where they are long",
    )
    eval_mode: str = option(
        GREEDY,
        choices=EVAL_MODES,
        group=EVALUATION,
        metavar="MODE",
        help="choice of actions in evaluations: greedy, or stochastic as in training",
    )
    device: str = option(
        "auto",
        group=RESOURCES,
        help="PyTorch device: cpu, cuda, cuda:1, or auto, which takes a GPU where there is one",
        resume=True,
    )
    engine: str = option(
        AUTO,
        choices=ENGINES,
        group=RESOURCES,
        help="what computes: numpy, kernels for standard networks; torch; auto: numpy where it can",
    )
    save_replay_buffer: bool = option(
        True,
        group=FILES,
        help="leave the replay memory out of checkpoints: they are small, and a resumed training "
        "fills a new memory first",
    )
    controls: dict[str, Any] = option(
        {}, flags=(), help="training controls by name, as in rltune.agents.Controls"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"auto|[a-z]+(:\d+)?", self.device):
            raise UserError(f"--device {self.device!r}: write cpu, cuda, cuda:1 or auto.")
