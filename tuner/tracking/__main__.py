"""The process of a tracker: ``python -m rltune.tracking wandb``."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, TextIO

from rltune.tracking.registry import TRACKERS, plugin_tracker
from rltune.tracking.session import Session


def main() -> None:
    """Read messages from standard input until it ends; write warnings to standard output."""
    name = sys.argv[1]
    tracker = TRACKERS[name] if name in TRACKERS else plugin_tracker(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)  # the search comes first
    sys.argv = ["rltune"]  # wandb records it, and the driver's may hold a key
    out: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to the log
    session: Session[Any] | None = None
    for line in sys.stdin:
        message = json.loads(line)
        kind = message.pop("kind")
        if kind != "open":
            getattr(session, kind)(**message)
            continue
        try:
            session = tracker.start(message, lambda text: print(text, file=out))
        except ImportError as error:
            missing = f"{tracker.name} is not tracking this run ({error})"
            print(f'{missing}: pip install "{tracker.install}"', file=out)
            return
    if session is not None:
        session.finish()


if __name__ == "__main__":
    main()
