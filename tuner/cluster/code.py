"""The user's code on a cluster: the folder that is sent to the nodes, and the files left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rltune.agents.envs.suite import environments
from rltune.agents.errors import UserError

# The user's folder is sent to every node.
MAX_FOLDER = 100_000_000  # bytes
MAX_FILES = 10_000
STAYS = (".git", ".venv", "runs", "wandb", "mlruns", "__pycache__", "node_modules", "build")


def folder_of_code(own_agent: bool, env: str, import_path: str) -> Path | None:
    """Return the folder that has to travel: None where agent and environment are installed.

    Args:
        own_agent: whether the agent is ``module:Class``
        env: one environment, or several
        import_path: folder of the user's modules
    """
    own = own_agent or any(":" in name for name in environments(env))
    return Path(import_path) if own else None


def travelling(folder: Path) -> dict[str, Any]:
    """Return the part of Ray's runtime_env that makes a folder every worker's working directory.

    Virtual environments, runs, caches and hidden folders stay; so do files that a .gitignore names.

    Raises:
        UserError: the folder is too large to be sent.
    """
    excludes, size, files = list[str](), 0, 0
    for where, folders, names in os.walk(folder):
        inside = Path(where)
        for name in list(folders):
            if _stays(inside / name):
                folders.remove(name)
                excludes.append("/" + (inside / name).relative_to(folder).as_posix() + "/")
        files += len(names)
        size += sum((inside / n).stat().st_size for n in names if (inside / n).is_file())
        if size > MAX_FOLDER or files > MAX_FILES:
            raise UserError(
                f"{folder} travels to every node of the cluster, and has more than "
                f"{MAX_FOLDER / 1e6:.0f} MB or {MAX_FILES:,} files; start rltune in a folder that "
                "holds your agent and environment alone."
            )
    return {"working_dir": str(folder), "excludes": excludes}


def _stays(folder: Path) -> bool:
    marks = (folder / "pyvenv.cfg", folder / "run.yaml")  # a virtual environment, a run
    hidden = folder.name.startswith(".") or folder.name in STAYS
    return hidden or any(mark.exists() for mark in marks)
