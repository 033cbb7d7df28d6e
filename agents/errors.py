"""The one exception for a user's mistake."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """One clear sentence for the user: where, what is wrong, what to write instead.

    The command line prints it without a traceback and exits with code 2.
    """


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """Return the error for a ``name`` that is not ``known``, with the closest one that is."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(names)}."
    prefix = f"{where}: " if where else ""
    return UserError(f"{prefix}unknown {kind} {name!r}; {hint}")
