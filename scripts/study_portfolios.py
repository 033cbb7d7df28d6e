"""Learn the portfolios that ship: few configurations that are good on many environments together.

    python scripts/study_portfolios.py search ppo    # resumable: a search of each environment
    python scripts/study_portfolios.py measure ppo   # resumable: their best, on all environments
    python scripts/study_portfolios.py judge ppo     # what it gains on an environment left out
    python scripts/study_portfolios.py choose ppo    # the portfolio, for search_spaces/ppo.yaml

`search` runs rltune on each environment of the agent's suite, and with `--space 1` once more, where
the space has changed. `measure` trains the best of each search, and the known-good settings of all
environments, on every environment. A portfolio is chosen greedily: its first member is the
configuration that is best on average, each further one adds most to the best of those before it.
`judge` leaves one environment out, with everything that was learned from it, and replays its latest
search with the portfolio of the others and without. Everything that was measured is stored in
docs/benchmarks/portfolios/.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import fmean, median

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(  # of the workers, to import the variants
    filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
)

import yaml
from portfolios import judge, record
from portfolios.choose import choose, scores
from portfolios.suites import SUITES, suite
from scipy.stats import wilcoxon

AFTER, BETWEEN = ("default", "start", "portfolio"), ("start", "portfolio", "default")
VARIANTS = {
    "first": judge.Variant(),
    "first, then known-good": judge.Variant(order=("portfolio", "start", "default")),
    "behind known-good": judge.Variant(order=BETWEEN),
    "last": judge.Variant(order=AFTER),
    "4, first": judge.Variant(size=4),
    "4, last": judge.Variant(size=4, order=AFTER),
    "by gain alone, first": judge.Variant(per_cost=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("search", "measure", "judge", "choose"))
    parser.add_argument("agent", choices=tuple(SUITES))
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="of the searches")
    parser.add_argument("--space", type=int, default=0, help="search again: 1 for the second one")
    parser.add_argument("--env", nargs="+", help="measure these alone")
    args = parser.parse_args()
    if args.what == "search":
        record.search(args.agent, args.folder, args.space)
    elif args.what == "measure":
        tasks = [task for task in suite(args.agent) if not args.env or task.env in args.env]
        record.measure(args.agent, tasks)
    elif args.what == "judge":
        judged(args.agent)
    else:
        print(chosen(args.agent))


def judged(agent: str) -> None:
    """Print what portfolios of the other environments gain on each, and what variants gain.

    p is that of Wilcoxon's test on the areas of all environments, with and without.
    """
    found = judge.compare(agent, VARIANTS)
    names = (judge.WITHOUT, *VARIANTS)
    columns = [f"{what}: {name}" for what in judge.Outcome._fields for name in names[:2]]
    print(f"| environment | {' | '.join(columns)} |\n{'|---' * 7}|")
    for env, by_name in found.items():
        cells = [
            f"{getattr(by_name[name], what):.2f}"
            for what in judge.Outcome._fields
            for name in names[:2]
        ]
        print(f"| {env} | {' | '.join(cells)} |")
    plain = [by_name[judge.WITHOUT] for by_name in found.values()]
    print(f"\n| {agent}, all environments | {' | '.join(judge.Outcome._fields)} | sooner on | p |")
    print("|---" * 6 + "|")
    for name in names:
        sides = [by_name[name] for by_name in found.values()]
        gains = [side.area - other.area for side, other in zip(sides, plain, strict=True)]
        p = f"{wilcoxon(gains).pvalue:.3f}" if any(gains) else ""
        seconds = median(side.seconds for side in sides)
        area, best = (fmean(getattr(side, what) for side in sides) for what in ("area", "best"))
        sooner = sum(
            by_name[name].seconds < by_name[names[0]].seconds for by_name in found.values()
        )
        print(f"| {name} | {seconds:.2f} | {area:.3f} | {best:.3f} | {sooner} of {len(found)} "
              f"| {p} |")  # fmt: skip


def chosen(agent: str) -> str:
    """Return the portfolio in the language of the search spaces."""
    known, costs = scores(record.file_of(agent))
    candidates = {candidate["name"]: candidate for candidate in record.candidates(agent)}
    origins = {name: candidate["of"] for name, candidate in candidates.items()}
    lines = ["portfolio:                        # scripts/study_portfolios.py has learned it"]
    for name in choose(known, costs, origins):
        config = {
            key: yaml.safe_load(value) if isinstance(value, str) and value[:1] == "[" else value
            for key, value in candidates[name]["config"].items()
        }
        values = yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=96)
        first, *rest = values.splitlines()
        lines += [f"  # {name}", f"  - {first}", *(f"    {line}" for line in rest)]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
