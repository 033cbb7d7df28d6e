"""Exports: a configuration for rltune, Stable-Baselines3, CleanRL and RLlib."""
