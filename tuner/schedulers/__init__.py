"""Schedulers: early stopping of trials, and population based training."""
