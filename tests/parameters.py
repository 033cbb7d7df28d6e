"""Parameters of tests of which only some run each time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick(some: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Mark all parameters but some as slow.

    Args:
        some: parameters that run each time
        every: parameters of the test: values, or tuples of several
    """

    def slow(value: Any) -> Any:
        values = value if isinstance(value, tuple) else (value,)
        return pytest.param(*values, marks=pytest.mark.slow)

    return [value if value in some else slow(value) for value in every]
