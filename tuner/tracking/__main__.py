"""The process of a tracking backend: ``python -m rltune.tracking wandb``."""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from typing import TextIO

from rltune.tracking.session import Session

EXTRAS = {"tensorboard": "rltune[tensorboard]", "mlflow": "rltune[mlflow]", "wandb": "wandb"}


def main() -> None:
    """Read messages from standard input until it ends; write warnings to standard output."""
    backend = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)  # the search comes first
    sys.argv = ["rltune"]  # wandb records it, and the driver's may hold a key
    out: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to the log
    session: Session[object] | None = None
    for line in sys.stdin:
        message = json.loads(line)
        kind = message.pop("kind")
        if kind != "open":
            getattr(session, kind)(**message)
            continue
        try:
            module = import_module(f"rltune.tracking.to_{backend}")
            session = module.start(message, lambda text: print(text, file=out))
        except ImportError as error:
            print(f'{backend} is not tracking this run ({error}): pip install "{EXTRAS[backend]}"',
                  file=out)  # fmt: skip
            return
    if session is not None:
        session.finish()


if __name__ == "__main__":
    main()
