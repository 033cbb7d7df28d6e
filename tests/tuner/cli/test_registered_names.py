"""The help lists every name of a registry, so a new kind needs no second list."""

from __future__ import annotations

import pytest
from rltune.cli import main
from rltune.exporting.registry import EXPORTERS
from rltune.samplers.registry import SAMPLERS
from rltune.schedulers.registry import EARLY_STOPPING, scheduler_names
from rltune.tracking.registry import TRACKERS


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("run", [*SAMPLERS, *scheduler_names(), *(f"--{name}" for name in TRACKERS)]),
        ("replay", [*SAMPLERS, *EARLY_STOPPING]),
        ("export", list(EXPORTERS)),
    ],
)
def test_the_help_lists_them(
    command: str,
    names: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "500")  # it breaks lines at hyphens
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    shown = set(capsys.readouterr().out.replace(",", " ").replace(";", " ").split())
    assert set(names) <= shown
