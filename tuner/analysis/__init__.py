"""Analysis of a search: its summary, its learning curves' front, and replays of what it recorded."""
