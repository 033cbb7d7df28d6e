"""Learn the portfolios that ship: few configurations that are good on many environments together.

    python scripts/study_portfolios.py search ppo    # resumable: a search of each environment
    python scripts/study_portfolios.py measure ppo   # resumable: their best, on all environments
    python scripts/study_portfolios.py judge ppo     # what it gains on an environment left out

`search` runs rltune on each environment of the agent's suite. `measure` trains the best of each
search, and the known-good settings of all environments, on every environment. A portfolio is chosen
greedily: its first member is the configuration that is best on average, each further one adds most
to the best of those before it. `judge` leaves one environment out, with everything that was learned
from it, and replays its search with the portfolio of the others and without. Everything that was
measured is stored in docs/benchmarks/portfolios/.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from portfolios import judge, record
from portfolios.suites import SUITES, suite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("search", "measure", "judge"))
    parser.add_argument("agent", choices=tuple(SUITES))
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="of the searches")
    parser.add_argument("--env", nargs="+", help="measure these alone")
    args = parser.parse_args()
    if args.what == "search":
        record.search(args.agent, args.folder)
    elif args.what == "measure":
        tasks = [task for task in suite(args.agent) if not args.env or task.env in args.env]
        record.measure(args.agent, tasks)
    elif args.what == "judge":
        judged(args.agent)


def judged(agent: str) -> None:
    """Print what the portfolio of the other environments gains on each."""
    columns = [f"{what}: {how}" for what in judge.Outcome._fields for how in ("without", "with")]
    print(f"| environment | {' | '.join(columns)} |\n{'|---' * 7}|")
    for env, pair in judge.compare(record.file_of(agent), agent).items():
        cells = [f"{getattr(side, what):.2f}" for what in judge.Outcome._fields for side in pair]
        print(f"| {env} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
