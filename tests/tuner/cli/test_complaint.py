"""Errors outside of rltune give one true sentence: user code, the output, the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rltune.cli import main

ENVS = """
import sys, time
import gymnasium
import numpy as np
from gymnasium import spaces

class Env(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    reward = 1.0
    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), self.reward, self.steps >= 5, False, {}

class NoFile(Env):
    def __init__(self): open("/nowhere/level")
class NotAllowed(Env):
    def __init__(self): raise PermissionError(13, "no", "/level")
class Exits(Env):
    def __init__(self): sys.exit("no display")
class BadReset(Env):
    def reset(self, **options): raise KeyError("level")
class BadStep(Env):
    def step(self, action): return [][self.steps]
class ExitsLater(Env):
    def step(self, action): sys.exit(0)
class NoReward(Env):
    reward = None
class NaNReward(Env):
    reward = float("nan")
class Slow(Env):
    def step(self, action):
        open("stepping", "w").close()
        time.sleep(1000)
"""
TRAIN = "train ppo -n 60 --n-envs 1 --n-steps 512 --wandb off --plain --env".split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "faulty_envs.py").write_text(ENVS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "faulty_envs", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("NoFile", "line 19: FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/l"),
        ("NotAllowed", "line 21: PermissionError"),
        ("Exits", "line 23: sys.exit('no display') was called"),
        ("BadReset", "line 25: KeyError: 'level'"),
        ("BadStep", "line 27: IndexError: list index out of range"),
        ("ExitsLater", "line 29: sys.exit(0) was called"),
        ("NoReward", "environment 'faulty_envs:NoReward': step() gave a reward of NaN or None"),
        ("NaNReward", "environment 'faulty_envs:NaNReward': step() gave a reward of NaN or None"),
    ],
)
def test_a_faulty_environment_is_one_sentence_with_its_place(
    env: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, f"faulty_envs:{env}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rltune: ")
    assert words in said
    if "line" in words:
        assert said.startswith("rltune: faulty_envs.py, line ")
        assert said.endswith("; --traceback shows all of it.\n")
    assert said.count("\n") == 1


def test_the_traceback_is_there_for_whoever_asks(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "faulty_envs:BadReset", "--traceback"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert "backends.py" in said
    last = said.splitlines()[-1]
    assert last.startswith("rltune: faulty_envs.py, line 25: KeyError")
    assert "--traceback" not in last


def test_a_fault_of_rltune_itself_is_not_passed_off_as_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rltune.runs.cloud.fetch", int)
    with pytest.raises(TypeError):
        main(["fetch", "s3://bucket/run"])


def test_control_c_does_not_wait_for_a_step_that_never_ends(folder: Path) -> None:
    command = [sys.executable, "-m", "rltune", *TRAIN, "faulty_envs:Slow", "--name", "slow"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not (folder / "stepping").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - asked < 20  # 5 s on a machine that does nothing else
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Stopped at 0 env steps" in out
    assert "rltune resume runs/slow" in out
    assert "last.pt" not in out


def rltune(
    *words: str, cwd: Path, stdout: int, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rltune", *words],
        cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip


def test_an_output_that_takes_nothing_is_blamed_itself(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = rltune("spaces", cwd=tmp_path, stdout=full.fileno())
    assert done.returncode == 2
    assert done.stderr == "rltune: standard output can't be written: the disk is full.\n"


def test_a_folder_that_has_gone_is_said(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = 'cd gone && rmdir ../gone && "$0" -m rltune show latest'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "rltune: the folder that you are in is gone; cd to another one.\n"
