"""The command `rltune record`: demonstrations by a person at the keyboard."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltune.cli.flags import parse_mapping, reject_extra

HELP = """\
Play an environment by keyboard, and record the episodes as demonstrations. Escape ends it.

  rltune record --env LunarLander-v3 --to demos.parquet
  rltune record --env my_module:MyEnv --to demos.parquet --keys "{a: 0, d: 1, idle: 2}"
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "record",
        help="play by keyboard, and record demonstrations",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("--env", required=True, help="gymnasium id, or module:Class of your own")
    parser.add_argument("--to", required=True, type=Path, metavar="FILE", help="where to write")
    parser.add_argument("--episodes", type=int, default=10, help="number of episodes (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--keys", metavar="YAML", help="actions by key; idle: while no key is down")
    parser.add_argument(
        "--fps", type=float, help="steps a second (default: the environment's own speed)"
    )
    parser.add_argument("--env-kwargs", metavar="YAML", help="keyword arguments of the environment")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Open the window, and say what was written."""
    reject_extra(args, extra)
    from rltune.agents.errors import UserError
    from rltune.training.keyboard import described, record

    if args.episodes < 1 or args.seed < 0 or (args.fps is not None and not args.fps > 0):
        raise UserError("--episodes and --fps must be positive, --seed 0 or more")
    found = record(
        args.env,
        args.to,
        episodes=args.episodes,
        keys=parse_mapping("--keys", args.keys) if args.keys else None,
        fps=args.fps,
        seed=args.seed,
        env_kwargs=parse_mapping("--env-kwargs", args.env_kwargs) if args.env_kwargs else {},
    )
    print(described(args.to, found))
    return 0
