"""Names of agents: which are ours, RLlib's or the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

RLLIB = "rllib:"
EXPLORES = "RLlib explores on its own"
NO_WEIGHTS = "can't start from weights: only rltune's own agents can; leave out --weights"
# Of a configuration, what says where recorded data are and in which form: no hyperparameters.
RECORDED = ("input_", "actions_in_input_normalized")


def is_own(agent: str) -> bool:
    """Whether an agent is ``module:Class`` of the user's own."""
    return ":" in agent and not agent.startswith(RLLIB)
