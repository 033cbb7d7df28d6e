"""Large tensors come in huge pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource
import rltune.agents, torch
torch.empty(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.zeros(8, 2**20)  # 32 MB: 8,192 pages of 4 KB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
def test_large_tensors_take_few_page_faults() -> None:
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[madvise]" not in enabled.read_text():
        pytest.skip("this system does not let a program choose the size of its pages")
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    argv = [sys.executable, "-c", FAULTS]
    done = subprocess.run(argv, env=environment, capture_output=True, check=True)
    assert int(done.stdout) < 8192
