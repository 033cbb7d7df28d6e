"""The threads of the numerical libraries in this process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np  # noqa: F401  # its BLAS must be loaded before `numpy_blas` looks for it
import torch

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def hold_threads(n: int) -> None:
    """Let PyTorch and NumPy's BLAS compute with ``n`` threads in this process from now on.

    NumPy does not heed `torch.set_num_threads`: it takes all cores even for small products.
    """
    torch.set_num_threads(n)
    numpy_blas().limit(limits=n)


@cache
def numpy_blas() -> ThreadpoolController:
    """Return the control of the BLAS that is loaded; finding it takes milliseconds, once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
