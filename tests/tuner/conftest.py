"""Fixtures of several tests of the tuner."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from serial_jobs import run_here

HERE = Path(__file__).parent


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def toy_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Ray for all searches of a module: starting it costs seconds."""
    from rltune.cluster.session import ray_session

    # Set before Ray starts, so that the workers have it.
    os.environ["TOY_FOLDER"] = str(tmp_path_factory.mktemp("toy"))
    with ray_session():
        yield


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch, toy: None) -> None:
    """Run the jobs of searches in this process, one after the other."""
    run_here(monkeypatch)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the toy agent importable, here and in the workers."""
    monkeypatch.chdir(HERE)
    monkeypatch.syspath_prepend(str(HERE))
