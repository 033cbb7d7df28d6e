"""Backends: what can be trained: rltune's own agents, others', several environments at once."""
