"""The answer of a search: finalists, the tournament, the ranking and its sentences."""
