"""Analysis of a search: its summary, its learning front, replays of what it recorded."""
