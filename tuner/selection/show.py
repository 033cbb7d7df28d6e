"""The answer of a search over several agents in the terminal."""

from __future__ import annotations

import json
import os
import sys

from rich.console import Console
from rich.text import Text
from rltune.common.formats import duration, interval, score
from rltune.common.plain import json_dict
from rltune.common.reading import load_yaml
from rltune.common.terminal import make_console, plain_table
from rltune.runs.directory import AGENT_ANSWER, AGENTS, RunDir
from rltune.selection.drive import ROUNDS
from rltune.selection.spec import AgentsSpec


def under_way(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the run to look at: of a search over several agents, that of the one under way.

    A search that has ended is looked at as a whole, and so is any other run.
    """
    run = RunDir.open_whole(path)
    if run.kind != AGENTS or (run.path / AGENT_ANSWER).exists():
        return path
    last = AgentsSpec.from_dict(run.spec).agents
    if (file := run.path / ROUNDS).exists():
        current = load_yaml(file)[-1]
        last = [agent for agent in current["agents"] if agent not in current["done"]]
    for agent in last[:1]:
        if (run.path_of_agent(agent) / "run.yaml").exists():
            return run.path_of_agent(agent)
    return path


def show(
    run: RunDir, *, as_json: bool = False, plain: bool = False, console: Console | None = None
) -> None:
    """Print the agents, best first, and what follows from them.

    Raises:
        UserError: the search has not ended.
    """
    run.named_agent()
    answer = load_yaml(run.path / AGENT_ANSWER)
    if as_json:
        json.dump(json_dict(answer), sys.stdout, indent=2, ensure_ascii=False)
        print()
        return
    console = console or make_console(plain)
    console.print(
        Text.assemble(("rltune", "bold cyan"), (f"  agents on {run.spec['env']}", "bold"), "  ",
                      (run.name, "dim"))
    )  # fmt: skip
    table = plain_table(
        "agent", "trials", "best", "on test seeds", "95 % interval", "a training", numbers_from=1
    )
    for result in answer["results"]:
        ends = "" if result["iqm"] is None else interval(result["low"], result["high"])
        table.add_row(
            result["agent"],
            str(result["trials"]),
            score(result["best"]),
            score(result["iqm"]),
            ends or "-",
            "-" if result["seconds"] is None else duration(result["seconds"]),
        )
    console.print(table)
    for sentence in answer["sentences"]:
        console.print(Text(sentence))
