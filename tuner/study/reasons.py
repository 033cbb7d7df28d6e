"""Reasons for which trials ended: the texts that a study keeps, and their kinds."""

from __future__ import annotations

# The kind of a reason, and the state in which it leaves the trial.
STATES = {
    "out of memory": "FAIL",
    "diverged": "FAIL",
    "entropy collapse": "PRUNED",
    "KL blow-up": "PRUNED",
    "dead value function": "PRUNED",
    "return frozen": "PRUNED",
    "throughput collapse": "PRUNED",
}


# Kinds of failure that the configuration is to blame for: the text before the colon of a reason.
BLAMED = ("diverged", "error", "out of memory")


BY_HAND = "by hand"  # the kind of the reason


BY_CALLBACK = "by a callback"  # likewise: the user's code has asked for it


TIME_LIMIT = "time limit"  # how the reason begins of a trial that ran out of time


def reason(env_steps: int) -> str:
    """Return the reason of a trial that was stopped by hand."""
    return f"{BY_HAND}: stopped {at(env_steps)}"


def by_callback(env_steps: int) -> str:
    """Return the reason of a trial that a callback has ended."""
    return f"{BY_CALLBACK}: stopped {at(env_steps)}"


def at(env_steps: int) -> str:
    """Return the place at which a training was stopped, in words."""
    return f"at {env_steps:,} env_steps" if env_steps else "before its first result"


def blames(reason: str) -> bool:
    """Whether this reason of a failure lies in the configuration."""
    return kind(reason) in BLAMED


def kind(reason: str) -> str:
    """Return the kind of a reason: the text before the colon."""
    return reason.split(":")[0].strip()
