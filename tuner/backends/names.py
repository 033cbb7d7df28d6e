"""Names of agents and environments, and words on what some can't be asked."""

from __future__ import annotations

from rltune.agents.errors import UserError
from rltune.agents.registry import name_of

RLLIB = "rllib:"
# Trainings of the user's own: a function ``function:module:name``, and a script ``script:FILE``.
FUNCTION = "function:"
IMPORTED = f"{FUNCTION}imported:"  # of a search that others have run
SCRIPT = "script:"
METRIC_NAME = "rltune_metric"  # among env_kwargs: what the reported value is called
SECTION = "rltune_script"  # among env_kwargs: how a script is told and read
SB3 = "sb3:"
SBX = "sbx:"
OTHERS = (RLLIB, SB3, SBX)  # libraries whose algorithms can be agents
EXPLORES = "RLlib explores on its own"
NO_WEIGHTS = "can't start from weights: only rltune's own agents can; leave out --weights"
# Of a configuration, what says where recorded data are and in which form: no hyperparameters.
RECORDED = ("input_", "actions_in_input_normalized")


def spec_of(thing: str | type) -> str:
    """Return the name of a class or function: "ppo" of an agent of ours, else "module:Name"."""
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
    if "<" in thing.__qualname__:
        raise UserError(
            f"{thing.__name__} is defined inside a function, where the workers cannot import it; "
            "move it to the top of its module."
        )
    return name_of(thing)


def is_name_of(name: str, agent: str) -> bool:
    """Whether a name, such as that in a space, means this agent: a function needs no prefix."""
    return agent in (name, FUNCTION + name)
