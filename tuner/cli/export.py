"""`rltune export`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.agents.errors import UserError
from rltune.cli.flags import reject_extra
from rltune.cli.output import print_or_write
from rltune.common.formats import listed
from rltune.exporting.base import PolicyExporter
from rltune.exporting.registry import EXPORTERS, POLICIES, exporter

EXPORT_HELP = """\
Print the winner of a search, or a training's configuration, as something that others can use; or
write its trained policy as a file.

  rltune export latest                                # the command that trains it again
  rltune export runs/my-search --to zoo -o ppo.yml    # for rl-zoo3
  rltune export runs/my-search --trial 7 --to sb3
  rltune export latest --to onnx -o policy.onnx       # the trained policy

"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "export",
        help="print the winner for rltune, rl-zoo3, SB3, ..., or write its policy as ONNX",
        description=EXPORT_HELP + "\n".join(_formats()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument(
        "run", help="the run directory, its name, or latest; of a policy, also a checkpoint file"
    )
    parser.add_argument(
        "--to",
        default="rltune",
        metavar="FORMAT",
        help=f"{listed(list(EXPORTERS))}, or a plug-in's; default: rltune",
    )
    parser.add_argument(
        "--best",
        action="store_true",
        help="of a training's policy, that of its best evaluation, not the last",
    )
    parser.add_argument("--env", help="of a policy of several environments, the one it is for")
    parser.add_argument(
        "--trial", type=int, metavar="N", help="of a search, this trial; default: the winner"
    )
    parser.add_argument(
        "--own-code",
        action="store_true",
        help="import the environment and agent that the run names, module:Class; sb3, rllib and "
        "policies have to",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="default: the terminal; of a policy, the run's name",
    )


def _formats() -> list[str]:
    """Return a line on each format."""
    return [f"{e.name:<12} {e.help} ({e.suffix})" for e in EXPORTERS.values()]


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Export."""
    reject_extra(args, extra)
    if isinstance(exporter(args.to), PolicyExporter):
        from rltune.exporting.policies import export_policy

        which = {name: getattr(args, name) for name in ("best", "trial", "env", "own_code")}
        print(export_policy(args.run, args.to, args.output, **which))
        return 0
    if args.best or args.env is not None:
        flag = "--best" if args.best else "--env"
        raise UserError(f"{flag} is of trained policies: --to {listed(list(POLICIES))}")
    from rltune.exporting.export import export

    text = export(args.run, args.to, args.trial, args.own_code)
    print_or_write(text, args.output)
    return 0
