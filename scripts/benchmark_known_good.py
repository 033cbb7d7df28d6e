"""Is what a search of half an hour names better than the known-good settings?

    python scripts/benchmark_known_good.py search   # resumable; nothing else may run
    python scripts/benchmark_known_good.py test     # resumable: on twenty seeds that no search used
    python scripts/benchmark_known_good.py table
    python scripts/benchmark_known_good.py picture  # to docs/images

The pairs are those that docs/benchmarks/held-out.md names. A search is `rltune run AGENT --env ENV
--budget N --time-limit 30m`, with its defaults. What it names, rl-zoo3's settings and the agent's
defaults are then trained for as many env steps on the same seeds, and scored by 100 greedy
episodes. Where the search names the defaults or the known-good settings, their scores are its own.
Interquartile means have 95 % bootstrap intervals. One is better than the other beyond
chance if the interval of the probability that a training of it is better is above a half.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from json_lines import append, read
from markdown_tables import heading, line
from winners import in_process, named, scored

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "known-good.jsonl"
IMAGE = ROOT / "docs" / "images" / "known-good.png"
MINUTES = 30.0
SEARCH_SEED = 60
SEEDS = range(2000, 2020)
WHO = ("rltune", "known-good", "defaults")
NAMES = {"rltune": "rltune's answer", "known-good": "known-good settings", "defaults": "defaults"}
COLOURS = {"rltune": "tab:blue", "known-good": "tab:orange", "defaults": "tab:gray"}
NAMED_BY_ALL = {"default": "defaults", "start:0": "known-good"}  # by the origin of a trial


class Pair(NamedTuple):
    """An agent with known-good settings for an environment, at a budget where people stop."""

    agent: str
    env: str
    budget: int


PAIRS = (
    Pair("ppo", "LunarLander-v3", 300_000),
    Pair("ppo", "BipedalWalker-v3", 300_000),
    Pair("a2c", "CartPole-v1", 100_000),
    Pair("a2c", "LunarLander-v3", 200_000),
    Pair("trpo", "Walker2d-v5", 200_000),
    Pair("dqn", "LunarLander-v3", 50_000),
    Pair("sac", "Walker2d-v5", 20_000),
    Pair("td3", "LunarLanderContinuous-v3", 20_000),
)


def store(results: Path, row: dict[str, Any]) -> None:
    names = ("rltune", "torch", "gymnasium", "numpy")
    about = {"when": time.strftime("%Y-%m-%d"), "versions": {name: version(name) for name in names}}
    append(results, {**row, **about})


def searches(results: Path, pair: Pair) -> list[dict[str, Any]]:
    mine = (row for row in read(results) if row["what"] == "search")
    return [row for row in mine if (row["agent"], row["env"], row["budget"]) == pair]


def same_as(search: dict[str, Any]) -> str | None:
    """Return whose settings a search named, if they are not of its own."""
    return next((NAMED_BY_ALL[o] for o in search["origins"] if o in NAMED_BY_ALL), None)


# --------------------------------------------------------------------------------------- searches


def search(results: Path, minutes: float, folder: Path, only: list[str]) -> None:
    """Run the searches that are missing; one that was interrupted goes on.

    Args:
        results: where what they name is stored
        minutes: of a search
        folder: for their run directories, which are kept
        only: search with these agents alone, unless empty
    """
    for pair in PAIRS:
        if searches(results, pair) or (only and pair.agent not in only):
            continue
        run = folder / f"{pair.agent}-{pair.env}"
        command = [sys.executable, "-m", "rltune"]
        if resumed := run.exists():
            command += ["resume", str(run), "--no-report", "--plain"]
        else:
            command += ["run", pair.agent, "--env", pair.env, "--budget", str(pair.budget)]
            command += ["--time-limit", f"{60 * minutes:.0f}s", "--seed", str(SEARCH_SEED)]
            command += ["--storage-path", str(folder), "--name", run.name]
            command += ["--wandb", "off", "--no-report", "--plain"]
        started = time.time()
        subprocess.run(command, check=True)
        about = {"what": "search", **pair._asdict(), "minutes": minutes, "resumed": resumed}
        seconds = round(time.time() - started, 1)
        store(results, {**about, "seconds": seconds, **named(run)})


# ------------------------------------------------------------------------------------------ tests


def tests(results: Path, only: list[str], whose: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the trainings that are missing: the first seed of everyone, then the second."""
    keys = ("who", "agent", "env", "budget", "seed")
    done = {tuple(row[k] for k in keys) for row in read(results) if row["what"] == "test"}
    for seed in SEEDS:
        for pair in PAIRS:
            for who in whose:
                job = {"what": "test", "who": who, **pair._asdict(), "seed": seed}
                if tuple(job[k] for k in keys) in done or (only and pair.agent not in only):
                    continue
                if who == "rltune":
                    if not (found := searches(results, pair)) or same_as(found[0]):
                        continue
                    job["config"] = found[0]["config"]
                yield job


def test(results: Path, at_once: int, only: list[str], whose: Sequence[str]) -> None:
    """Train everyone on fresh seeds."""
    with ThreadPoolExecutor(at_once) as pool:
        for row in pool.map(partial(in_process, __file__), tests(results, only, whose)):
            row.pop("config", None)
            store(results, row)
            print(*(row[k] for k in ("who", "agent", "env", "seed", "score")), flush=True)


def one(job: dict[str, Any]) -> dict[str, Any]:
    """Train one configuration on one seed."""
    import rltune

    config = job.get("config", {})
    if job["who"] == "known-good":
        config = rltune.preset(job["agent"], job["env"], "zoo")
    return {**job, **scored(job, config)}


# ----------------------------------------------------------------------------------------- tables


def scores(results: Path, pair: Pair) -> dict[str, dict[int, float]]:
    """Return everyone's scores by seed; a training that diverged is worse than all others."""
    found: dict[str, dict[int, float]] = {who: {} for who in WHO}
    for row in read(results):
        if row["what"] == "test" and (row["agent"], row["env"], row["budget"]) == pair:
            found[row["who"]][row["seed"]] = -float("inf") if row["score"] is None else row["score"]
    if (mine := searches(results, pair)) and (twin := same_as(mine[0])):
        found["rltune"] = found[twin]
    return found


def verdict(ours: list[float], theirs: list[float]) -> tuple[str, float, float, float]:
    """Return the verdict, and the probability, with its interval, that ours are better."""
    from rltune.stats.estimates import probability_of_improvement

    p, low, high = probability_of_improvement(ours, theirs)
    word = "better" if low > 0.5 else "worse" if high < 0.5 else "a tie"
    return word, p, low, high


def table(results: Path) -> None:
    """Print a row a pair."""
    from rltune.stats.estimates import bootstrap_interval, iqm

    returns = ("rltune", "known-good settings", "defaults")
    heading(["agent, environment, env steps", "trials", *returns, "rltune against known-good"])
    for pair in PAIRS:
        found = scores(results, pair)
        if not all(found.values()):
            continue
        (search,) = searches(results, pair)
        cells = [f"{pair.agent.upper()}, {pair.env}, {pair.budget:,}", str(search["trials"])]
        for who in WHO:
            values = list(found[who].values())
            low, high = bootstrap_interval(values)
            cells.append(f"{iqm(values):.1f} [{low:.1f}, {high:.1f}]")
        twin = same_as(search)
        if twin:
            cells[2] = f"the {NAMES[twin]}"
        word, p, low, high = verdict(*(list(found[who].values()) for who in WHO[:2]))
        same = twin == "known-good"
        cells.append("the same" if same else f"{word}: {p:.0%} [{low:.0%}, {high:.0%}]")
        line(cells)


def picture(results: Path, image: Path) -> None:
    """Draw everyone's interquartile means with intervals, four pairs in a row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from rltune.stats.estimates import bootstrap_interval, iqm

    pairs = [pair for pair in PAIRS if all(scores(results, pair).values())]
    rows = -(-len(pairs) // 4)
    figure, axes = pyplot.subplots(rows, 4, figsize=(8.5, 0.4 + 2.1 * rows), squeeze=False)
    for axis in axes.flat[len(pairs) :]:
        axis.axis("off")
    for axis, pair in zip(axes.flat, pairs, strict=False):
        found = {who: list(values.values()) for who, values in scores(results, pair).items()}
        for place, who in enumerate(WHO):
            middle, (low, high) = iqm(found[who]), bootstrap_interval(found[who])
            axis.errorbar(
                place, middle, [[middle - low], [high - middle]], fmt="o", color=COLOURS[who],
                capsize=3, label=NAMES[who],
            )  # fmt: skip
        axis.set_xlim(-0.6, 2.6)
        axis.set_xticks([])
        same = same_as(searches(results, pair)[0]) == "known-good"
        word = "the same" if same else verdict(found["rltune"], found["known-good"])[0]
        axis.set_title(
            f"{pair.agent.upper()}, {pair.env.split('-')[0]}\n"
            f"{pair.budget // 1000}k env steps: {word}",
            fontsize=8,
        )
        axis.tick_params(labelsize=7)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, fontsize=8, frameon=False)
    figure.supylabel(f"return on {len(SEEDS)} fresh seeds", fontsize=8)
    figure.tight_layout(rect=(0, 0.2 / (0.4 + 2.1 * rows), 1, 1))
    figure.savefig(image, dpi=150)
    print(image.relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("search", "test", "table", "picture", "one"))
    parser.add_argument("job", nargs="?", type=json.loads)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of a search")
    parser.add_argument("--at-once", type=int, default=2, help="trainings at a time")
    parser.add_argument("--agent", nargs="+", default=[], help="search, or test, only these")
    parser.add_argument("--who", nargs="+", choices=WHO, default=WHO, help="test only these")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="of the searches")
    args = parser.parse_args()
    if args.what == "search":
        search(args.results, args.minutes, args.folder, args.agent)
    elif args.what == "test":
        test(args.results, args.at_once, args.agent, args.who)
    elif args.what == "table":
        table(args.results)
    elif args.what == "picture":
        picture(args.results, IMAGE)
    else:
        print(json.dumps(one(args.job)))


if __name__ == "__main__":
    main()
