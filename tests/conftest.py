"""What all tests need."""

from __future__ import annotations

import signal

# A shell's background jobs ignore SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
