"""What `benchmark_actors.py` measures, and a simulation of what it can't: many actors, nodes."""
