"""Benchmark the first search: `scripts/quickstart`'s search with ten seeds.

    python scripts/benchmark_quickstart.py run FOLDER     # resumable; some three minutes a seed
    python scripts/benchmark_quickstart.py table FOLDER   # the table of docs/measurements.md

"Beyond chance" is the answer's own claim; docs/seeds.md describes its test.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rltune

SEEDS = range(10)
SEARCH = ["run", "ppo", "--space", "search_spaces/ppo.yaml", "--plain", "--wandb", "off"]


def run(folder: Path) -> None:
    """Run the missing searches; an interrupted one is resumed."""
    for seed in SEEDS:
        path = folder / f"seed-{seed}"
        if path.exists() and rltune.open(path).answer is not None:
            continue
        flags = ["--seed", str(seed), "--storage-path", str(folder), "--name", path.name]
        words = ["resume", str(path), "--plain"] if path.exists() else [*SEARCH, *flags]
        subprocess.run([sys.executable, "-m", "rltune", *words], check=True)


def row(path: Path) -> tuple[str, bool]:
    """Return a row of the table, and whether the answer beats the defaults beyond chance."""
    opened = rltune.open(path)
    answer = opened.answer or {}
    ranking: list[dict[str, Any]] = answer["ranking"]
    best = next(ranked for ranked in ranking if ranked["trial"] == answer["winner"])
    default = next(ranked for ranked in ranking if "default" in ranked["origins"])
    sampled = [ranked for ranked in ranking if "sampler" in ranked["origins"]]
    own = max(sampled, key=lambda ranked: float(ranked["iqm"]), default=None)
    seconds = opened.history()["timestamp"].agg(["min", "max"])
    cells = [
        path.name.removeprefix("seed-"),
        "the defaults" if best is default else kind(best),
        score(best),
        score(default),
        lead(best),
        f"{score(own)}; {lead(own)}" if own else "none",
        f"{(seconds['max'] - seconds['min']) / 60:.1f}",
    ]
    return f"| {' | '.join(cells)} |", bool(best["better_than_default"])


def kind(ranked: Mapping[str, Any]) -> str:
    """Return the origin of a configuration."""
    return (
        "known-good settings" if "sampler" not in ranked["origins"] else f"trial {ranked['trial']}"
    )


def score(ranked: Mapping[str, Any]) -> str:
    """Return the interquartile mean on the test seeds."""
    return f"{ranked['iqm']:.0f}"


def lead(ranked: Mapping[str, Any]) -> str:
    """Return the lead of a configuration over the defaults, and whether it is beyond chance."""
    difference = ranked["difference"]
    if difference is None:
        return "-"
    value, low, high = difference
    ends = f"{value:+.0f} [{low:.0f}, {high:.0f}]"
    return ends if ranked["better_than_default"] else f"{ends}, not proven"


def table(folder: Path) -> None:
    """Print the table."""
    print(
        "| seed | the answer | return | defaults | lead | the sampler's best; its lead | minutes |"
    )
    print("|---|---|---|---|---|---|---|")
    paths = sorted(folder.glob("seed-*"))
    rows = [row(path) for path in paths if rltune.open(path).answer is not None]
    print("\n".join(text for text, _ in rows))
    beating = sum(beats for _, beats in rows)
    print(f"\nBetter than the defaults beyond chance: {beating} of {len(rows)}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("run", "table"):
        sys.exit(__doc__)
    {"run": run, "table": table}[sys.argv[1]](Path(sys.argv[2]))
