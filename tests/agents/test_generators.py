from __future__ import annotations

import pytest
import torch
from rltune.agents.generators import CUDA_BYTES, restore_generator


def test_a_state_is_restored() -> None:
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    restore_generator(other, one.get_state())
    assert torch.equal(torch.rand(3, generator=other), torch.rand(3, generator=one))


def test_the_state_of_a_gpu_is_left_out_and_a_damaged_one_refused() -> None:
    generator = torch.Generator().manual_seed(1)
    restore_generator(generator, torch.zeros(CUDA_BYTES, dtype=torch.uint8))
    expected = torch.rand(3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.rand(3, generator=generator), expected)
    with pytest.raises(RuntimeError):
        restore_generator(generator, torch.zeros(15, dtype=torch.uint8))
