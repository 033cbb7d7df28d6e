"""Learn the portfolios that ship: few configurations that are good on many environments together.

    python scripts/study_portfolios.py search ppo    # resumable: a search of each environment
    python scripts/study_portfolios.py measure ppo   # resumable: their best, on all environments
    python scripts/study_portfolios.py judge ppo     # what it gains on an environment left out
    python scripts/study_portfolios.py choose ppo    # the portfolio, for search_spaces/ppo.yaml

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
os.environ["PYTHONPATH"] = os.pathsep.join(  # of the workers, to import the variants
    filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
)

import yaml
from portfolios import judge, record
from portfolios.choose import choose, scores
from portfolios.suites import SUITES, suite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("search", "measure", "judge", "choose"))
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
    else:
        print(chosen(args.agent))


def judged(agent: str) -> None:
    """Print what the portfolio of the other environments gains on each."""
    columns = [f"{what}: {how}" for what in judge.Outcome._fields for how in ("without", "with")]
    print(f"| environment | {' | '.join(columns)} |\n{'|---' * 7}|")
    for env, pair in judge.compare(record.file_of(agent), agent).items():
        cells = [f"{getattr(side, what):.2f}" for what in judge.Outcome._fields for side in pair]
        print(f"| {env} | {' | '.join(cells)} |")


def chosen(agent: str) -> str:
    """Return the portfolio in the language of the search spaces."""
    known, costs = scores(record.file_of(agent))
    candidates = {candidate["name"]: candidate for candidate in record.candidates(agent)}
    origins = {name: candidate["of"] for name, candidate in candidates.items()}
    lines = ["portfolio:"]
    for name in choose(known, costs, origins):
        values = yaml.safe_dump(
            candidates[name]["config"], sort_keys=False, default_flow_style=None
        )
        first, *rest = values.splitlines()
        lines += [f"  - {first}".ljust(34) + f"# {name}", *(f"    {line}" for line in rest)]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
