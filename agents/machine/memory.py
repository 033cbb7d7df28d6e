"""Memory of this process, and free memory of the machine or the container."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """Return the bytes of memory that this process has had at most."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def free_memory() -> int | None:
    """Return the free bytes of the machine or the container; None: unknown."""
    found = []
    meminfo = _pairs("/proc/meminfo")
    if "MemAvailable:" in meminfo:
        found.append(1024 * meminfo["MemAvailable:"])
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        # Files that the system only keeps for speed give way.
        found.append(limit - used + _pairs(group / "memory.stat").get("inactive_file", 0))
    except (OSError, ValueError):  # no container, or one without a limit
        pass
    return max(0, min(found)) if found else None


def _pairs(path: str | Path) -> dict[str, int]:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in map(str.split, lines) if len(words) > 1}
