"""`rltune replay`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.replayed import Fate, Replay

REPLAY_HELP = """\
Say what another scheduler would have done with a search, from its recorded evaluations.

  rltune replay latest
  rltune replay runs/my-search --scheduler asha --scheduler-options "{reduction_factor: 4}"
  rltune replay runs/my-search --scheduler median --json

Without --scheduler it is the search's own, and every decision is the recorded one. What a stopped
trial would have become is not recorded: a search with --scheduler none can be replayed in full.
Another sampler cannot be replayed: nobody has trained the configurations that it would propose.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "replay",
        help="what another scheduler would have done with a search",
        description=REPLAY_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help="the run directory, its name, or latest")
    parser.add_argument(
        "--scheduler", "--pruner", metavar="NAME", help="asha, hyperband, median or none"
    )
    parser.add_argument(
        "--scheduler-options", metavar="YAML", help='such as "{reduction_factor: 4}"'
    )
    parser.add_argument("--json", action="store_true", help="everything, for programs")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Replay the search and print what differs."""
    from rltune.cli.flags import parse_mapping, reject_extra
    from rltune.replayed import replay

    reject_extra(extra)
    options = None
    if args.scheduler_options is not None:
        options = parse_mapping("--scheduler-options", args.scheduler_options)
    result = replay(args.run, args.scheduler, options)
    if args.json:
        json.dump(result.to_dict(), sys.stdout, indent=2)
        print()
    else:
        print("\n".join(_lines(result)))
    return 0


def _lines(result: Replay) -> list[str]:
    from rltune.formats import count, plural, score

    options = ", ".join(f"{name} {value}" for name, value in result.options.items())
    title = f"{result.scheduler} ({options})" if options else result.scheduler
    earlier = [fate for fate in result.fates if not fate.same and not fate.unknown]
    unknown = [fate for fate in result.fates if fate.unknown]
    share = result.env_steps / max(1, result.recorded_env_steps)
    best = "none runs its full budget" if result.best is None else f"trial {result.best}"
    if result.best is not None:
        value = next(fate.objective for fate in result.fates if fate.trial == result.best)
        best += f" with {score(value)}"
    lines = [
        f"{title}, on the evaluations of {plural(len(result.fates), 'trial')}",
        f"  decided alike   {sum(fate.same for fate in result.fates)} of {len(result.fates)}",
        f"  stopped before  {len(earlier)}{_listed(earlier)}",
        f"  would go on     {len(unknown)}{_listed(unknown)}",
        f"  env-steps       {count(result.env_steps)} of {count(result.recorded_env_steps)} "
        f"({share:.0%})" + (", and what would go on is not in them" if unknown else ""),
        f"  best            {best}",
    ]
    for rung in result.rungs:
        cutoff = "" if rung.cutoff is None else f", goes on from {score(rung.cutoff)}"
        lines.append(
            f"  rung {count(rung.budget):>10}  {rung.entered} entered, {rung.stopped} stopped"
            + cutoff
        )
    return lines


def _listed(fates: Sequence[Fate]) -> str:
    from rltune.formats import plural

    if not fates:
        return ""
    shown = [
        f"trial {fate.trial} at {fate.stopped_at:,}" if fate.stopped_at else f"trial {fate.trial}"
        for fate in fates[:8]
    ]
    more = len(fates) - len(shown)
    return f": {', '.join(shown)}" + (f" and {plural(more, 'other')}" if more else "")
