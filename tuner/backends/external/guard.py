"""Runs a command, and ends all of it when the process that wanted it is gone or wants no more.

    python -I guard.py SECONDS COMMAND ...

Standard input is a pipe that the other process holds: when it is closed, or its holder is killed,
the command and all that it has started get a SIGTERM, and after SECONDS a SIGKILL. This file is run
by itself, so it imports Python's own modules alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

LOOK_EVERY = 0.05


def main() -> int:
    """Return the exit code of the command, 128 + N where the signal N has ended it."""
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the pipe decides; the command has the default
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{command[0]} can't be run: {error.strerror or error}", flush=True)
        return 127
    threading.Thread(target=_end_with_the_pipe, args=(process, seconds), daemon=True).start()
    code = process.wait()
    _signal(process, signal.SIGKILL)  # what it has left behind
    return code if code >= 0 else 128 - code


def _end_with_the_pipe(process: subprocess.Popen[bytes], seconds: float) -> None:
    while os.read(0, 1024):
        pass
    _signal(process, signal.SIGTERM)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(LOOK_EVERY)
    _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main())
