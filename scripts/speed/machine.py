"""The machine: the processes' environment for a choice of BLAS, and what a result depends on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

BLAS = {
    "stock": "each library as it comes",
    "haswell": "OpenBLAS, which NumPy calls, with its AVX2 kernels",
    "intel": "MKL, which PyTorch calls, made to believe that the processor is Intel's",
}
PACKAGES = (
    *("rltune", "torch", "numpy", "gymnasium", "stable-baselines3", "sb3-contrib", "ray"),
    *("rl_zoo3", "optuna"),
)
# MKL asks this function of its own, through the table of shared symbols: ours is found first.
_INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def environment(blas: str, folder: Path) -> dict[str, str]:
    """Return the environment of a measured process: one thread, and the choice of BLAS.

    Args:
        blas: a key of `BLAS`
        folder: where a library may be compiled
    """
    found = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        found[name] = "1"
    if blas == "haswell":
        found["OPENBLAS_CORETYPE"] = "Haswell"
    if blas == "intel":
        found["LD_PRELOAD"] = str(_believer(folder))
    return found


def _believer(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("--blas intel compiles three words of C and needs cc")
    library = folder / "intel.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=_INTEL, text=True, check=True)
    return library


def pin(core: int | None) -> None:
    """Keep this process and its children on one core."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def processor() -> str:
    """Return the processor's model, and the widest vectors that it has."""
    file = Path("/proc/cpuinfo")
    text = file.read_text() if file.exists() else ""

    def field(name: str) -> str:
        found = re.search(rf"^{name}\s*: (.*)$", text, re.MULTILINE)
        return found.group(1) if found else "?"

    flags = field("flags").split()
    wide = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return f"{field('model name')}, family {field('cpu family')} model {field('model')}, {wide}"


def versions() -> dict[str, str]:
    """Return the versions of what is installed of the packages that count."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def kernels() -> dict[str, str]:
    """Return which kernels NumPy's and PyTorch's libraries chose in this process."""
    import numpy
    import torch
    from threadpoolctl import threadpool_info

    numpy.zeros((2, 2)) @ numpy.zeros((2, 2))
    openblas = [i["architecture"] for i in threadpool_info() if i["internal_api"] == "openblas"]
    return {
        "numpy": f"OpenBLAS {openblas[0]}" if openblas else "?",
        "torch": torch.backends.cpu.get_cpu_capability(),
    }
