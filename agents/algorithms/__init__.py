"""The algorithms, each with its loss and its configuration."""
