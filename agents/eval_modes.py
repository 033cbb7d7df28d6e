"""Evaluation modes: greedy or stochastic actions."""

from __future__ import annotations

from rltune.agents.errors import unknown

GREEDY, STOCHASTIC = "greedy", "stochastic"  # the latter explores as training does then
EVAL_MODES = (GREEDY, STOCHASTIC)


def check_eval_mode(mode: str) -> None:
    """Raise `UserError` for a mode that there is not."""
    if mode not in EVAL_MODES:
        raise unknown("way to evaluate", mode, EVAL_MODES, "--eval-mode")
