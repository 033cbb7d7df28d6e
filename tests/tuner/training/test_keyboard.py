"""Recording by keyboard: in a window without a display, and in a real one on a virtual display."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from rltune.agents.demonstrations.files import read
from rltune.agents.errors import UserError
from rltune.training import keyboard

pygame = pytest.importorskip("pygame")
LEFT, RIGHT = pygame.K_LEFT, pygame.K_RIGHT


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(keyboard, "has_display", lambda: True)
    pygame.display.init()


def pressing(monkeypatch: pytest.MonkeyPatch, *events: tuple[int, int]) -> None:
    """Hand out an event with each step; the last one is repeated."""
    coming: Iterator[tuple[int, int]] = iter(events)
    last = [events[0]]

    def get() -> list[object]:
        last[0] = next(coming, last[0])
        kind, key = last[0]
        return [pygame.event.Event(kind, key=key)]

    monkeypatch.setattr(pygame.event, "get", get)


def test_keys_are_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pressing(monkeypatch, (pygame.KEYDOWN, RIGHT))
    file = tmp_path / "demos.parquet"
    found = keyboard.record("CartPole-v1", file, episodes=2, fps=1e6, seed=3)
    assert [len(episode) for episode in read(file).episodes] == [len(e) for e in found.episodes]
    assert read(file).source == "a person"
    env = gymnasium.make("CartPole-v1")
    for episode in read(file).episodes:
        assert set(episode.actions.tolist()) == {1}
        assert episode.terminated
        assert episode.obs.shape == (len(episode) + 1, *env.observation_space.shape)


def test_the_environment_waits_where_no_key_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = [(pygame.KEYUP, LEFT)] * 30
    pressing(monkeypatch, *nothing, (pygame.KEYDOWN, LEFT))
    found = keyboard.record("CartPole-v1", tmp_path / "demos", episodes=1, fps=1e6)
    assert set(found.episodes[0].actions.tolist()) == {0}
    pressing(monkeypatch, (pygame.KEYUP, LEFT))
    limit = {"max_episode_steps": 20}
    idle = keyboard.record("MountainCar-v0", tmp_path / "m", episodes=1, fps=1e6, env_kwargs=limit)
    assert idle.episodes[0].actions.tolist() == [1] * 20
    assert not idle.episodes[0].terminated


def test_escape_keeps_the_episodes_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [(pygame.KEYDOWN, RIGHT)] * 12 + [(pygame.KEYDOWN, pygame.K_ESCAPE)]
    pressing(monkeypatch, *ends)
    found = keyboard.record("CartPole-v1", tmp_path / "demos", episodes=5, fps=1e6)
    assert len(found.episodes) == 1
    pressing(monkeypatch, (pygame.KEYDOWN, pygame.K_ESCAPE))
    with pytest.raises(UserError, match="no episode has ended"):
        keyboard.record("CartPole-v1", tmp_path / "nothing", fps=1e6)
    assert not (tmp_path / "nothing").exists()


def test_keys_together() -> None:
    keys = keyboard.find_keys(pygame, "LunarLanderContinuous-v3", None, {})
    up, left = pygame.K_UP, LEFT
    assert keys.action([]) == [0, 0]
    assert keys.action([up]) == [1, 0]
    assert keys.action([left, up]) == [1, -1]
    assert keys.action([left, RIGHT]) == [0, 1]  # no combination: the last one
    assert keys.action([pygame.K_q]) == [0, 0]


def test_an_environments_own_keys() -> None:
    pytest.importorskip("ale_py")
    keys = keyboard.find_keys(pygame, "ALE/Pong-v5", None, {})
    assert keys.idle == 0
    assert keys.action([ord("d")]) == 2


@pytest.mark.parametrize(
    ("env", "keys", "said"),
    [
        ("BipedalWalker-v3", None, "which keys are for 'BipedalWalker-v3'"),
        ("CartPole-v1", {"lefft": 0}, "there is no key 'lefft'"),
        ("CartPole-v1", {"left": 7}, "7 is no action of 'CartPole-v1'"),
        ("CartPole-v1", {"left": "x"}, "x is no action of"),
        ("CartPole-v1", {"idle": 0}, "names no key"),
    ],
)
def test_mistakes_are_said_in_a_sentence(
    env: str, keys: dict[str, object] | None, said: str, tmp_path: Path
) -> None:
    if env.startswith("Bipedal"):
        pytest.importorskip("Box2D")
    with pytest.raises(UserError, match=said):
        keyboard.record(env, tmp_path / "demos", keys=keys)


def test_without_a_display_there_is_no_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyboard, "has_display", lambda: False)
    with pytest.raises(UserError, match="no display"):
        keyboard.record("CartPole-v1", tmp_path / "demos")


@pytest.mark.skipif(
    not (shutil.which("Xvfb") and shutil.which("xdotool")), reason="needs Xvfb and xdotool"
)
def test_a_real_window(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "800x600x24"],
        pass_fds=[write_end], stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        os.close(write_end)
        with os.fdopen(read_end) as told:
            display = f":{told.readline().strip()}"
        environment = {**os.environ, "DISPLAY": display}
        environment.pop("SDL_VIDEODRIVER", None)
        command = [sys.executable, "-m", "rltune", "record", "--env", "MountainCar-v0"]
        command += ["--env-kwargs", "{max_episode_steps: 80}", "--episodes", "1", "--fps", "20"]
        command += ["--to", "demos.parquet"]
        game = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
        ended = threading.Event()

        def press() -> None:
            while not ended.is_set():
                for what in ("keydown", "keyup"):
                    subprocess.run(["xdotool", what, "Right"], env=environment, check=False)
                    time.sleep(0.3)

        person = threading.Thread(target=press, daemon=True)
        person.start()
        try:
            out, _ = game.communicate(timeout=60)
        finally:
            game.kill()
            ended.set()
            person.join()
        assert game.returncode == 0
        assert b"written: demos.parquet (1 episodes" in out
        (episode,) = read(tmp_path / "demos.parquet").episodes
        assert len(episode) == 80
        pressed = np.bincount(episode.actions, minlength=3)
        assert pressed[0] == 0
        assert pressed[1] > 5
        assert pressed[2] > 5
    finally:
        server.kill()
        server.wait()
