"""Fixtures of all tests."""

from __future__ import annotations

import signal

import pytest

# A shell's background jobs ignore SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The longest files, which start Ray: two of them at once, and no core idles at the end.
LONGEST = ("test_search_faults.py", "test_search.py", "test_documents.py", "test_report.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
