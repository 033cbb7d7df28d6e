"""Demonstrations: recorded episodes that agents can learn from."""
