"""The registry of trackers: Weights & Biases, TensorBoard and MLflow by name, and plug-ins'."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError, unknown
from rltune.agents.plugins import PluginGroup
from rltune.runs.tracking_options import Tracking

if TYPE_CHECKING:
    from rltune.tracking.session import Session, Warn


@dataclass(frozen=True, kw_only=True)
class TrackerKind:
    """One kind of tracker.

    A new one is a module with a `Session`, an option in `rltune.runs.tracking_options`, and an
    entry below. Importing this module imports none of the trackers' libraries.

    Attributes:
        name: of its option
        session: "module:function" or class, imported in the tracker's process; see `start`
        install: what pip installs when the tracker's library is missing
        opening: returns what the session is told of the options; None: the tracker is not wanted
        afterwards: what to do where the tracker did not finish, behind the sentence that says so
        within: of the run directory, where its folder is: "" or "tracker/"
    """

    name: str
    session: str
    install: str
    opening: Callable[[Tracking], dict[str, Any] | None]
    afterwards: str = ""
    within: str = ""

    @property
    def folder(self) -> str:
        """Its folder in the run directory."""
        return f"{self.within}{self.name}"

    def start(self, message: Mapping[str, Any], warn: Warn) -> Session[Any]:
        """Return the session that an opening message asks for.

        Args:
            message: the run ("run", "path") and what `opening` gave
            warn: gets the sentences that a user has to see

        Raises:
            ImportError: the tracker's library is not installed.
        """
        module, _, name = self.session.partition(":")
        started: Session[Any] = getattr(importlib.import_module(module), name)(message, warn)
        return started


def _of_wandb(spec: Tracking) -> dict[str, Any] | None:
    if spec.wandb == "off":
        return None
    return {
        "mode": spec.wandb,
        "project": spec.wandb_project or os.environ.get("WANDB_PROJECT", "rltune"),
        "entity": spec.wandb_entity,
        "group": spec.wandb_group,
    }


TRACKERS: dict[str, TrackerKind] = {
    kind.name: kind
    for kind in (
        TrackerKind(
            name="wandb",
            session="rltune.tracking.to_wandb:WandbSession",
            install="wandb",
            opening=_of_wandb,
            afterwards="; its files are kept; send them with `wandb sync` later",
        ),
        TrackerKind(
            name="tensorboard",
            session="rltune.tracking.to_tensorboard:TensorboardSession",
            install="rltune[tensorboard]",
            opening=lambda spec: {} if spec.tensorboard else None,
        ),
        TrackerKind(
            name="mlflow",
            session="rltune.tracking.to_mlflow:start",
            install="rltune[mlflow]",
            opening=lambda spec: None if spec.mlflow is None else {"uri": spec.mlflow},
        ),
    )
}
PLUGINS = PluginGroup("trackers", "tracker", TRACKERS)


def plugin_tracker(asked: str) -> TrackerKind:
    """Return the tracker of a plug-in.

    Its session is told the setting in the opening message ("setting").

    Args:
        asked: as in ``--tracker``: its name, or ``NAME=SETTING``

    Raises:
        UserError: there is none of this name.
    """
    name, _, setting = asked.partition("=")
    if name not in PLUGINS.usable:
        raise unknown("tracker", name, PLUGINS.usable, "--tracker")
    plugin = PLUGINS.usable[name]
    return TrackerKind(
        name=name,
        session=plugin.point.value,
        install=plugin.package,
        opening=lambda spec: {"setting": setting},
        within="tracker/",
    )


def check_trackers(spec: Tracking) -> None:
    """Raise UserError for a tracker that no plug-in has."""
    for asked in spec.tracker:
        plugin_tracker(asked)


def tracker_session(name: str) -> Any:
    """Return what starts the sessions of a plug-in's tracker; only its own process needs it.

    Raises:
        UserError: it can't be imported, or can't be called.
    """
    found = PLUGINS.load(name)
    if not callable(found):
        raise UserError(f"tracker {name!r} is no class below rltune.tracking.session.Session")
    return found
