"""Tables and the picture of what was measured and simulated."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling.simulation import CallCost, Costs, Result, Simulation, Training
from scaling.steps import N_STEPS, SETTINGS, STEP

Row = dict[str, Any]
NAMES = {
    "ppo": "PPO, lock-step",
    "ppo ahead": "PPO, max_policy_lag 1",
    "sac": "SAC, an update for each env step",
    "sac 1:4": "SAC, an update for four env steps",
}
KINDS = {"ppo": "rounds", "ppo ahead": "queue", "sac": "replay", "sac 1:4": "replay"}
COUNTS = (1, 2, 4, 8, 16, 32, 64)
STEPS = (0.001, 0.005, 0.02)  # seconds
JITTER = 0.1  # assumed, of steps that take different times
WHAT_IF: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("sac", {"faster": 20}, "updates 20 times as fast"),
    ("sac", {"faster": 20, "lag": 2_000}, "updates 20 times as fast, max_policy_lag 2000"),
)
POLICY_BYTES = {"ppo": 46e3, "sac": 1.45e6}


def of(rows: list[Row], **wanted: Any) -> Row:
    """Return the row that is wanted.

    Raises:
        SystemExit: it has not been measured.
    """
    for row in rows:
        if all(row.get(name) == value for name, value in wanted.items()):
            return row
    raise SystemExit(f"{wanted} has not been measured")


def line(x: tuple[float, float], y: tuple[float, float]) -> tuple[float, float]:
    """Return the value at 0, not below it, and the slope of a line through two points."""
    slope = (y[1] - y[0]) / (x[1] - x[0])
    return max(0.0, y[0] - slope * x[0]), max(0.0, slope)


def costs_of(rows: list[Row], setting: str) -> Costs:
    """Return what the parts of a training take, from the measurements."""
    one, four = (of(rows, what="costs", setting=setting, n_envs=n) for n in (1, 4))
    on_policy = KINDS[setting] != "replay"
    update = (one["update_ms"], four["update_ms"])
    due = (N_STEPS, 4 * N_STEPS)
    base, per_step = line(due, update) if on_policy else (statistics.mean(update), 0.0)
    small, big = (of(rows, what="message", call="insert", size=f"{n} x 17") for n in (10, 64))
    insert, per_row = line((10, 64), (small["server_cpu_ms"], big["server_cpu_ms"]))
    take = of(rows, what="message", call="take")
    newest = of(rows, what="message", call="newest")
    agent = SETTINGS[setting].agent
    policy = POLICY_BYTES[agent]
    extra = max(0.0, newest["server_cpu_ms"] - take["server_cpu_ms"])
    size = "ppo 64-64" if agent == "ppo" else "sac 256-256"
    # Rows of a rollout are the learner's work as in lock-step; of a replay server, it counts them.
    learner_row = of(rows, what="costs", setting="ppo", n_envs=1)["learner_row_ms"]
    return Costs(
        update=base / 1e3,
        update_per_step=per_step / 1e3,
        row=one["row_ms"] / 1e3,
        learner_row=learner_row / 1e3,
        policy=one["policy_ms"] / 1e3,
        load=one["load_ms"] / 1e3,
        client=take["client_cpu_ms"] / 1e3,
        insert=CallCost(insert / 1e3, way(small)),
        insert_per_row=per_row / 1e3,
        sample=cost(of(rows, what="message", call="sample", size="8 of 17")),
        publish=cost(of(rows, what="message", call="publish", size=size)),
        newest=CallCost(extra / 1e3 if agent == "sac" else 0.0, way(newest), policy),
        take=cost(take),
    )


def way(row: Row) -> float:
    """Return the seconds of a round trip that are not the server's."""
    return float(max(0.0, row["wall_ms"] - row["server_cpu_ms"])) / 1e3


def cost(row: Row) -> CallCost:
    """Return a call's cost as it was measured."""
    return CallCost(row["server_cpu_ms"] / 1e3, way(row))


def simulated(
    rows: list[Row],
    setting: str,
    actors: int,
    step: float,
    jitter: float,
    *,
    lag: int | None = None,
    faster: float = 1.0,
) -> Result:
    """Return what a simulation of a setting finds.

    Args:
        rows: the measurements
        setting: of `SETTINGS`
        actors: how many
        step: seconds of a step
        jitter: of a step, in parts of it
        lag: updates that actors may run ahead; None: as in the setting
        faster: how many times as fast as here updates are
    """
    config, kind = SETTINGS[setting].config, KINDS[setting]
    every = config.get("train_freq", 1) if kind == "replay" else N_STEPS
    lag = config.get("max_policy_lag", 100) if lag is None else lag
    costs = costs_of(rows, setting)
    costs = replace(
        costs, update=costs.update / faster, update_per_step=costs.update_per_step / faster
    )
    seconds = max(60.0, 12 * N_STEPS * step)
    made = Training(kind, actors, step, every, lag, jitter)
    return Simulation(made, costs).run(seconds, seconds / 3)


def compared(rows: list[Row]) -> Iterator[tuple[Row, Result]]:
    """Yield the measured trainings whose steps wait, each with its simulation."""
    step = of(rows, what="slept")["mean_ms"] / 1e3
    for row in rows:
        if row["what"] == "steps" and row["kind"] == "waiting" and row["actors"]:
            yield row, simulated(rows, row["setting"], row["actors"], step, 0.0)


def errors(rows: list[Row]) -> str:
    """Return the table of simulated against measured env steps per second."""
    lines = ["| training | actors | measured | simulated | error |", "|---|---|---|---|---|"]
    found = []
    for row, result in compared(rows):
        error = result.per_second / row["per_second"] - 1
        found.append(abs(error))
        lines.append(
            f"| {NAMES[row['setting']]} | {row['actors']} | {row['per_second']:,.0f} "
            f"| {result.per_second:,.0f} | {error:+.1%} |"
        )
    lines.append(f"\nmean of the errors' sizes {statistics.mean(found):.1%}, most {max(found):.1%}")
    return "\n".join(lines)


def saturation(rows: list[Row]) -> str:
    """Return the table of simulated env steps per second, and what limits them."""
    head = " | ".join(str(n) for n in COUNTS)
    lines = [f"| training | step | {head} | limit at 64 | server busy |"]
    lines.append("|---" * (len(COUNTS) + 4) + "|")
    for setting in SETTINGS:
        for step in STEPS:
            lines.append(saturating(rows, setting, step, NAMES[setting]))
    for setting, changes, name in WHAT_IF:
        lines.append(saturating(rows, setting, STEP, f"{NAMES[setting]}, {name}", **changes))
    return "\n".join(lines)


def saturating(rows: list[Row], setting: str, step: float, name: str, **changes: Any) -> str:
    """Return a line of that table."""
    found = [simulated(rows, setting, n, step, JITTER, **changes) for n in COUNTS]
    rates = " | ".join(f"{result.per_second:,.0f}" for result in found)
    last = found[-1]
    limit = "lock-step" if KINDS[setting] == "rounds" and last.limit == "waiting" else last.limit
    return f"| {name} | {step * 1e3:.0f} ms | {rates} | {limit} | {last.shares['server']:.0%} |"


def measured(rows: list[Row]) -> str:
    """Return the tables of what was measured."""
    return "\n\n".join((scaling(rows), messages(rows), servers(rows)))


def scaling(rows: list[Row]) -> str:
    """Return the table of env steps per second."""
    lines = ["| training | steps | 0 | 1 | 2 | 4 | 2 against 1 |", "|---" * 7 + "|"]
    for kind in ("waiting", "computing"):
        for setting, name in NAMES.items():
            rates = {
                row["actors"]: row["per_second"]
                for row in rows
                if (row["what"], row.get("kind"), row.get("setting")) == ("steps", kind, setting)
            }
            if not rates:
                continue
            cells = [f"{rates[n]:,.0f}" if n in rates else "" for n in (0, 1, 2, 4)]
            times = f"{rates[2] / rates[1]:.2f}" if {1, 2} <= set(rates) else ""
            lines.append(f"| {name} | {kind} | {' | '.join(cells)} | {times} |")
    return "\n".join(lines)


def messages(rows: list[Row]) -> str:
    """Return the table of what calls of the replay server cost."""
    lines = ["| call | of | round trip | server's CPU | of it, ours | caller's CPU |"]
    lines.append("|---" * 6 + "|")
    for row in rows:
        if row["what"] == "message":
            times = ("wall_ms", "server_cpu_ms", "logic_cpu_ms", "client_cpu_ms")
            cells = " | ".join(f"{row[name]:.2f}" for name in times)
            lines.append(f"| {row['call']} | {row['size']} | {cells} |")
    return "\n".join(lines)


def servers(rows: list[Row]) -> str:
    """Return the table of what one server moves in a second."""
    lines = ["| item | a message | clients | inserted | messages | sampled |", "|---" * 6 + "|"]
    for row in rows:
        if row["what"] == "server":
            kilobytes = row["floats"] * 4 / 1e3
            lines.append(
                f"| {kilobytes:g} kB | {row['rows']} | {row['clients']} | {row['inserts']:,.0f} "
                f"| {row['insert_calls']:,.0f} | {row['samples']:,.0f} |"
            )
    return "\n".join(lines)


def picture(rows: list[Row], path: Path) -> None:
    """Draw env steps per second against actors: lines are simulated, points measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(STEPS), figsize=(11.5, 3.8), sharey=True)
    colours = dict(zip(SETTINGS, ("tab:blue", "tab:cyan", "tab:red", "tab:orange"), strict=True))
    for axis, step in zip(axes, STEPS, strict=True):
        axis.plot(COUNTS, [n / step for n in COUNTS], ":", color="grey", lw=1, label="no costs")
        for setting, colour in colours.items():
            found = [simulated(rows, setting, n, step, JITTER).per_second for n in COUNTS]
            axis.plot(COUNTS, found, color=colour, lw=1.5, label=NAMES[setting])
            points = [
                (row["actors"], row["per_second"])
                for row in rows
                if row["what"] == "steps"
                and (row["kind"], row["setting"]) == ("waiting", setting)
                and row["actors"]
            ]
            if step == STEP and points:
                axis.plot(*zip(*points, strict=True), "o", color=colour, ms=5)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(COUNTS, [str(n) for n in COUNTS])
        axis.set_xlabel("actors", fontsize=9)
        axis.set_title(f"steps of {step * 1e3:.0f} ms", fontsize=10)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25, lw=0.5)
    axes[0].set_ylabel("env steps per second", fontsize=9)
    axes[-1].legend(fontsize=7, frameon=False, loc="upper left")
    axes[STEPS.index(STEP)].text(
        0.03, 0.95, "points: measured, 2 cores", transform=axes[1].transAxes, fontsize=8, va="top"
    )
    figure.suptitle("Actors: simulated from measured costs (lines) and measured", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
