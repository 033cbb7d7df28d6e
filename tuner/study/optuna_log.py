"""Optuna's log, silenced while a search asks its samplers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import optuna


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log and warnings inside, and leave the user's own settings as they were."""
    with silent_log(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def silent_log() -> Iterator[None]:
    """Silence Optuna's log; around many `quiet`, it spares their asking all loggers anew."""
    level = optuna.logging.get_verbosity()
    if level != optuna.logging.CRITICAL:
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        yield
    finally:
        if level != optuna.logging.CRITICAL:
            optuna.logging.set_verbosity(level)
