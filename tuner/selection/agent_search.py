"""A search over several agents, from Python: its request, its result, and going on with one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.common.callbacks import Given, resolved
from rltune.results import Run, SearchResult
from rltune.runs.directory import AGENTS, STORAGE, RunDir, default_name, run_path
from rltune.runs.search_options import DEFAULT_TRIALS
from rltune.selection import rounds
from rltune.selection.answer import AgentAnswer
from rltune.selection.candidates import AUTO, budget_in, candidates
from rltune.selection.drive import Output, Part, Rounds, request
from rltune.selection.spec import AgentsSpec, check_options

TRIAL_TIME = 30.0  # seconds that the defaults of an agent train in a trial


@dataclass(frozen=True)
class AgentSearchResult:
    """The result of a search over several agents.

    Attributes:
        path: the run directory; each agent's is agents/NAME in it
        answer: the agents, best first, and sentences; None: it was interrupted
    """

    path: Path
    answer: AgentAnswer | None = None

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped, to be resumed."""
        return self.answer is None

    @property
    def agent(self) -> str | None:
        """The agent to use."""
        return self.answer.agent if self.answer else None

    @property
    def search(self) -> SearchResult | None:
        """The search of the agent to use."""
        return SearchResult(Run(RunDir.open(self.path))) if self.agent else None


class AgentSearch:
    """A search for the best agent, and its best configuration, on an environment.

    Args:
        agents: names, or "auto": all of rltune's that can act there
        env: gymnasium id or "module:Class"
        budget: whole budget of a trial in env steps, the same for all agents
        trial_time: instead of ``budget``, seconds that the defaults of each agent train
        trials: both leading agents together get twice as many; None: 60, unless there is a
            ``time_limit``
        time_limit: seconds for everything
        name, storage_path: of the run directory
        screen, ray_output, callbacks: as of `rltune.Search`; each agent's part of a round is a
            search to callbacks
        options: further ones of `rltune.Search`, the same for all agents

    Attributes:
        spec: the resolved specification
        path: the run directory

    Raises:
        UserError: anything is wrong with what was asked for; nothing has been written then.
    """

    def __init__(
        self,
        agents: str | Sequence[str],
        env: str,
        *,
        budget: float | None = None,
        trial_time: float | None = None,
        trials: int | None = None,
        time_limit: float | None = None,
        name: str | None = None,
        storage_path: str | os.PathLike[str] = STORAGE,
        screen: str = "auto",
        ray_output: bool = False,
        callbacks: Given = (),
        **options: Any,
    ) -> None:
        """Find the agents that can act there, and their budgets."""
        self.started = time.time()
        self.output = Output(screen, ray_output, resolved(callbacks))
        check_options(env, options, storage_path)
        if budget is not None and trial_time is not None:
            raise UserError("--budget and --trial-time say the same; keep one of them.")
        kwargs = options.get("env_kwargs") or {}
        found = candidates(agents, env, kwargs)
        if budget is None:
            trial_time = TRIAL_TIME if trial_time is None else trial_time
        rounds.check_time(len(found.agents), time_limit, trial_time or 0.0)
        if trials is None and time_limit is None:
            trials = DEFAULT_TRIALS
        kind = AUTO if agents == AUTO else AGENTS
        path = run_path(storage_path, name or default_name(kind, env, storage_path))
        self.path = path.absolute()
        self.spec = AgentsSpec(
            agents=found.agents,
            left_out=found.left_out,
            env=env,
            budgets=_budgets(found.agents, env, kwargs, budget, trial_time),
            trial_time=trial_time,
            trials=trials,
            time_limit=time_limit,
            options={"wandb_group": path.name, **options},
        )
        for agent in found.agents:  # mistakes in the options are found before a file is there
            request(self.spec, self.path, agent, Part(trials=1, tournament=True), self.output)

    def run(self) -> AgentSearchResult:
        """Run all rounds, or until Ctrl-C, and return what they found."""
        run = RunDir.create(self.path, self.spec.to_dict(), kind=AGENTS)
        return _drive(run, self.spec, self.started, self.output)


def resume(
    path: str | os.PathLike[str],
    *,
    time_limit: float | None = None,
    screen: str = "auto",
    ray_output: bool = False,
    callbacks: Given = (),
) -> AgentSearchResult:
    """Go on with a search over several agents that was stopped or killed.

    Args:
        path: the run directory
        time_limit: seconds from now on; None: as it was
        screen, ray_output, callbacks: as of `rltune.Search`

    Raises:
        UserError: there is no such search, or another process drives it.
    """
    started, run = time.time(), RunDir.open_whole(path)
    if run.kind != AGENTS:
        raise UserError(f"{run.path} is no search over several agents; rltune.resume goes on.")
    spec = AgentsSpec.from_dict(run.spec)
    if time_limit is not None:
        spec = replace(spec, time_limit=time_limit)
    run.resumed({} if time_limit is None else {"time_limit": time_limit})
    return _drive(run, spec, started, Output(screen, ray_output, resolved(callbacks)))


def _drive(run: RunDir, spec: AgentsSpec, started: float, output: Output) -> AgentSearchResult:
    from rltune.cluster.address import is_elsewhere
    from rltune.cluster.session import ray_session

    end = None if spec.time_limit is None else started + spec.time_limit
    with contextlib.ExitStack() as stack:
        if not is_elsewhere(spec.options.get("address")):  # one Ray for all parts, or each waits
            stack.enter_context(ray_session(quiet=not output.ray_output))
        return AgentSearchResult(run.path, Rounds(spec, run, end, output).drive())


def _budgets(
    agents: Sequence[str],
    env: str,
    env_kwargs: Mapping[str, Any],
    budget: float | None,
    trial_time: float | None,
) -> dict[str, int]:
    """Return the env steps of a trial of each agent."""
    if trial_time is None:
        assert budget is not None
        return dict.fromkeys(agents, int(budget))
    foreign = [agent for agent in agents if ":" in agent]
    if foreign:
        raise UserError(f"how fast {foreign[0]} trains is not known before; give --budget STEPS.")
    return {agent: budget_in(trial_time, agent, env, env_kwargs) for agent in agents}
