"""Rate limiters, against what Reverb's do."""

from __future__ import annotations

from rltune.agents.distributed.limiter import RateLimiter


def test_inserts_wait_for_samples_and_samples_for_inserts() -> None:
    limiter = RateLimiter(samples_per_insert=2, min_size=10, error_buffer=4)
    assert not limiter.can_sample()
    while limiter.can_insert():
        limiter.inserts += 1
    assert limiter.inserts == 12  # two more than the least: 4 samples are due
    while limiter.can_sample():
        limiter.samples += 1
    assert limiter.samples == 8  # 4 that are due, and 4 ahead
    assert limiter.can_insert()


def test_the_ratio_holds_in_the_long_run() -> None:
    limiter = RateLimiter(samples_per_insert=8, min_size=100, error_buffer=50)
    for _ in range(20_000):
        if limiter.can_insert(3):
            limiter.inserts += 3
        if limiter.can_sample(32):
            limiter.samples += 32
    assert abs((limiter.inserts - 100) * 8 - limiter.samples) <= 50
