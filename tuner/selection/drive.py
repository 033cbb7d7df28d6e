"""The rounds of a search over several agents: each agent's part, who goes on, the conclusion."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rltune.agents.errors import ClusterError, StorageError, UserError
from rltune.common.callbacks import Callback
from rltune.common.formats import plural, score
from rltune.common.reading import load_yaml, reading
from rltune.results import Run, SearchResult
from rltune.runs.directory import AGENT_ANSWER, AGENTS, RunDir, agent_folder
from rltune.search.search import Search
from rltune.search.search import resume as resume_search
from rltune.selection import rounds
from rltune.selection.answer import AgentAnswer, build, objectives, result_of
from rltune.selection.spec import AgentsSpec

ROUNDS = "rounds.yaml"  # what of the rounds is done


class Part(NamedTuple):
    """An agent's part of a round.

    Attributes:
        trials: up to the end of the round; None: as many as there is time for
        seconds: for the round; None: no limit
        tournament: whether it is the last round
    """

    trials: int | None = None
    seconds: float | None = None
    tournament: bool = False


class Output(NamedTuple):
    """What a search shows and tells: such keywords of `rltune.Search`."""

    screen: str
    ray_output: bool
    callbacks: Sequence[Callback] = ()


def request(
    spec: AgentsSpec, path: Path, agent: str, part: Part, output: Output, **options: Any
) -> Search:
    """Return the search of one agent, in its folder of the run directory at ``path``.

    ``options`` stand over those of all agents.
    """
    return Search(
        agent,
        spec.env,
        budget=spec.budgets[agent],
        trials=part.trials,
        time_limit=part.seconds,
        name=agent_folder(agent),
        storage_path=path / AGENTS,
        tournament=part.tournament,
        **output._asdict(),
        **{**spec.options, **options},
    )


class Rounds:
    """Drives the rounds; what is done of them is written down after each agent's part.

    Args:
        spec: of the search
        run: its run directory
        end: Unix seconds at which the last round ends; None: no limit
        output: what the searches show
    """

    def __init__(self, spec: AgentsSpec, run: RunDir, end: float | None, output: Output) -> None:
        self.spec = spec
        self.run = run
        self.end = end
        self.output = output
        # A round: its agents, and those whose part is done.
        self.rounds: list[dict[str, list[str]]] = [{"agents": spec.agents, "done": []}]
        if (file := run.path / ROUNDS).exists():
            with reading(file):
                self.rounds = [dict(known) for known in load_yaml(file)]

    def drive(self) -> AgentAnswer | None:
        """Run what is left of the rounds, and conclude; returns None if it was interrupted.

        Raises:
            UserError: no agent has come to a result.
        """
        sizes = self.spec.sizes
        with self.run.lock():
            while self._play():
                if len(self.rounds) == len(sizes):
                    return self._conclude()
                self._begin(sizes[len(self.rounds)])
        self._say(f"Stopped. Nothing is lost; go on with: rltune resume {self.run.path}")
        return None

    def _play(self) -> bool:
        """Give each agent its part of the round; returns whether all had theirs."""
        current = self.rounds[-1]
        for agent in current["agents"]:
            if agent in current["done"]:
                continue
            self._say(f"Round {len(self.rounds)} of {len(self.spec.sizes)}: {agent}")
            try:
                if self._search(agent).interrupted:
                    return False
            except UserError as error:
                # A full disk, or a cluster that is gone, is no fault of the agent.
                lasting = isinstance(error, (StorageError, ClusterError))
                if lasting or not self.run.path_of_agent(agent).exists():
                    raise
                self._say(f"{agent} has failed: {error}")
            current["done"].append(agent)
            self.run.write_yaml(ROUNDS, self.rounds)
        return True

    def _search(self, agent: str) -> SearchResult:
        """Search with an agent; the pages wait for the end, as they take the next agent's time."""
        part, path = self._part(), self.run.path_of_agent(agent)
        if not (path / "run.yaml").exists():
            return request(self.spec, self.run.path, agent, part, self.output, report=False).run()
        changes: dict[str, Any] = {"trials": part.trials, "time_limit": part.seconds}
        return resume_search(
            path,
            tournament=part.tournament,
            report=False,
            **self.output._asdict(),
            **{name: value for name, value in changes.items() if value is not None},
        )

    def _part(self) -> Part:
        """Return what the next agent of this round gets."""
        spec, current = self.spec, self.rounds[-1]
        trials = seconds = None
        if spec.trials is not None:
            trials = rounds.trials_until(len(spec.agents), spec.trials)[len(self.rounds) - 1]
        if self.end is not None:
            n, later = len(current["agents"]), len(spec.sizes) - len(self.rounds)
            left = self.end - time.time()
            part = rounds.seconds_of(left, n, n - len(current["done"]), later)
            seconds = max(part, rounds.LEAST_SECONDS / 2)  # however late it is
        return Part(trials, seconds, len(self.rounds) == len(spec.sizes))

    def _begin(self, size: int) -> None:
        """Begin the next round, with the agents that go on."""
        agents = self.rounds[-1]["agents"]
        found = {agent: objectives(run) for agent in agents if (run := self._run_of(agent))}
        kept = rounds.survivors(found, agents, size)
        if not kept:
            raise UserError(f"no agent has a trial with a result; see {self.run.path / AGENTS}.")
        for agent in agents:
            if agent not in kept:
                self._say(
                    f"{agent} falls behind with {score(next(iter(found.get(agent, [])), None))}"
                )
        self._say(f"{', '.join(kept)} go on: {plural(len(kept), 'agent')} of {len(agents)}")
        self.rounds.append({"agents": kept, "done": []})
        self.run.write_yaml(ROUNDS, self.rounds)

    def _run_of(self, agent: str) -> Run | None:
        path = self.run.path_of_agent(agent)
        return Run(RunDir.open_whole(path)) if (path / "trials.parquet").exists() else None

    def _conclude(self) -> AgentAnswer:
        """Write the answer, and the pages."""
        results = []
        for agent in self.spec.agents:
            if (run := self._run_of(agent)) is not None:
                played = max(i for i, known in enumerate(self.rounds) if agent in known["agents"])
                dropped = None if played == len(self.rounds) - 1 else played + 1
                results.append(result_of(agent, run, dropped))
        answer = build(results, self.spec.left_out)
        self.run.write_yaml(AGENT_ANSWER, answer.to_dict())
        if self.spec.options.get("report", True):
            self._write_pages([result.agent for result in answer.results if result.scores])
        return answer

    def _write_pages(self, agents: Sequence[str]) -> None:
        """Write a page for each of the leading agents, and one that compares them."""
        from rltune.comparing.comparison import compare
        from rltune.reporting.report import report_quietly

        for agent in agents:
            self._say(f"{agent}: {report_quietly(self.run.path_of_agent(agent)).strip()}")
        if len(agents) < 2:
            return
        options = self.spec.options
        judged_by = {name: options[name] for name in ("metric", "objective") if name in options}
        try:
            entries = {agent: self.run.path_of_agent(agent) for agent in agents}
            self._say(f"Comparison  {compare(entries, **judged_by).write(self.run.report_dir)}")
        except Exception as error:  # the search has succeeded, whatever goes wrong with its page
            self._say(f"The comparison could not be written: {type(error).__name__}: {error}")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
