"""The tables: ratios, nothing but ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

from speed.machine import BLAS
from speed.rows import HELD_OUT, ROWS

Record = dict[str, Any]
Group = tuple[str, str, str]  # state, BLAS, rltune's engine
NEVER = float("inf")
ENOUGH = 5  # values for an interval


def ratio(pair: Record) -> float:
    """Return rltune's env steps per CPU-second, divided by the other's."""
    ours, theirs = (
        side["env_steps"] / side["cpu_seconds"] for side in (pair["ours"], pair["theirs"])
    )
    return float(ours / theirs)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return the ends of the sign test's interval of the median, and its confidence.

    The narrowest one of 93 % or more; the range, where none is.
    """
    ordered, n = sorted(values), len(values)
    found = (ordered[0], ordered[-1], 1 - 2 * 0.5**n)
    for k in range(1, n // 2):
        confidence = 1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) * 0.5**n
        if confidence < 0.93:
            break
        found = (ordered[k], ordered[-1 - k], confidence)
    return found


def of(rows: Iterable[Record], what: str) -> list[Record]:
    return [row for row in rows if row["what"] == what]


def grouped(rows: Iterable[Record]) -> dict[Group, list[Record]]:
    groups: dict[Group, list[Record]] = {}
    for row in rows:
        engine = row.get("took") or row["engine"] or "not asked for"
        groups.setdefault((row["state"], row["blas"], engine), []).append(row)
    return groups


def print_tables(rows: list[Record]) -> None:
    for group, mine in grouped(of(rows, "slice")).items():
        kernels = {
            f"NumPy with {row['kernels']['numpy']}, PyTorch with {row['kernels']['torch']}"
            for row in mine
        }
        head(group, mine, [f"{BLAS[group[1]]}: {'; '.join(sorted(kernels))}"])
        print("| training | against | pairs | times as fast | interval | at least |")
        print("|---|---|---|---|---|---|")
        for row in (*ROWS, *HELD_OUT):
            ratios = [ratio(pair) for pair in mine if pair["row"] == row.name]
            if ratios:
                held = ", held out" if row in HELD_OUT else ""
                print(f"| {row.agent} {row.env}{held} | {row.reference} | {len(ratios)} | "
                      f"{shown(ratios)} | {row.at_least or '-'} |")  # fmt: skip
    kinds = (("search", print_searches), ("threshold", print_times), ("trials", print_trivial))
    for what, show in kinds:
        found = of(rows, what)
        others = [row for row in found if row["tuner"] != "rltune"]
        for group, ours in grouped(row for row in found if row["tuner"] == "rltune").items():
            against = [row for row in others if (row["state"], row["blas"]) == group[:2]]
            if against:
                head(group, [*ours, *against])
                show(ours, against)
    print_profiles(rows)


def head(group: Group, rows: list[Record], also: Iterable[str] = ()) -> None:
    """Print what a table is of: the state, days, processors and versions."""
    state, blas, engine = group
    said = {f"{name} {v}" for row in rows for name, v in row["versions"].items()}
    days, processors = ({row[name] for row in rows} for name in ("when", "processor"))
    parts = [f"{state}: engine {engine}", f"BLAS {blas}", *also, *sorted(days)]
    print("\n" + "; ".join([*parts, *sorted(processors), ", ".join(sorted(said))]) + "\n")


def shown(ratios: list[float]) -> str:
    """Return the cells of a median and its interval."""
    if len(ratios) < ENOUGH:
        return f"{median(ratios):.2f} x | -"
    low, high, confidence = interval(ratios)
    return f"{median(ratios):.2f} x | [{low:.2f}, {high:.2f}], {confidence:.0%}"


# ----------------------------------------------------------------------------------- whole searches


def print_searches(ours: list[Record], others: list[Record]) -> None:
    """Print the ratios of rltune's medians to each tuner's."""
    print("| search | against | searches | env steps a second | time to the threshold |")
    print("|---|---|---|---|---|")
    for name, tuner, mine, theirs in _compared(ours, others):
        print(f"| {name} | {tuner} | {len(mine)}, {len(theirs)} | "
              f"{_throughput(mine, theirs)} | {_times(mine, theirs)} |")  # fmt: skip


def print_times(ours: list[Record], others: list[Record]) -> None:
    """Print each search's seconds to the threshold, and the ratios of rltune's medians."""
    print("| search | against | rltune's seconds | the other's | rltune's median by the other's |")
    print("|---|---|---|---|---|")
    for name, tuner, mine, theirs in _compared(ours, others):
        print(f"| {name} | {tuner} | {_seconds(mine)} | {_seconds(theirs)} | "
              f"{_times(mine, theirs)} |")  # fmt: skip


def _compared(
    ours: list[Record], others: list[Record]
) -> Iterator[tuple[str, str, list[Record], list[Record]]]:
    """Yield each problem and other tuner, with rltune's searches and the other's."""
    for problem in dict.fromkeys((row["agent"], row["env"]) for row in ours):
        mine = [row for row in ours if (row["agent"], row["env"]) == problem]
        for tuner in dict.fromkeys(row["tuner"] for row in others):
            theirs = [
                row
                for row in others
                if (row["tuner"], row["agent"], row["env"]) == (tuner, *problem)
            ]
            if theirs:
                yield " ".join(problem), tuner, mine, theirs


def _seconds(rows: list[Record]) -> str:
    """Return the searches' seconds to the threshold, the least first."""
    found = sorted(NEVER if (at := row["seconds_to_threshold"]) is None else at for row in rows)
    return ", ".join("never" if at == NEVER else f"{at:.0f}" for at in found)


def _throughput(ours: list[Record], theirs: list[Record]) -> str:
    first, second = (
        median(row["env_steps"] / row["seconds"] for row in rows) for rows in (ours, theirs)
    )
    return f"{first / second:.1f} x" if second else "the other trained nothing"


def _times(ours: list[Record], theirs: list[Record]) -> str:
    """Return the ratio of the times to the threshold; a search without it took for ever."""
    first, second = (
        median(NEVER if (at := row["seconds_to_threshold"]) is None else at for row in rows)
        for rows in (ours, theirs)
    )
    if first == second == NEVER:
        return "neither reached it"
    if NEVER in (first, second):
        return "rltune never reached it" if first == NEVER else "the other never reached it"
    return f"{first / second:.2f}"


def print_trivial(ours: list[Record], others: list[Record]) -> None:
    first, second = (
        median(row["trials"] / row["seconds"] for row in rows) for rows in (ours, others)
    )
    print(f"trivial trials a second: {first / second:.1f} times plain Tune's "
          f"({len(ours)} and {len(others)} searches)")  # fmt: skip


# ----------------------------------------------------------------------------------------- profiles


def print_profiles(rows: list[Record]) -> None:
    """Print the shares of rltune's CPU time; the limit is with all but the floor for nothing."""
    pairs = grouped(of(rows, "slice"))
    for group, mine in grouped(of(rows, "profile")).items():
        head(group, mine, ["% of rltune's CPU time"])
        groups = list(mine[0]["shares"])
        print(f"| training | {' | '.join(groups)} | floor: the environment's own step | products | "
              "limit | limit against the reference |")  # fmt: skip
        print("|---" * (len(groups) + 5) + "|")
        for row in mine:
            floor = row["env_step"] + row["products"]
            ratios = [ratio(pair) for pair in pairs.get(group, []) if pair["row"] == row["row"]]
            limit = f"{median(ratios) / floor:.1f} x" if ratios else "-"
            shares = [*row["shares"].values(), row["env_step"], row["products"]]
            print(f"| {row['row']} | {' | '.join(f'{100 * share:.0f}' for share in shares)} | "
                  f"{1 / floor:.1f} x | {limit} |")  # fmt: skip
