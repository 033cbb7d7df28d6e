"""A package of the user's own that happens to be called `agents`; rltune's is rltune.agents."""
