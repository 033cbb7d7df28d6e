"""Files that are written wholly or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rltune.agents.errors import storage_error


def atomic_write(
    path: str | os.PathLike[str], content: str | bytes | Callable[[Path], object]
) -> None:
    """Write a file wholly or not at all; a callable is given the temporary path to write to.

    Raises StorageError when the disk is full or may not be written.
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
