"""TensorBoard tracking: ``tensorboard --logdir RUN/tensorboard``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rltune.tracking import outcome
from rltune.tracking.session import Session
from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True)
class Folder:
    """The folder of a training, and its configuration."""

    writer: SummaryWriter
    config: dict[str, Any]


class TensorboardSession(Session[Folder]):
    """A folder for each training; configurations and objectives stand under HPARAMS."""

    def open(self, name: str, identity: str, role: str, config: dict[str, Any]) -> Folder:
        """Open a folder; an interrupted trial goes on in it."""
        return Folder(SummaryWriter(str(self.path / "tensorboard" / name)), config)

    def add(self, run: Folder, env_steps: int, metrics: dict[str, float]) -> None:
        """Add a point of the curves, over env steps."""
        for name, value in metrics.items():
            run.writer.add_scalar(name, value, env_steps)

    def end(self, run: Folder, summary: dict[str, Any], failed: bool) -> None:
        """Close a folder."""
        numbers = {f"search/{k}": float(v) for k, v in summary.items() if _is_number(v)}
        space = self.run["spec"].get("space", {}).get("space")
        shown = [*space, "origin", "role", "seed"] if space else run.config  # else too many columns
        values = {k: v if isinstance(v, (bool, int, float, str)) else str(v)
                  for k, v in run.config.items() if k in shown and v is not None}  # fmt: skip
        run.writer.add_hparams(values, numbers, run_name=".")
        run.writer.close()

    def search_finished(self, summary: dict[str, Any]) -> None:
        """Write the best so far, the answer and the importances."""
        with SummaryWriter(str(self.path / "tensorboard" / "search")) as run:
            for row in outcome.best_so_far(outcome.trials(self.path)):
                trial = int(row.pop("search/trial"))
                for name, value in row.items():
                    run.add_scalar(name, value, trial)
            for row in outcome.importances(self.path):
                run.add_scalar(f"importances/{row['parameter']}", row["importance"], 0)
            text = self.path / "report" / "summary.md"
            if text.is_file():
                run.add_text("summary", text.read_text())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))
