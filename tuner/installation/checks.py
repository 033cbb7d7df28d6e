"""The checks of `rltune doctor`: each says one thing about the installation or the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from rltune.agents.machine.memory import free_memory
from rltune.common.formats import plural
from rltune.common.provenance import PACKAGES, machine, versions
from rltune.common.version import __version__
from rltune.runs.directory import STORAGE

OK, NOTE, PROBLEM = "ok", "note", "problem"
LITTLE_MEMORY = 2e9  # bytes; a worker takes about a quarter
LITTLE_DISK = 2e9
FOR_DEVELOPERS = ("test", "services")  # extras that users don't need
ENV_STEPS = 2048  # of the training that is tried
# Variables that set PyTorch's threads; Ray sets the second one to a trial's cores, if nobody has.
THREADS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Finding:
    """What a check found: a problem has to be mended before rltune works."""

    name: str
    state: str  # "ok", "note" or "problem"
    text: str


def findings() -> Iterator[Finding]:
    """Yield what each check finds, the quick ones first; an exception in one is a problem."""
    checks: dict[str, Callable[[], tuple[str, str]]] = {
        "python": _python,
        "packages": _packages,
        "extras": _extras,
        "cores": _cores,
        "memory": _memory,
        "disk": _disk,
        "gpus": _gpus,
        "libraries": _libraries,
        "training": _training,
    }
    for name, check in checks.items():
        try:
            state, text = check()
        except Exception as error:
            said = (str(error).splitlines() or [""])[0]
            state, text = PROBLEM, f"{type(error).__name__}: {said}"
        yield Finding(name, state, text)


def _python() -> tuple[str, str]:
    return OK, f"{platform.python_version()}, rltune {__version__}"


def _packages() -> tuple[str, str]:
    """Check the versions of all packages that rltune needs."""
    lacking = [text for need in _required("") if (text := _lack(need))]
    if lacking:
        return PROBLEM, f"{', '.join(lacking)}; install rltune again: pip install rltune"
    known = versions()
    names = [name for name in PACKAGES if name in known and name != "rltune"]
    return OK, ", ".join(f"{name} {known[name]}" for name in names)


def _extras() -> tuple[str, str]:
    """Name the optional parts that are there, and how to get the others."""
    names = importlib.metadata.metadata("rltune").get_all("Provides-Extra") or []
    extras = sorted(set(names) - set(FOR_DEVELOPERS))
    there = [name for name in extras if not any(map(_lack, _required(name)))]
    absent = [name for name in extras if name not in there]
    text = f"installed: {', '.join(there) or 'none'}"
    if absent:
        text += f'; not: {", ".join(absent)} (pip install "rltune[{absent[0]}]")'
    return OK, text


def _required(extra: str) -> Iterable[Requirement]:
    """Return what an extra adds to rltune's requirements; what rltune itself needs, for ""."""
    for text in importlib.metadata.requires("rltune") or []:
        need = Requirement(text)
        always = need.marker is None or need.marker.evaluate({"extra": ""})
        wanted = need.marker is None or need.marker.evaluate({"extra": extra})
        if wanted and always == (not extra):
            yield need


def _lack(need: Requirement) -> str:
    """Return what is wrong with the installed version; "" if nothing is."""
    try:
        found = importlib.metadata.version(need.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{need.name} is missing"
    if need.specifier.contains(found, prereleases=True):
        return ""
    return f"{need.name} is {found}, but must be {need.specifier}"


def _cores() -> tuple[str, str]:
    """Check how many cores there are, and whether variables let trials take other threads."""
    cores = int(str(machine()["cores"]))
    text = f"{plural(cores, 'core')}, so {plural(cores, 'trial')} at once by default"
    chosen = {name: os.environ[name] for name in THREADS if os.environ.get(name, "1") != "1"}
    if not chosen:
        return OK, f"{text}; a trial on vectors computes with one thread"
    told = " and ".join(f"{name}={value}" for name, value in chosen.items())
    return NOTE, f"{text}; {told}: a trial on images takes so many threads, not those of its cores"


def _memory() -> tuple[str, str]:
    free, whole = free_memory(), float(str(machine()["memory_gib"]))
    if free is None:
        return OK, f"{whole:.1f} GiB"
    text = f"{free / 2**30:.1f} GiB free of {whole:.1f}"
    return (NOTE, f"{text}: little for Ray and workers") if free < LITTLE_MEMORY else (OK, text)


def _disk() -> tuple[str, str]:
    """Check the folder that runs are written to, or the one that it will be made in."""
    if "://" in STORAGE:
        return OK, f"runs go to {STORAGE}"
    folder = Path(STORAGE).absolute()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return PROBLEM, f"{folder} can't be written; choose another folder with RLTUNE_STORAGE"
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free in {folder}"
    return (NOTE, f"{text}: little for checkpoints") if free < LITTLE_DISK else (OK, text)


def _gpus() -> tuple[str, str]:
    import torch

    there = [str(name) for name in machine()["gpus"]]  # type: ignore[attr-defined]
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable:
        return OK, ", ".join(torch.cuda.get_device_name(index) for index in range(usable))
    if there:
        return NOTE, f"{', '.join(there)}, but PyTorch {torch.__version__} can't use it"
    return OK, "none; images are trained on the CPU, too"


def _libraries() -> tuple[str, str]:
    """Measure which library is faster, and name variables by which the user chose kernels."""
    from rltune.agents.machine.libraries import chosen_by_user, measure_speeds

    text = measure_speeds().describe()
    if chosen := chosen_by_user():
        told = ", ".join(f"{name}={value}" for name, value in chosen.items())
        return NOTE, f"{text}; {told} chooses kernels: compare without it"
    return OK, text


def _training() -> tuple[str, str]:
    """Train for a second or two."""
    from rltune.agents.loop.agent import Agent

    agent = Agent("ppo", "CartPole-v1", total_timesteps=ENV_STEPS)
    begun = time.perf_counter()
    agent.learn(ENV_STEPS)
    agent.close()
    speed = ENV_STEPS / (time.perf_counter() - begun)
    return OK, f"ppo on CartPole-v1: {speed:,.0f} env steps a second on one core"
