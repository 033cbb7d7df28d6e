"""The command `rltune import-trainer`: ML-Agents' trainer files in rltune's words."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltune.cli.flags import reject_extra
from rltune.cli.output import print_or_write

HELP = """\
Translate a trainer file of Unity's ML-Agents, of today's style or an older one.

  rltune import-trainer config/ppo/Pyramids.yaml -o pyramids.yaml
  rltune import-trainer config/sac_trainer_config.yaml --behavior Walker
  rltune train ppo --config pyramids.yaml --env my_module:MyEnv

A comment names each thing that has no counterpart.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "import-trainer",
        help="translate a trainer file of ML-Agents",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("file", type=Path, metavar="CONFIG.yaml", help="the trainer file")
    parser.add_argument("--behavior", metavar="NAME", help="which one; default: the only one")
    parser.add_argument(
        "--visual", action="store_true", help="observations are images: translate the encoder"
    )
    parser.add_argument(
        "--demonstrations", default="", metavar="FILE", help="in place of its .demo, for cloning"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="default: the terminal")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the translation, or write it."""
    reject_extra(args, extra)
    from rltune.importing.mlagents import import_trainer
    from rltune.importing.text import as_yaml

    options = {"visual": args.visual, "demonstrations": args.demonstrations}
    text = as_yaml(import_trainer(args.file, args.behavior, **options), args.file)
    print_or_write(text, args.output)
    return 0
