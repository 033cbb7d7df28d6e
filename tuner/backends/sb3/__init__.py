"""Stable-Baselines3's, sb3-contrib's and SBX's algorithms as agents: ``sb3:PPO``, ``sbx:SAC``."""
