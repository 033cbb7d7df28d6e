"""RLlib's algorithms as a backend."""
