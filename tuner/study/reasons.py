"""Reasons of trials that ended: the words that a study keeps, read back where they matter."""

from __future__ import annotations

TIME_LIMIT = "time limit"  # how the reason begins of a trial that ran out of time
