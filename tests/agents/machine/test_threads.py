"""Threads of PyTorch and of NumPy's BLAS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from rltune.agents import Agent
from rltune.agents.machine.threads import hold_threads, numpy_blas


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in numpy_blas().info()}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with numpy_blas().limit(limits=2):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has no threads to hold")
        yield
    torch.set_num_threads(before)


def test_both_libraries_are_held() -> None:
    hold_threads(1)
    assert torch.get_num_threads() == 1
    assert blas_threads() == {1}
    hold_threads(2)
    assert torch.get_num_threads() == 2
    assert blas_threads() == {2}


def test_an_agent_on_vectors_computes_with_one_thread() -> None:
    Agent("ppo", "CartPole-v1", total_timesteps=100).close()
    assert torch.get_num_threads() == 1
    assert blas_threads() == {1}
