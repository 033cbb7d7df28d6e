"""The command line. Each command's module imports nothing heavy before the command runs."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NoReturn

from rltune.agents.errors import UserError
from rltune.cli.complaint import GONE, complaint, folder_is_gone
from rltune.cli.foreign import renamed
from rltune.cli.output import flush_output, silence_output, watch_output
from rltune.common.version import __version__

# Modules; some hold several commands.
COMMANDS = (
    "run", "plan", "train", "play", "record", "demonstrations", "show", "report", "compare",
    "dashboard", "importances", "export", "replay", "env", "space", "jobs", "fetch", "stop",
    "doctor", "plugins", "import_trainer", "import_search", "hub",
)  # fmt: skip
TRACEBACK = "--traceback"
# They only read a run directory, which may be damaged, or come from a stranger.
READERS = ("show", "report", "importances", "export", "compare", "replay", "dashboard")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence with exit code 2, as all of rltune's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # An abbreviated flag could be taken for a hyperparameter, and the other way round.
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words; another library's names for our flags are ours."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args(renamed(words), namespace)

    def error(self, message: str) -> NoReturn:
        """Raise UserError instead of printing the usage."""
        raise UserError(f"{message}; see {self.prog} --help.")


def make_parser() -> Parser:
    """Return the parser with every command."""
    parser = Parser(
        prog="rltune",
        description="Tune reinforcement-learning agents, and get an answer that you can trust.",
        epilog="Start with: rltune run ppo --env CartPole-v1 --time-limit 5m",
    )
    # Taken out before the rest is parsed: it may stand anywhere, beside the hyperparameters, too.
    parser.add_argument(TRACEBACK, action="store_true", help="print the traceback of an error, too")
    parser.add_argument("--version", action="version", version=f"rltune {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"rltune.cli.{name}").add_parser(subparsers)
    return parser


def _run(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Run the command; a damaged run that it reads is an error of one sentence, no traceback."""
    if folder_is_gone():
        raise UserError(GONE)
    watch_output(exact=args.command == "export" or getattr(args, "json", False))
    if getattr(args, "quiet", False):
        return _quietly(args, extra)
    if args.command not in READERS:
        return int(args.main(args, extra) or 0)
    from rltune.common.reading import reading

    with reading(args.run if hasattr(args, "run") else ", ".join(args.runs)):
        return int(args.main(args, extra) or 0)


def _quietly(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Run the command without output, but for one line on standard error where it fails."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = int(args.main(args, extra) or 0)
    if code not in (0, 130):
        print("rltune: it did not end well; see: rltune show latest", file=sys.stderr)
    return code


def _printable(text: str) -> str:
    """Return a text without control characters of a terminal: a file may have put them there."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 a user's mistake, 130 interrupted."""
    started = time.time()
    words = list(sys.argv[1:] if argv is None else argv)
    tells_all = TRACEBACK in words
    try:
        parser = make_parser()
        args, extra = parser.parse_known_args([word for word in words if word != TRACEBACK])
        args.started = started
        args.owns_process = argv is None
        if args.command is None:
            parser.print_help()
            return 0
        code = _run(args, extra)
        if sys.stdout is not None:  # the parent process may have closed it
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and _is_ours(error):
            raise
        said = complaint(error, with_traceback=tells_all)
        if isinstance(error, BrokenPipeError) and said is None:
            # `rltune show RUN | head`: the reader has seen enough.
            silence_output()
            return 0
        if said is None:
            raise
        if tells_all:
            traceback.print_exc()
        print(f"rltune: {_printable(said)}", file=sys.stderr)
        flush_output()
        return 2


def _is_ours(end: SystemExit) -> bool:
    """Return whether rltune itself ended the process, as after --help, and not other code."""
    from rltune.agents.user_code import fault

    return not fault(end)
