"""The command `rltune plan`: a forecast of what a search costs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rltune.agents.errors import UserError
from rltune.cli.run import add_search_flags, make_search

PLAN_HELP = """\
Forecast the cost of a search before it runs: env steps, CPU and GPU time, wall time, memory, money.

  rltune plan ppo --env CartPole-v1 --trials 30 --budget 5e4
  rltune plan td3 --env HalfCheetah-v5 --time-limit 8h --concurrency 4 --price-per-hour 3.2
  rltune plan ppo --env CartPole-v1 --json | jq .wall

Takes every flag of `rltune run`. It trains some configurations of the space for a few seconds each,
one at a time, and predicts the others from them; nothing is written.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plan",
        help="forecast the cost of a search",
        description=PLAN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    add_search_flags(parser)
    cost = parser.add_argument_group("forecast")
    cost.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        metavar="S",
        help="seconds of measuring (default: 20)",
    )
    cost.add_argument(
        "--price-per-hour", type=float, metavar="X", help="price of all machines together, per hour"
    )
    cost.add_argument("--json", action="store_true", help="print everything as JSON")


def main(args: argparse.Namespace, extra: Sequence[str]) -> int:
    """Measure some trainings, and print the forecast."""
    if not args.seconds > 0:
        raise UserError(f"--seconds must be above 0, not {args.seconds:g}.")
    if args.price_per_hour is not None and not args.price_per_hour >= 0:
        raise UserError(f"--price-per-hour must be 0 or more, not {args.price_per_hour:g}.")
    search = make_search(args, extra)
    from rltune.backends.registry import is_own_code

    if is_own_code(search.spec.agent):
        raise UserError(
            f"{search.spec.agent} is code of your own, whose speed rltune can't measure "
            "beforehand; a search with --time-limit ends in time."
        )

    from rltune.planning.forecast import forecast, local_slots
    from rltune.planning.plan import forecast_lines
    from rltune.search.request import full_config

    def tell(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{line} ...", end="", file=sys.stderr, flush=True)

    found = forecast(
        search.spec,
        search.space,
        search.starts,
        full=lambda values: full_config(search.config_class, values),
        slots=local_slots(search.spec),
        seconds=args.seconds,
        price_per_hour=args.price_per_hour,
        tell=tell,
    )
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if args.json:
        import json

        print(json.dumps(found.to_dict(), indent=1))
    else:
        print("\n".join(forecast_lines(search.spec, found)))
    return 0
