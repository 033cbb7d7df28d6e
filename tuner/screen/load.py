"""The load of this machine: cores, memory, GPUs, and the disk when little is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

EVERY = 2.0  # seconds between two measurements
GPU_EVERY = 5.0
LITTLE_DISK = 2e9  # bytes; below it the disk is worth a word
GPU_QUERY = (
    "nvidia-smi",
    "--query-gpu=utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


@dataclass(frozen=True)
class Load:
    """The cores, memory, GPUs and disk in use.

    Attributes:
        cores, memory: of this process and all that it has started; bytes
        gpus: (part of the time in use, memory in use, memory) of each GPU, bytes, by all users
        disk_left: bytes where the run is written; None: enough
    """

    cores: float
    memory: float
    gpus: tuple[tuple[float, float, float], ...] = ()
    disk_left: float | None = None


class LoadMeter:
    """Measures now and then; what cannot be known is left out silently.

    Args:
        folder: of the run
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = folder
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        self.memory = _machine_memory()
        self.every = EVERY
        self._ticks: dict[int, int] = {}
        self._time = 0.0
        self._last: Load | None = None
        self._gpus = Gpus()

    def read(self) -> Load | None:
        """Return the load, measured anew every two seconds; None while it is unknown."""
        now = time.time()
        if now - self._time >= self.every:
            try:
                ticks, pages = _processes()
            except OSError:
                return None
            used = sum(value - self._ticks.get(pid, value) for pid, value in ticks.items())
            cores = used / os.sysconf("SC_CLK_TCK") / (now - self._time)
            if self._ticks:
                memory = float(pages * os.sysconf("SC_PAGE_SIZE"))
                self._last = Load(cores, memory, self._gpus.read(), self._disk_left())
            self._ticks, self._time = ticks, now
        return self._last

    def _disk_left(self) -> float | None:
        try:
            free = shutil.disk_usage(self.folder).free if self.folder else LITTLE_DISK
        except OSError:
            return None
        return free if free < LITTLE_DISK else None


class Gpus:
    """The answers of nvidia-smi, where there is one; it is not waited for."""

    def __init__(self) -> None:
        self._program = shutil.which(GPU_QUERY[0])
        self._asked: subprocess.Popen[str] | None = None
        self._due = 0.0
        self._last: tuple[tuple[float, float, float], ...] = ()

    def read(self) -> tuple[tuple[float, float, float], ...]:
        """Return the load of each GPU by the last answer; empty without one."""
        if self._program is None:
            return ()
        if self._asked is not None and self._asked.poll() is not None:
            self._last = _parsed(self._asked.communicate()[0])
            self._asked = None
        if self._asked is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + GPU_EVERY
            try:
                self._asked = subprocess.Popen(
                    [self._program, *GPU_QUERY[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            except OSError:
                self._program = None
        return self._last


def _parsed(answer: str) -> tuple[tuple[float, float, float], ...]:
    """Read "43, 3211, 81559" a line; a GPU that does not say everything ("[N/A]") is left out."""
    gpus = []
    for line in answer.splitlines():
        try:
            busy, used, total = map(float, line.split(","))
        except ValueError:
            continue
        gpus.append((busy / 100, used * 2**20, total * 2**20))
    return tuple(gpus)


def _machine_memory() -> float:
    """Return the bytes of memory that this machine, or this container, has; 0: unknown."""
    try:
        memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError):
        return 0.0
    try:
        return min(memory, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # there is none, or it says "max"
        return memory


def _processes() -> tuple[dict[int, int], int]:
    """Return the ticks of this process and its descendants so far, and the pages they hold."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    # The name in brackets may hold spaces: count from the bracket's end.
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(fields[1])
            ticks[int(name)] = int(fields[11]) + int(fields[12])
    family = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    pages = 0
    for pid in family:
        try:
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        except OSError:
            continue
        pages += int(resident) - int(shared)
    return {pid: ticks[pid] for pid in family if pid in ticks}, pages
