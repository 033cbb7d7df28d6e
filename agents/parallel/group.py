"""Process groups of torch.distributed: the sums of tensors over all learners."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rltune.agents.parallel.channel import LostError
from torch import Tensor

MEETING = timedelta(seconds=60)  # until all learners, which are there, know each other
PATIENCE = timedelta(minutes=10)  # with a learner that is alive and does not answer


class Group:
    """The learners of a training, as one of them sees them: gloo on CPUs, NCCL on GPUs.

    Nothing of it is global: a process may have several trainings, one after the other.

    Args:
        folder: where they meet
        rank: the number of this one, from 0 on
        n: how many there are
        device: on which it learns

    Raises:
        LostError: the others did not come.
    """

    def __init__(self, folder: Path, rank: int, n: int, device: torch.device) -> None:
        library: Any = dist  # its stubs leave out what it exports
        store = library.FileStore(str(folder / "learners"), n)
        store.set_timeout(MEETING)
        gloo = library.ProcessGroupGloo._Options()
        # The name of a machine may lead out of it, or nowhere.
        gloo._devices = [library.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        gloo._timeout = PATIENCE
        self._nccl: Any = None
        try:
            own = library.PrefixStore("gloo", store)
            self._gloo = library.ProcessGroupGloo(own, rank, n, gloo)
            if device.type == "cuda":
                nccl = library.ProcessGroupNCCL.Options()
                nccl._timeout = PATIENCE
                own = library.PrefixStore("nccl", store)
                self._nccl = library.ProcessGroupNCCL(own, rank, n, nccl)
        except RuntimeError as error:
            raise LostError(str(error)) from error

    def add(self, tensor: Tensor) -> None:
        """Add a tensor up over all learners, in place.

        Raises:
            LostError: one of them has ended.
        """
        group = self._nccl if self._nccl is not None and tensor.is_cuda else self._gloo
        try:
            group.allreduce([tensor]).wait()
        except RuntimeError as error:
            raise LostError(str(error)) from error
