"""Curves in wandb, TensorBoard and MLflow: every trial a run, and one run for the search itself.

The driver speaks to a `Tracker`; each kind of tracker lives in a process of its own (`feed`,
``python -m rltune.tracking``) and speaks through its library's own client. Whatever a tracker does
there, waits for or dies of, the search goes on.
"""

from rltune.tracking.tracker import Tracker

__all__ = ["Tracker"]
