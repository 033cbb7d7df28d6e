"""The command `rltune replay`: another scheduler or sampler on a recorded search."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rltune.cli.flags import RUN, parse_mapping, reject_extra
from rltune.common.formats import listed
from rltune.samplers.registry import SAMPLERS
from rltune.schedulers.registry import EARLY_STOPPING

if TYPE_CHECKING:
    from rltune.analysis.replay_sampler import SamplerReplay
    from rltune.analysis.replay_scheduler import Fate, Replay

REPLAY_HELP = """\
Simulate another scheduler, or another sampler, on the recorded evaluations of a search.

  rltune replay latest
  rltune replay runs/my-search --scheduler asha --scheduler-options "{reduction_factor: 4}"
  rltune replay runs/my-search --scheduler median --json
  rltune replay runs/my-search --sampler gp

Without flags it is the search's own scheduler and sampler: every decision and every proposal is the
recorded one. A stopped trial has no evaluations after its stop; a search with --scheduler none can
be replayed in full. What another sampler proposes was never trained: the nearest recorded
configuration that is left stands for it, and the figure is how soon the best of them is found.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "replay",
        help="simulate another scheduler or sampler on a recorded search",
        description=REPLAY_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("run", help=RUN)
    early = listed(list(EARLY_STOPPING))
    parser.add_argument("--scheduler", "--pruner", metavar="NAME", help=f"scheduler: {early}")
    parser.add_argument(
        "--scheduler-options", metavar="YAML", help='its options, such as "{reduction_factor: 4}"'
    )
    names = listed(list(SAMPLERS))
    parser.add_argument("--sampler", metavar="NAME", help=f"sampler: {names}")
    parser.add_argument(
        "--sampler-options", metavar="YAML", help='its options, such as "{n_startup_trials: 5}"'
    )
    parser.add_argument(
        "--repetitions", type=int, metavar="N",
        help="number of simulated searches with --sampler, each with another seed (default: 20)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Replay the search and print what differs."""
    from rltune.agents.errors import UserError
    from rltune.analysis.replay_scheduler import replay
    from rltune.runs.reader import read_run

    reject_extra(args, extra)
    options: dict[str, Any] = {}
    for flag in ("--scheduler-options", "--sampler-options"):
        text = getattr(args, flag[2:].replace("-", "_"))
        options[flag] = None if text is None else parse_mapping(flag, text)
    of_scheduler, of_sampler = options.values()
    result: dict[str, Any]
    if args.sampler is not None:
        from rltune.analysis.replay_sampler import replay_sampler

        ordered = replay_sampler(
            args.run,
            args.sampler,
            of_sampler,
            args.scheduler,
            of_scheduler,
            20 if args.repetitions is None else args.repetitions,
        )
        result, lines = asdict(ordered), _sampler_lines(ordered)
    elif of_sampler is not None or args.repetitions is not None:
        raise UserError("--sampler-options and --repetitions need a --sampler NAME.")
    else:
        run = read_run(args.run)
        replayed = replay(run, args.scheduler, of_scheduler)
        result, lines = replayed.to_dict(), _lines(replayed)
        own = args.scheduler is None and of_scheduler is None
        if own and run.rundir.study_path.exists():
            from rltune.analysis.replay_sampler import proposed_again

            again, of = proposed_again(run)
            result["proposed_again"], result["proposals"] = again, of
            lines.insert(1, f"  proposed alike  {again} of {of}")
    if args.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        print("\n".join(lines))
    return 0


def _lines(result: Replay) -> list[str]:
    from rltune.common.formats import count, plural, rung_at, score

    options = ", ".join(f"{name} {value}" for name, value in result.options.items())
    title = f"{result.scheduler} ({options})" if options else result.scheduler
    earlier = [fate for fate in result.fates if not fate.same and not fate.unknown]
    unknown = [fate for fate in result.fates if fate.unknown]
    share = result.env_steps / max(1, result.recorded_env_steps)
    best = "none runs its whole budget" if result.best is None else f"trial {result.best}"
    if result.best is not None:
        value = next(fate.objective for fate in result.fates if fate.trial == result.best)
        best += f" with {score(value)}"
    lines = [
        f"{title}, on the evaluations of {plural(len(result.fates), 'trial')}",
        f"  decided alike   {sum(fate.same for fate in result.fates)} of {len(result.fates)}",
        f"  stopped before  {len(earlier)}{_listed(earlier)}",
        f"  would go on     {len(unknown)}{_listed(unknown)}",
        f"  env steps       {count(result.env_steps)} of {count(result.recorded_env_steps)} "
        f"({share:.0%})" + (", and what would go on is not in them" if unknown else ""),
        f"  best            {best}",
    ]
    for rung in result.rungs:
        cutoff = "" if rung.cutoff is None else f", goes on from {score(rung.cutoff)}"
        at = rung_at(rung.budget, rung.seconds)
        lines.append(f"  rung {at:>10}  {rung.entered} entered, {rung.stopped} stopped{cutoff}")
    return lines


def _listed(fates: Sequence[Fate]) -> str:
    from rltune.common.formats import plural

    if not fates:
        return ""
    shown = [
        f"trial {fate.trial} at {fate.stopped_at:,}" if fate.stopped_at else f"trial {fate.trial}"
        for fate in fates[:8]
    ]
    more = len(fates) - len(shown)
    return f": {', '.join(shown)}" + (f" and {plural(more, 'other')}" if more else "")


def _sampler_lines(result: SamplerReplay) -> list[str]:
    from rltune.common.formats import plural

    orders = (result.sampled, result.by_chance, result.recorded)
    targets = {f"the best proposal, trial {result.good[0]}": [order.best for order in orders]}
    if len(result.good) > 1:
        targets[f"any of the best {len(result.good)}"] = [order.first_good for order in orders]
    rows = [["", result.sampler, "by chance", "as recorded"]]
    for name, reached in targets.items():
        rows.append([name, *(_middle([trials for trials, _ in found]) for found in reached)])
        rows.append(
            ["  in env steps", *(_middle([steps for _, steps in found]) for found in reached)]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    searches = len(result.sampled.best)
    far = result.distance > 0.8 * result.apart
    return [
        f"{result.sampler}, on the {plural(result.proposals, 'proposal')} of the search, with "
        f"{result.scheduler}: trials until",
        *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
        f"  median [10 %, 90 %] of {searches} searches; a proposal is {result.distance:.2f} from "
        "the recorded one that stands for it,",
        f"  two recorded ones are {result.apart:.2f} apart (1: from end to end in every dimension)"
        + ("; where they are so sparse, this says little" if far else ""),
    ]


def _middle(values: Sequence[int]) -> str:
    """Return the median, with the 10 % and the 90 % quantile of several values."""
    import numpy as np
    from rltune.common.formats import count

    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9], method="nearest").tolist()
    return count(middle) if len(values) == 1 else f"{count(middle)} [{count(low)}, {count(high)}]"
