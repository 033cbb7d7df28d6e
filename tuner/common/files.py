"""Atomic writes: files that are written wholly or not at all."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from rltune.agents.errors import storage_error

# A file that a process is writing; videos end as what they are.
TEMPORARY = re.compile(r"\..+\.(\d+)\.(tmp|mp4|gif)")


def atomic_write(
    path: str | os.PathLike[str], content: str | bytes | Callable[[Path], object]
) -> None:
    """Write a file wholly or not at all; a callable is given the temporary path to write to.

    Checkpoints are written by `rltune.agents.loop.checkpoint.write`: agents import nothing of the
    tuner, and hours of training are flushed to the disk before they replace the old file.

    Raises:
        StorageError: the disk is full, or it can't be written to.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Remove the temporary files below a folder that killed processes have left."""
    for path, _, names in os.walk(folder):
        for name in names:
            writer = TEMPORARY.fullmatch(name)
            if writer and not _is_written_by(int(writer[1]), Path(path, name)):
                with contextlib.suppress(OSError):  # gone, or a disk that takes no changes
                    os.unlink(os.path.join(path, name))


def _is_written_by(process: int, file: Path) -> bool:
    """Whether that process may have made the file: numbers are given to new ones again."""
    import psutil  # comes with Ray

    try:
        return bool(psutil.Process(process).create_time() <= file.stat().st_mtime + 1)
    except (psutil.Error, OSError):
        return False
