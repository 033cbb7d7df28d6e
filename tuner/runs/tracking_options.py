"""Options of tracking: which of wandb, TensorBoard and MLflow gets the curves, and where."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.agents.errors import unknown

MODES = ("auto", "online", "offline", "off")


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """What a search or a training is asked to tell, and whom."""

    wandb: str = "auto"  # of MODES; auto is online when wandb has a key, else offline
    wandb_project: str | None = None
    wandb_entity: str | None = None
    wandb_group: str | None = None
    tensorboard: bool = False
    mlflow: str | None = None  # a URI; "" is MLFLOW_TRACKING_URI, else mlflow.db beside the runs

    def __post_init__(self) -> None:
        if self.wandb not in MODES:
            raise unknown("wandb mode", self.wandb, MODES, "--wandb")
