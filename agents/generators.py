"""Random generators of PyTorch: made from a seed, and restored from a checkpoint."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

CUDA_BYTES = 16  # of a state: seed and offset; the CPU's has thousands


def weight_generator(seed: int) -> torch.Generator:
    """Return the generator of initial weights: the same for a seed on every device.

    It is apart from the generator of the same seed that draws the noise.
    """
    state = np.random.SeedSequence((seed, 1)).generate_state(1)
    return torch.Generator().manual_seed(int(state[0]))


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Set the generator's state.

    That of another kind of device fits no other: the generator then stays as it is.
    """
    if generator.device.type == "cpu":
        elsewhere = len(state) == CUDA_BYTES
    else:
        elsewhere = len(state) != len(generator.get_state())
    if not elsewhere:
        generator.set_state(state.cpu())
