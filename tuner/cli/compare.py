"""`rltune compare`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rltune.cli.flags import reject_extra

COMPARE_HELP = """\
Put agents, environments, searches or Stable-Baselines3 logs side by side: who is ahead, how surely.

  rltune compare ppo-0 ppo-1 ppo-2 a2c-0 a2c-1 a2c-2
  rltune compare my-search --defaults --random
  rltune compare mine=runs/a mine=runs/b zoo=logs/ppo/CartPole-v1_1
  rltune compare runs logs --out comparison

RUN is a run directory, its name, or latest; a folder of runs; or a folder of Stable-Baselines3 or
rl-zoo3 logs (monitor.csv, evaluations.npz). Trainings of the same agent are seeds of one entry;
LABEL=RUN says what belongs together. Of a search, the re-trainings of its answer on test seeds
count. Reads the folders alone; only --random plays.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "compare",
        help="put runs, searches or Stable-Baselines3 logs side by side",
        description=COMPARE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="see above; or LABEL=RUN")
    parser.add_argument(
        "--defaults", action="store_true", help="of searches the agents' defaults, too"
    )
    parser.add_argument(
        "--random",
        action="store_true",
        help="actions at random, too: plays them (gymnasium's own environments)",
    )
    parser.add_argument(
        "--metric",
        default="eval_return",
        help="of the evaluations; mean_reward: of training episodes; =-NAME: lower is better "
        "(default eval_return)",
    )
    parser.add_argument(
        "--objective",
        default="last:3",
        help="what of the evaluations is a training's score: last, best, area, last:N or best:N "
        "(default last:3)",
    )
    parser.add_argument(
        "--until", type=_steps, metavar="N", help="only what was reached up to N env_steps"
    )
    parser.add_argument(
        "--scale",
        action="append",
        default=[],
        metavar="ENV=LOW:HIGH",
        help="the returns that count as 0 and as 1 (default, with several environments: of "
        "random actions, and gymnasium's solving return); may be repeated",
    )
    parser.add_argument("--env", help="the environment of logs that don't say it")
    parser.add_argument(
        "--axis",
        choices=("env_steps", "time"),
        default="env_steps",
        help="of the learning curves (default env_steps)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="write a page, a PNG of each figure, and a summary.md"
    )
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--plain", action="store_true", help="no colours")


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
