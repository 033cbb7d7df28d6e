"""The command `rltune doctor`: is everything there, and what does the machine offer?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra

DOCTOR_HELP = """\
Check the installation and the machine: packages, cores, memory, disk, GPUs, numerical libraries,
and a short training.

  rltune doctor
  rltune doctor --json

It takes some seconds and writes nothing. Exit code 1: there is a problem to mend.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check the installation and the machine",
        description=DOCTOR_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print a line for each check."""
    reject_extra(args, extra)
    from rltune.installation.checks import PROBLEM, findings

    found = []
    for finding in findings():
        found.append(finding)
        if not args.json:
            print(f"{finding.state:<8} {finding.name:<10} {finding.text}", flush=True)
    if args.json:
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(finding) for finding in found], indent=1))
    return int(any(finding.state == PROBLEM for finding in found))
