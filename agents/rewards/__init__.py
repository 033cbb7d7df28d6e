"""Reward signals: rewards beside the environment's own, for what is new or was demonstrated."""
