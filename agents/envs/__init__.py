"""Environments: made by name, wrapped, masked, and stepped as one vector."""
