"""Rate limiter of a table: keeps learning and collecting in step, as Reverb does.

Reverb: Cassirer et al. 2021, arXiv:2102.04736, section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RateLimiter:
    """Says when a table takes more items, and when it gives more.

    Args:
        samples_per_insert: how often each item is sampled, in the mean
        min_size: items that must be there before the first sample
        error_buffer: samples by which the ratio may be missed, on both sides; at least the samples
            that a single insert makes due, or nothing would ever go on

    Attributes:
        inserts: items so far
        samples: how many were sampled so far
    """

    samples_per_insert: float
    min_size: int
    error_buffer: float
    inserts: int = 0
    samples: int = 0

    def can_insert(self, n: int = 1) -> bool:
        """Whether ``n`` items may come: those that were there are sampled often enough."""
        inserts = self.inserts + n
        return inserts <= self.min_size or self._ahead(inserts, self.samples) <= self.error_buffer

    def can_sample(self, n: int = 1) -> bool:
        """Whether ``n`` items may be sampled: there are enough, and enough of them are new."""
        if self.inserts < self.min_size:
            return False
        return self._ahead(self.inserts, self.samples + n) >= -self.error_buffer

    def _ahead(self, inserts: int, samples: int) -> float:
        """Return the samples that are due, from ``min_size`` items on."""
        return (inserts - self.min_size) * self.samples_per_insert - samples
