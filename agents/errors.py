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
    error: OSError, path: str | os.PathLike[str], flag: str | None = None
) -> StorageError:
    """Return the sentence for an operating system's ``error`` at ``path``.

    ``flag`` is the one that says where to write, if the user has a choice now.
    """
    mend = ""
    if error.errno in DISK_IS_FULL:
        reason, mend = "the disk is full", "free some space"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason, mend = "no permission", "see its owner"
    elif error.errno == errno.EROFS:
        reason = "the file system is read-only"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        reason = "a file stands where a folder is needed"
    else:
        reason = error.strerror or str(error)
    choice = f"choose another {flag}" if flag else ""
    remedy = ", or ".join(part for part in (mend, choice) if part)
    return StorageError(f"cannot write {os.fspath(path)}: {reason}{remedy and f'; {remedy}'}.")


MANY = 30  # names that a message lists at most


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """Return the error for a ``name`` that is not ``known``, with the closest one that is."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    close = close or [other for other in names if name and other.startswith(name.lower())]
    if close:
        hint = f"did you mean {close[0]!r}?"
    elif len(names) <= MANY:
        hint = f"choose one of: {', '.join(names)}."
    else:
        nearest = difflib.get_close_matches(name.lower(), names, n=5, cutoff=0)
        hint = f"the nearest of {len(names)} are: {', '.join(nearest)}."
    prefix = f"{where}: " if where else ""
    return UserError(f"{prefix}unknown {kind} {name!r}; {hint}")


class NotStandardError(Exception):
    """Something that no kernel computes; its text names it, as in "an LSTM"."""
