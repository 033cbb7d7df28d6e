"""Error messages: one sentence for each exception that reaches the command line."""

from __future__ import annotations

import os

from rltune.agents.errors import DISK_IS_FULL, UserError

SEE_ALL = "--traceback shows all of it"
GONE = "the folder that you are in is gone; cd to another one."


def complaint(error: BaseException, *, with_traceback: bool = False) -> str | None:
    """Return the sentence for an exception; None for a bug of rltune itself.

    Args:
        error: the exception
        with_traceback: the traceback is printed, so no flag is named that would print it
    """
    if isinstance(error, UserError):
        return str(error)
    from rltune.agents.user_code import fault

    if said := fault(error):
        return f"{said}." if with_traceback else f"{said}; {SEE_ALL}."
    if isinstance(error, FileNotFoundError) and folder_is_gone():
        return GONE
    if isinstance(error, PermissionError):
        return f"{error.filename or error}: no permission; see its owner."
    if isinstance(error, OSError) and error.errno in DISK_IS_FULL:
        return f"{error.filename or 'a file'} can't be written: the disk is full."
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    ):
        said = (str(error).splitlines() or ["it is full"])[0]
        return f"the memory does not hold what was asked for: {said}"
    return None


def folder_is_gone() -> bool:
    """Return whether the working directory was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False
