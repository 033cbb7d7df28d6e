"""The save timer: the moments at which a checkpoint is due."""

from __future__ import annotations

import time

import pytest
from rltune.common.save_timer import CHECKPOINT_SHARE, SaveTimer


def test_saving_keeps_to_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    timer = SaveTimer()
    now += 0.1
    assert timer.is_due  # what saving costs is not known yet
    with timer.saving():
        now += 2.0
    now += 2.0 / CHECKPOINT_SHARE - 0.1
    assert not timer.is_due
    now += 0.2
    assert timer.is_due


def test_a_failed_save_is_not_counted() -> None:
    timer = SaveTimer()
    with pytest.raises(OSError, match="full"), timer.saving():
        raise OSError("full")
    assert timer.is_due
