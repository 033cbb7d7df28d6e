"""Puts trainings of agents, searches and Stable-Baselines3 logs side by side."""
