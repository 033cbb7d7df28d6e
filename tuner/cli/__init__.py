"""The command line. Each command's module imports nothing heavy before the command runs."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from rltune import __version__
from rltune.agents.errors import UserError

# Modules; some hold several commands.
COMMANDS = (
    "run", "plan", "train", "play", "show", "report", "compare", "dashboard", "importances",
    "export", "replay", "space", "jobs", "fetch", "stop",
)  # fmt: skip
# They read what may be damaged, or come from anybody.
READERS = ("show", "report", "importances", "export", "compare", "replay", "dashboard")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence and exit code 2, as all of rltune's are."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # An abbreviated flag could be taken for a hyperparameter, and the other way round.
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """Raise the complaint instead of printing the usage."""
        raise UserError(f"{self.prog}: {message}; see {self.prog} --help.")


def make_parser() -> Parser:
    """Return the parser with every command."""
    parser = Parser(
        prog="rltune",
        description="Tune reinforcement-learning agents, and get an answer that you can trust.",
        epilog="Start with: rltune run ppo --env CartPole-v1 --time-limit 5m",
    )
    parser.add_argument("--version", action="version", version=f"rltune {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"rltune.cli.{name}").add_parser(subparsers)
    return parser


def _run(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Run the command; of those that only read a run, no damage to it ends in a traceback."""
    if args.command not in READERS:
        return int(args.main(args, extra) or 0)
    from rltune.untrusted import reading

    with reading(getattr(args, "run", None) or ", ".join(args.runs)):
        return int(args.main(args, extra) or 0)


def _printable(text: str) -> str:
    """Return a text without what controls a terminal: a file may have put it there."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 a user's mistake, 130 interrupted."""
    started = time.time()
    try:
        parser = make_parser()
        args, extra = parser.parse_known_args(argv)
        args.started = started
        if args.command is None:
            parser.print_help()
            return 0
        return _run(args, extra)
    except UserError as error:
        print(f"rltune: {_printable(str(error))}", file=sys.stderr)
        return 2
    except PermissionError as error:
        print(
            f"rltune: {error.filename or error}: no permission; see who owns it.", file=sys.stderr
        )
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        said = (str(error).splitlines() or ["it is full"])[0]
        print(f"rltune: the memory does not hold what was asked for: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `rltune show RUN | head`: the reader has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
