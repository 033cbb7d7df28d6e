"""Tracking options: which of Weights & Biases, TensorBoard and MLflow get the curves, and where."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rltune.common.options import check_options, option

FILES = "files and tracking"  # heading on the help page


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """The trackers of a search or a training.

    A tracker's folder in the run directory bears the name of its option; those of plug-ins have
    one each in ``tracker``.
    """

    wandb: str = option(
        "auto",
        choices=("auto", "online", "offline", "off"),
        group=FILES,
        metavar="MODE",
        help="mode of Weights & Biases: auto (online where there is a key, else offline), online, "
        "offline or off",
    )
    wandb_project: str | None = option(
        None,
        flags=("--wandb-project", "--wandb-project-name"),
        group=FILES,
        metavar="NAME",
        help="project in Weights & Biases",
        shown="WANDB_PROJECT, else rltune",
    )
    wandb_entity: str | None = option(
        None, group=FILES, metavar="NAME", help="user or team in Weights & Biases"
    )
    wandb_group: str | None = option(
        None, group=FILES, metavar="NAME", help="group of the runs in Weights & Biases"
    )
    tensorboard: bool = option(
        False, group=FILES, help="write TensorBoard files to tensorboard/ of the run"
    )
    mlflow: str | None = option(
        None,
        bare="",
        group=FILES,
        metavar="URI",
        help="log to MLflow at this tracking URI; without one, to MLFLOW_TRACKING_URI, or else to "
        "mlflow.db beside the runs",
    )

    tracker: list[str] = option(
        [],
        group=FILES,
        metavar="NAME[=SETTING]",
        help="tracker of a plug-in, with what it is told, such as an address; may be repeated "
        "(docs/plugins.md)",
    )

    def __post_init__(self) -> None:
        check_options(self)


TRACKER_FOLDERS = frozenset(field.name for field in fields(Tracking))
