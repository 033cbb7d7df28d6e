"""The answer of a search: finalists, the tournament on test seeds, the ranking and its sentences."""
