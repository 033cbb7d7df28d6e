"""The exceptions that the command line prints as a sentence."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """One clear sentence for the user: where, what is wrong, what to write instead.

    The command line prints it without a traceback and exits with code 2.
    """


class StorageError(UserError):
    """A file could not be written: full disk, no permission, read-only.

    It ends a search, and not only the trial that met it: the next one would fail alike.
    """


class ClusterError(UserError):
    """The cluster that a search ran on is gone; the search can be resumed."""


class MissingMetricError(UserError):
    """The agent does not report the metric that is to be tuned."""


def storage_error(
    error: OSError, path: str | os.PathLike[str], flag: str = "--storage-path"
) -> StorageError:
    """Return the sentence for an operating system's ``error`` at ``path``.

    ``flag`` is the one that says where to write.
    """
    if error.errno in DISK_IS_FULL:
        reason, remedy = "the disk is full", f"free some space, or choose another {flag}."
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason, remedy = "no permission", f"choose a {flag} that you may write to."
    elif error.errno == errno.EROFS:
        reason, remedy = "the file system is read-only", f"choose another {flag}."
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        reason, remedy = "a file stands where a folder is needed", f"choose another {flag}."
    else:
        reason, remedy = error.strerror or str(error), f"choose another {flag}."
    return StorageError(f"cannot write {os.fspath(path)}: {reason}; {remedy}")


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """Return the error for a ``name`` that is not ``known``, with the closest one that is."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(names)}."
    prefix = f"{where}: " if where else ""
    return UserError(f"{prefix}unknown {kind} {name!r}; {hint}")
