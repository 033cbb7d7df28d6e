"""Which library is the faster one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from rltune.agents.machine import libraries
from rltune.agents.machine.libraries import OPERATIONS, LibrarySpeeds, Timing, measure_speeds


def test_the_faster_library_is_named_with_its_factor() -> None:
    timings = (
        Timing("products", (64, 64, 256), numpy=1e-5, torch=1e-5),
        Timing("products", (256, 256, 256), numpy=1e-4, torch=4e-4),
        Timing("tanh", (64, 256), numpy=3e-5, torch=1e-5),
        Timing("relu", (64, 256), numpy=1e-6, torch=1.05e-6),
    )
    speeds = LibrarySpeeds(timings, "OpenBLAS 0.3.31, SkylakeX", "MKL 2024.2, AVX512")
    assert speeds.factor("products") == pytest.approx(2)  # the shapes' geometric mean
    assert speeds.describe() == (
        "products NumPy 2.0 x, tanh PyTorch 3.0 x, relu equal "
        "(NumPy: OpenBLAS 0.3.31, SkylakeX; PyTorch: MKL 2024.2, AVX512)"
    )


def test_a_slow_library_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = np.matmul

    def slowly(*args: np.ndarray, out: np.ndarray) -> None:
        for _ in range(20):
            multiply(*args, out=out)

    monkeypatch.setattr(libraries.np, "matmul", slowly)
    speeds = measure_speeds()
    assert {timing.operation for timing in speeds.timings} == set(OPERATIONS)
    assert speeds.factor("products") < 0.3
    assert "products PyTorch" in speeds.describe()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names kernels of x86")
def test_kernels_that_the_user_chose_are_seen() -> None:
    code = "from rltune.agents.machine.libraries import *; print(numpy_kernels(), chosen_by_user())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPENBLAS_CORETYPE": "Nehalem"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "OpenBLAS" not in done.stdout:
        pytest.skip("NumPy's BLAS is another one")
    assert ", Nehalem " in done.stdout
    assert "{'OPENBLAS_CORETYPE': 'Nehalem'}" in done.stdout
