"""Provenance of a run: the command, the versions, the revision, the machine, the time."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rltune.common.redaction import MASK, SECRET_NAME, masked, masked_text

PACKAGES = (
    *("rltune", "ray", "torch", "optuna", "gymnasium", "numpy", "pandas", "pyarrow", "wandb"),
    *("ale-py", "mujoco", "Box2D", "envpool", "pybullet"),
)


def command_line(arguments: list[str] | None = None) -> str:
    """Return the command line as one would paste it into a shell, whatever looks secret masked."""
    shown: list[str] = []
    for argument in sys.argv if arguments is None else arguments:
        if shown and shown[-1].startswith("-") and SECRET_NAME.search(shown[-1]):
            argument = MASK
        shown.append(masked_text(argument))
    program = [Path(name).name for name in shown[:1]]
    return str(masked(shlex.join(program + shown[1:])))


def versions() -> dict[str, str]:
    """Return the version of Python and of every installed package that a result depends on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_revision(folder: str | os.PathLike[str] = ".") -> dict[str, object] | None:
    """Return {"revision": str, "dirty": bool} of the repository that holds ``folder``, if any."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", os.fspath(folder), "--no-optional-locks", *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return {"revision": git("rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict[str, object]:
    """Return the cores this process may use, the memory in GiB and the names of NVIDIA GPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"Model:\s*(.+)", information.read_text())
        gpus.append(model.group(1).strip() if model else "NVIDIA GPU")
    return {
        "platform": platform.platform(terse=True),
        "cores": cores,
        "memory_gib": round(memory, 1),
        "gpus": gpus,
    }


def now() -> str:
    """Return the time with its zone, such as 2026-11-21T02:23:00+0000."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
