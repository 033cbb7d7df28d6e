"""Memories: rollouts, and replay of transitions, segments and sequences."""
