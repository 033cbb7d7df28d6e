"""One training: `rltune train`, and what a trained agent can do."""
