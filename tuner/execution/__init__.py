"""Execution: a search's jobs on Ray Tune, and the checkpoints between workers."""
