"""Parts of `benchmark_speed.py`."""
