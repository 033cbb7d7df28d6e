"""Files that the user names, which may be anything: a regular file, a device, a pipe, a link."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rltune.agents.errors import storage_error


@contextmanager
def file_of_user(path: str | os.PathLike[str], flag: str) -> Iterator[Path]:
    """Yield a temporary path to write to; what is there at the end becomes the file ``path``.

    A regular file is replaced, wholly or not at all. A device, a pipe or a link stays what it is,
    and is written through.

    Args:
        path: what the user named
        flag: where they named it, for the error

    Raises:
        StorageError: it can't be written.
    """
    path = Path(path)
    try:
        replaced = not path.is_symlink() and (path.is_file() or not path.exists())
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        folder = path.parent if replaced else None
        with tempfile.TemporaryDirectory(prefix=".rltune-", dir=folder) as temporary:
            written = Path(temporary) / f"file{path.suffix.lower()}"
            yield written
            if replaced:
                os.replace(written, path)
            else:
                with written.open("rb") as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target)
    except OSError as error:
        raise storage_error(error, path, flag) from error
