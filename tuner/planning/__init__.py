"""Planning: what a search will take, and what is left of its time."""
