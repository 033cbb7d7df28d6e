"""Backends: what can be trained (rltune's own agents, RLlib's and SB3's, several environments at once)."""
