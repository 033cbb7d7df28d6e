"""The options of a training: each with its flag, default, range and help.

A new option is one field here; then it is a flag of `rltune train`, a keyword of `rltune.train` and
a key of run.yaml (`rltune.common.options`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rltune.agents.loop.controls import Controls
from rltune.common.options import Option, option, options_for
from rltune.runs.run_options import AGENT, EVALUATION, RESOURCES, RunOptions
from rltune.runs.tracking_options import FILES

ENDING = "early end and learning rate"
GROUPS = (AGENT, EVALUATION, ENDING, RESOURCES, FILES)  # of the help page, in their order

# `Controls` stands below the options, so what it can't declare itself stands here.
CONTROLS = options_for(
    Controls,
    {
        "target_reward": Option(
            group=ENDING,
            help="end as soon as the mean reward of the last episodes reaches this value",
            resume="new mean reward at which the training ends",
        ),
        "reward_buffer_size": Option(
            group=ENDING, metavar="N", help="training episodes in the mean reward"
        ),
        "plateau_patience": Option(
            flags=("--plateau-patience", "--plateau-reduce-patience"),
            group=ENDING,
            metavar="N",
            help="episodes without a new best mean reward after which the learning rate is lowered",
            shown="never lowered",
        ),
        "plateau_factor": Option(
            flags=("--plateau-factor", "--plateau-reduce-factor"),
            group=ENDING,
            help="factor by which the learning rate is lowered",
        ),
        "early_stop_patience": Option(
            group=ENDING,
            metavar="N",
            help="reductions of the learning rate after which the training ends",
            shown="no end",
        ),
        "monitor_from": Option(
            flags=("--monitor-from", "--divergence-monitoring-steps"),
            group=ENDING,
            metavar="STEPS",
            help="env steps before which no episode counts for any of this",
        ),
    },
)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """The options of a training, as `rltune train` and `rltune.train` take them."""

    total_timesteps: int = option(
        flags=("-n", "--total-timesteps", "--n-timesteps", "--max-steps", "--budget"),
        least=1,
        group=AGENT,
        metavar="STEPS",
        help="length of the training, in env steps",
        shown="1e5, or that of --config",
        resume="new length of the whole training, in env steps",
    )
    seed: int = option(0, least=0, group=AGENT, help="random seed of the training")
    eval_freq: int | None = option(
        None,
        least=1,
        group=EVALUATION,
        metavar="STEPS",
        help="env steps from one evaluation to the next",
        shown="a 20th of the training, more where episodes are long",
    )
    eval_at_start: bool = option(
        False, group=EVALUATION, help="evaluate at step 0, too, before anything is learned"
    )
    save_freq: int | None = option(
        None,
        least=1,
        group=FILES,
        metavar="STEPS",
        help="env steps between checkpoints that are kept, checkpoints/STEPS.pt",
        shown="none are kept beside the last and the best",
    )
    export_freq: int | None = option(
        None,
        least=1,
        group=FILES,
        metavar="STEPS",
        help="env steps between policies that are exported, policies/STEPS.pt (docs/export.md)",
        shown="none are exported",
    )
