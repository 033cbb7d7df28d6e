"""Names of agents and environments, and words on what some can't be asked."""

from __future__ import annotations

from rltune.agents.errors import UserError
from rltune.agents.registry import name_of

RLLIB = "rllib:"
SB3 = "sb3:"
SBX = "sbx:"
OTHERS = (RLLIB, SB3, SBX)  # libraries whose algorithms can be agents
EXPLORES = "RLlib explores on its own"
NO_WEIGHTS = "can't start from weights: only rltune's own agents can; leave out --weights"
# Of a configuration, what says where recorded data are and in which form: no hyperparameters.
RECORDED = ("input_", "actions_in_input_normalized")


def spec_of(thing: str | type) -> str:
    """Return the name of a class: "ppo" of an agent of ours, else "module:Class"."""
    if isinstance(thing, str):
        return thing
    if not hasattr(thing, "__qualname__"):
        known = getattr(getattr(thing, "spec", None), "id", None)
        raise UserError(
            f"{thing!r:.80} is one object, but every trial makes its own: give "
            + (f"the id {known!r}." if known else "an id or a name, 'module:Class', or a class.")
        )
    if thing.__module__ == "__main__":
        raise UserError(
            f"{thing.__qualname__} is defined in the script that is running, where the workers "
            "cannot import it; put it into a module of its own."
        )
    return name_of(thing)
