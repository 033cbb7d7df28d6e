"""Which library computes faster on this machine, NumPy or PyTorch, and with which kernels.

Each brings a BLAS, and each BLAS picks kernels by the processor's name and features: it may miss
the best ones. So their speed is measured, not looked up.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from rltune.agents.machine.threads import hold_threads, numpy_blas

PRODUCTS = ((64, 64, 256), (256, 256, 256), (400, 300, 256))  # of small and usual networks
ELEMENTS = ((64, 256), (256, 256))
OPERATIONS = ("products", "tanh", "relu")
SLICES = 5  # of each library, in turn; the median counts
SLICE = 0.003  # seconds
EQUAL = 1.1  # factors below it are noise
# Variables by which a user may have chosen kernels for these libraries.
CHOOSE_KERNELS = (
    *("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"),
    *("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY"),
)


@dataclass(frozen=True)
class Timing:
    """CPU seconds of one call on one thread."""

    operation: str  # of `OPERATIONS`
    shape: tuple[int, ...]
    numpy: float
    torch: float


@dataclass(frozen=True)
class LibrarySpeeds:
    """What was measured, and the kernels that were taken."""

    timings: tuple[Timing, ...]
    numpy_kernels: str  # such as "OpenBLAS 0.3.31, Haswell"
    torch_kernels: str  # such as "MKL 2024.2, AVX2"

    def factor(self, operation: str) -> float:
        """Return how many times as fast as PyTorch NumPy is: the shapes' geometric mean."""
        ratios = [t.torch / t.numpy for t in self.timings if t.operation == operation]
        return math.prod(ratios) ** (1 / len(ratios))

    def describe(self) -> str:
        """Return which library is faster at what, by which factor, and both libraries' kernels."""
        found = ", ".join(f"{name} {_faster(self.factor(name))}" for name in OPERATIONS)
        return f"{found} (NumPy: {self.numpy_kernels}; PyTorch: {self.torch_kernels})"


def _faster(factor: float) -> str:
    """Return "NumPy 2.1 x", "PyTorch 1.3 x" or "equal"."""
    name, factor = ("NumPy", factor) if factor >= 1 else ("PyTorch", 1 / factor)
    return f"{name} {factor:.1f} x" if factor >= EQUAL else "equal"


def measure_speeds() -> LibrarySpeeds:
    """Measure both libraries on one thread, some tenths of a second; one thread is held after."""
    hold_threads(1)
    timings = [
        Timing("products", (m, k, n), *_in_turn(_product_calls(m, k, n))) for m, k, n in PRODUCTS
    ]
    for rows, columns in ELEMENTS:
        tanh, relu = _element_calls(rows, columns)
        timings.append(Timing("tanh", (rows, columns), *_in_turn(tanh)))
        timings.append(Timing("relu", (rows, columns), *_in_turn(relu)))
    return LibrarySpeeds(tuple(timings), numpy_kernels(), torch_kernels())


Calls = tuple[Callable[[], object], Callable[[], object]]  # the same with NumPy and with PyTorch


def _product_calls(m: int, k: int, n: int) -> Calls:
    a, b, out = _numbers(m, k), _numbers(k, n), np.empty((m, n), np.float32)
    tensors = [torch.from_numpy(array) for array in (a, b, out)]
    return (
        lambda: np.matmul(a, b, out=out),
        lambda: torch.mm(tensors[0], tensors[1], out=tensors[2]),
    )


def _element_calls(rows: int, columns: int) -> tuple[Calls, Calls]:
    """Return tanh and relu, each in the library's fastest form."""
    x, out, zeros = _numbers(rows, columns), *np.zeros((2, rows, columns), np.float32)
    x_tensor, out_tensor = torch.from_numpy(x), torch.from_numpy(out)
    return (
        (lambda: np.tanh(x, out=out), lambda: torch.tanh(x_tensor, out=out_tensor)),
        (
            lambda: np.maximum(x, zeros, out=out),
            lambda: torch.clamp_min(x_tensor, 0, out=out_tensor),
        ),
    )


def _numbers(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _in_turn(calls: Calls) -> Sequence[float]:
    """Return the CPU seconds of one call, of each of both."""
    counts = [_count_for_a_slice(call) for call in calls]
    slices: tuple[list[float], list[float]] = ([], [])
    for _ in range(SLICES):
        for call, count, found in zip(calls, counts, slices, strict=True):
            found.append(_cpu_seconds(call, count) / count)
    return [median(found) for found in slices]


def _count_for_a_slice(call: Callable[[], object]) -> int:
    call()  # the first one loads and prepares
    count = 1
    while (seconds := _cpu_seconds(call, count)) < SLICE / 2:
        count *= 2
    return max(1, round(count * SLICE / seconds))


def _cpu_seconds(call: Callable[[], object], count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - begun


def numpy_kernels() -> str:
    """Return NumPy's BLAS and the kernels it took, such as "OpenBLAS 0.3.31, Haswell"."""
    for library in numpy_blas().info():
        name = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}.get(
            library["internal_api"], library["internal_api"]
        )
        version = ".".join(str(library["version"] or "").split(".")[:3])
        kernels = str(library.get("architecture") or "")
        return ", ".join(part for part in (f"{name} {version}".strip(), kernels) if part)
    return "unknown BLAS"  # such as Apple's Accelerate, which nothing asks


def torch_kernels() -> str:
    """Return PyTorch's BLAS, and the instructions its own kernels use: "MKL 2024.2, AVX2"."""
    found = re.search(r"Math Kernel Library Version (\S+?)-Product", torch.__config__.show())
    named = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    blas = f"MKL {found[1]}" if found else named[1] if named else "unknown BLAS"
    return f"{blas}, {torch.backends.cpu.get_cpu_capability()}"


def chosen_by_user() -> dict[str, str]:
    """Return the environment variables that are set and choose kernels for the libraries."""
    return {name: os.environ[name] for name in CHOOSE_KERNELS if name in os.environ}
