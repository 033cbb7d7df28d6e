"""Data parallelism: updates that several processes, or GPUs, compute together."""
