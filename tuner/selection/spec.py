"""The specification of a search over several agents, as its run.yaml holds it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rltune.agents.envs.suite import is_suite
from rltune.agents.errors import UserError
from rltune.common.formats import count, duration, plural
from rltune.common.reading import from_dict
from rltune.selection import rounds

# Options that a search over several agents can't pass on, and the reason.
REFUSED = {
    "space": "each agent has a space of its own",
    "dimensions": "each agent has a space of its own",
    "warm_start": "earlier runs are of one agent",
    "against": "agents are compared by one objective",
    "weights": "networks are of one agent",
    "tournament": "agents are compared in tournaments",
}


@dataclass(frozen=True, kw_only=True)
class AgentsSpec:
    """A resolved search over several agents.

    Attributes:
        agents: their names
        left_out: the reasons why others that were asked for can't act in the environment
        env: gymnasium id or "module:Class"
        budgets: env steps of a trial, by agent
        trial_time: seconds that the budgets stand for; None: they are the same for all
        trials: both leading agents together get twice as many; None: as many as fit
        time_limit: seconds for everything; None: no limit
        options: of every agent's search
    """

    agents: list[str]
    left_out: dict[str, str]
    env: str
    budgets: dict[str, int]
    trial_time: float | None
    trials: int | None
    time_limit: float | None
    options: dict[str, Any]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AgentsSpec:
        """Read the specification back from run.yaml."""
        return from_dict(cls, data, "the spec in run.yaml")

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return asdict(self)

    @property
    def sizes(self) -> list[int]:
        """The number of agents in each round."""
        return rounds.sizes(len(self.agents))

    def plan(self) -> list[str]:
        """Return sentences on what a run does."""
        equal = "the same for all"
        if self.trial_time is not None:
            equal = f"what the defaults train in {self.trial_time:g} s"
        each = ", ".join(f"{agent} {count(steps)}" for agent, steps in self.budgets.items())
        lines = [f"{agent} is left out: {why}" for agent, why in self.left_out.items()]
        lines.append(f"Env steps of a trial ({equal}): {each}.")
        lines.append(f"Rounds: {', then '.join(plural(size, 'agent') for size in self.sizes)}.")
        if self.trials is not None:
            until = rounds.trials_until(len(self.agents), self.trials)
            lines.append(f"Trials of an agent by then: {', '.join(map(str, until))}.")
        if self.time_limit is not None:
            n = len(self.agents)
            first = rounds.seconds_of(self.time_limit, n, n, len(self.sizes) - 1)
            lines.append(f"Each agent has {duration(first)} in the first round.")
        return lines


def check_options(
    env: str, options: Mapping[str, Any], storage_path: str | os.PathLike[str]
) -> None:
    """Raise UserError for what works with one agent alone."""
    from rltune.schedulers.registry import is_population

    for name, why in REFUSED.items():
        if name in options and options[name] not in (None, [], (), True):
            flag = {"warm_start": "from", "tournament": "no-tournament"}.get(name, name)
            raise UserError(f"--{flag} is for a search of one agent: {why}; leave it out.")
    if is_population(options.get("scheduler")):
        raise UserError(
            f"--scheduler {options['scheduler']} trains a population of one agent; take asha."
        )
    if is_suite(env):
        raise UserError(f"--env {env}: agents are compared in one environment; name one.")
    if "://" in os.fspath(storage_path):
        raise UserError("--storage-path: a search over several agents needs a local folder.")
