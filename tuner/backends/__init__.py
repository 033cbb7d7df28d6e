"""Backends: what can be trained (rltune's own agents, RLlib's, several environments at once)."""
