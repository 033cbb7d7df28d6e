"""Samplers: where the next configuration comes from."""
