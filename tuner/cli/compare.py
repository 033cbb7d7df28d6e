"""The command `rltune compare`: searches, trainings and Stable-Baselines3 logs side by side."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra

COMPARE_HELP = """\
Compare agents, environments, searches or Stable-Baselines3 logs: which is ahead, and how surely.

  rltune compare ppo-0 ppo-1 ppo-2 a2c-0 a2c-1 a2c-2
  rltune compare my-search --defaults --random
  rltune compare mine=runs/a mine=runs/b zoo=logs/ppo/CartPole-v1_1
  rltune compare runs logs --out comparison

RUN is a run directory, its name, or latest; a folder of runs; or a folder of Stable-Baselines3 or
rl-zoo3 logs (monitor.csv, evaluations.npz). Trainings of the same agent are seeds of one entry;
LABEL=RUN says what belongs together. Of a search, the re-trainings of its answer on test seeds
count. Only --random plays episodes; all else is read from the folders.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "compare",
        help="compare searches, trainings or Stable-Baselines3 logs",
        description=COMPARE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="run, folder of runs or folder of logs, as above; or LABEL=RUN",
    )
    parser.add_argument(
        "--defaults", action="store_true", help="compare the defaults of the searches' agents, too"
    )
    parser.add_argument(
        "--random",
        action="store_true",
        help="compare random actions, too, which are played now (gymnasium's own environments)",
    )
    parser.add_argument(
        "--metric",
        default="eval_return",
        help="metric of the evaluations, or mean_reward, of training episodes; with a minus, as "
        "in --metric=-NAME, lower is better (default: eval_return)",
    )
    parser.add_argument(
        "--objective",
        default="last:3",
        help="score of a training, from its evaluations: last, best, area, last:N or best:N "
        "(default: last:3)",
    )
    parser.add_argument(
        "--until", type=_steps, metavar="N", help="compare what was reached up to N env steps"
    )
    parser.add_argument(
        "--scale",
        action="append",
        default=[],
        metavar="ENV=LOW:HIGH",
        help="returns that count as 0 and as 1; may be repeated (default, with several "
        "environments: those of random actions and of gymnasium's solved environment)",
    )
    parser.add_argument("--env", help="environment of logs that don't name theirs")
    parser.add_argument(
        "--axis",
        choices=("env_steps", "time"),
        default="env_steps",
        help="x axis of the learning curves (default: env_steps)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="write a page, a PNG of each figure, and a summary.md"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plain", action="store_true", help="print without colours")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Print the comparison, or write its page."""
    reject_extra(args, extra)
    from rltune.comparing.comparison import compare, parse_scales

    found = compare(
        args.runs,
        metric=args.metric,
        objective=args.objective,
        until=args.until,
        scales=parse_scales(args.scale),
        env=args.env,
        defaults=args.defaults,
        random=args.random,
    )
    if args.json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        from rltune.comparing.show import show

        show(found, plain=args.plain)
    if args.out:
        page = found.write(args.out, axis=args.axis)
        if not args.json:
            print(f"\nPage  {page}")
    return 0


def _steps(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value
