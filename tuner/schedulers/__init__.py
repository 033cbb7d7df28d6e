"""Schedulers: whether a trial goes on."""
