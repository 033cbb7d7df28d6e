from __future__ import annotations

import os

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from rltune.agents.demonstrations.files import read
from rltune.agents.envs.vector import episode_seed
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.loop.video import open_video, play

SIDE = 41  # odd, which H.264 does not take


class Clock(gymnasium.Env):
    """Every picture is as bright as there were steps; ends after 7."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Box(0, 10, (1,))
    action_space = spaces.Discrete(2)
    picture = True

    def __init__(self, render_mode=None, crash_at=99) -> None:
        self.render_mode = render_mode
        self.crash_at = crash_at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == self.crash_at:
            raise RuntimeError("broken simulator")
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 7, False, {}

    def render(self):
        if self.picture:
            return np.full((SIDE, SIDE, 3), 30 * self.steps, np.uint8)
        return None


class Blind(Clock):
    picture = False


class Unseen(gymnasium.Env):
    observation_space, action_space = Clock.observation_space, Clock.action_space


def agent(env: str = "Clock", **options) -> Agent:
    name = env if "-v" in env else f"{__name__}:{env}"
    return Agent("ppo", name, {"n_envs": 1}, total_timesteps=100, **options)


def brightness(pictures) -> list[int]:
    return [round(float(np.asarray(picture)[5, 5, 0]) / 30) for picture in pictures]


def pngs(folder) -> list[int]:
    return brightness(Image.open(path) for path in sorted(folder.glob("*.png")))


def test_frames_show_the_start_every_step_and_the_end(tmp_path):
    result = play(agent(), 2, frames=tmp_path / "a" / "b")
    assert pngs(tmp_path / "a" / "b") == [0, 1, 2, 3, 4, 5, 6, 7] * 2
    assert result.returns == [7.0, 7.0]
    assert result.lengths == [7, 7]


def test_every_nth_keeps_the_last_picture(tmp_path):
    play(agent(), frames=tmp_path, every_nth=3)
    assert pngs(tmp_path) == [0, 3, 6, 7]


def test_max_steps_cuts_off(tmp_path):
    assert play(agent(), frames=tmp_path, max_steps=3).lengths == [3]
    assert pngs(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "duration"), [({}, 100), ({"delay": 0.05, "every_nth": 2}, 100)]
)
def test_gif(tmp_path, options, duration):
    play(agent(), video=tmp_path / "clock.gif", **options)
    with Image.open(tmp_path / "clock.gif") as gif:
        pictures = []
        for frame in range(gif.n_frames):
            gif.seek(frame)
            assert gif.info["duration"] == 100
            pictures.append(gif.convert("RGB"))
    expected = [0, 1, 2, 3, 4, 5, 6, 7] if not options else [0, 2, 4, 6, 7]
    assert brightness(pictures) == expected
    assert os.listdir(tmp_path) == ["clock.gif"]


def test_mp4(tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    play(agent(), video=tmp_path / "clock.MP4")
    with imageio.get_reader(tmp_path / "clock.MP4") as reader:
        assert reader.get_meta_data()["fps"] == 10
        pictures = list(reader.iter_data())
    assert brightness(pictures) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert pictures[0].shape == (SIDE + 1, SIDE + 1, 3)


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_an_old_video_survives_a_crash(tmp_path, suffix):
    old = tmp_path / f"play{suffix}"
    old.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="broken simulator"):
        play(agent(env_kwargs={"crash_at": 5}), video=old)
    assert old.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [old.name]


def test_plays_the_episodes_of_the_evaluation(tmp_path):
    with_statistics = Agent(
        "ppo",
        "CartPole-v1",
        {"n_envs": 2, "n_steps": 64, "batch_size": 64, "normalize_observations": True},
        total_timesteps=1000,
    )
    with_statistics.learn(512)
    played = play(with_statistics, 4, frames=tmp_path, seed=5, every_nth=50)
    evaluated = with_statistics.evaluate(4, seed=5)
    assert played.returns == evaluated.returns
    assert len(set(played.returns)) > 1


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "LunarLander-v3", "ALE/Pong-v5"])
def test_environments_draw_without_a_display(env, tmp_path):
    if env.startswith("ALE"):
        pytest.importorskip("ale_py")
        pytest.importorskip("cv2")
    play(agent(env), frames=tmp_path, max_steps=4)
    pictures = [np.asarray(Image.open(path)) for path in sorted(tmp_path.glob("*.png"))]
    assert len(pictures) == 5
    assert len(np.unique(pictures[0].reshape(-1, 3), axis=0)) >= 3  # not one empty colour
    assert (pictures[0] != pictures[4]).any()


def test_window(monkeypatch):
    """SDL's dummy driver stands in for the screen."""
    pytest.importorskip("pygame")
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert play(agent("CartPole-v1"), window=True, max_steps=3, delay=0.0).lengths == [3]


def test_window_without_a_display(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(UserError, match=r"no display.*--video"):
        play(agent(), window=True)


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        ("Clock", {"video": "clock.avi"}, ".mp4 or .gif"),
        ("Clock", {"video": "a.gif", "window": True}, "a window can't be recorded"),
        ("Blind", {"video": "a.gif"}, "can't be recorded"),
        ("Unseen", {"video": "a.gif"}, "takes no render_mode"),
    ],
)
def test_bad_input_leaves_nothing_behind(env, options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        play(agent(env), **options)
    assert os.listdir(tmp_path) == []


def test_video_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"a file stands where a folder.*choose another --video"):
        play(agent(), video=tmp_path / "file" / "a.gif")
    with pytest.raises(UserError, match=r"a file stands where a folder.*choose another --frames"):
        play(agent(), frames=tmp_path / "file" / "a")
    with pytest.raises(UserError, match=r"a file stands where a folder.*choose another --frames"):
        play(agent(), frames=tmp_path / "file")


def test_missing_ffmpeg_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with (
        pytest.raises(UserError, match=r"rltune\[video\]"),
        open_video(tmp_path / "a.mp4", 10),
    ):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("options", [{"video": "a.gif"}, {"window": True}])
def test_missing_pygame_names_the_extra(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    with pytest.raises(UserError, match=r"'CartPole-v1' can't be drawn.*rltune\[video\]"):
        play(agent("CartPole-v1"), **options)
    assert os.listdir(tmp_path) == []


def test_a_recording_holds_the_steps_that_were_played(tmp_path) -> None:
    trained = Agent("ppo", "Pendulum-v1", {"n_envs": 1}, total_timesteps=100)
    found = play(trained, 2, record=tmp_path / "demos.parquet", seed=5)
    recorded = read(tmp_path / "demos.parquet")
    assert recorded.source == "ppo, greedy"
    assert [episode.episode_return for episode in recorded.episodes] == pytest.approx(found.returns)
    assert found.returns == pytest.approx(trained.evaluate(2, seed=5).returns)
    env = gymnasium.make("Pendulum-v1")
    for number, episode in enumerate(recorded.episodes):
        assert not episode.terminated
        obs, _ = env.reset(seed=episode_seed(5, number))
        for step, action in enumerate(episode.actions):
            np.testing.assert_array_equal(episode.obs[step], obs)
            obs, reward, _, truncated, _ = env.step(action)
            assert episode.rewards[step] == reward
        np.testing.assert_array_equal(episode.obs[-1], obs)
        assert truncated


class CrashesLater(Clock):
    """Its second episode ends in an error."""

    begun = 0

    def reset(self, *, seed=None, options=None):
        type(self).begun += 1
        self.crash_at = 3 if self.begun == 3 else 99  # the first one looks for action masks
        return super().reset(seed=seed)


def test_episodes_that_ended_before_a_failure_are_kept(tmp_path) -> None:
    file = tmp_path / "demos.parquet"
    played = agent("CrashesLater")
    CrashesLater.begun = 0
    with pytest.raises(RuntimeError, match="broken simulator"):
        play(played, 3, record=file)
    assert [len(episode) for episode in read(file).episodes] == [7]
    file.unlink()
    with pytest.raises(RuntimeError, match="broken simulator"):
        play(agent(env_kwargs={"crash_at": 3}), record=file)
    assert not file.exists()  # none has ended
    with pytest.raises(UserError, match=r"--record .*: it is a folder"):
        play(played, record=tmp_path)
