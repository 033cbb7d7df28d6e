"""The clip of the winner: a short video, made where the search ended, shown by the report.

The report itself runs no code that a run directory names; making a clip does.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError
from rltune.runs.directory import RunDir, find_run

LONGEST = 600  # env steps
PATIENCE = 120.0  # seconds that a recording may take
LARGEST = 4_000_000  # bytes of a clip that a page carries
KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}


def record(run: str | os.PathLike[str]) -> Path:
    """Record a greedy episode of the winner into best/, and return the file.

    It runs in a process of its own: rendering can crash or hang.

    Raises:
        UserError: there is no winner, or it can't be recorded; the message says why.
    """
    found = RunDir.open(find_run(run))
    for old in KINDS:  # an earlier winner's
        with suppress(OSError):
            found.best_dir.joinpath(f"clip{old}").unlink()
    clip = found.best_dir / ("clip.mp4" if find_spec("imageio_ffmpeg") else "clip.gif")
    command = [sys.executable, "-m", "rltune", "play", str(found.path), "--best"]
    command += [
        "--env",
        environments(str(found.spec.get("env", "")))[0],
        "--video",
        str(clip),
        "--device",
        "cpu",
    ]
    command += ["--max-steps", str(LONGEST)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise UserError(f"the winner's clip took longer than {PATIENCE:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UserError(lines[-1].removeprefix("rltune: "))
    return clip


def embedded(run: Path) -> dict[str, str] | None:
    """Return the clip of a run for its page: its ``kind`` and a ``source`` that needs no file."""
    for suffix, kind in KINDS.items():
        clip = run / "best" / f"clip{suffix}"
        if clip.is_file() and clip.stat().st_size <= LARGEST:
            data = base64.b64encode(clip.read_bytes()).decode("ascii")
            return {"kind": kind, "source": f"data:{kind};base64,{data}"}
    return None
