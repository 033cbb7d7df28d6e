"""Rendering: an agent's episodes in a window, as a video, or as pictures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from rltune.agents.demonstrations.recorder import Recorder, recording
from rltune.agents.envs.vector import Envs
from rltune.agents.errors import UserError, storage_error
from rltune.agents.loop.acting import RecurrentActing
from rltune.agents.loop.agent import Agent
from rltune.agents.loop.results import Evaluation
from rltune.agents.user_files import file_of_user

Frame = npt.NDArray[np.uint8]  # (height, width, 3)
Sink = Callable[[Frame], None]
# Pictures need no display; these libraries are told so before they look for one.
WITHOUT_DISPLAY = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "MUJOCO_GL": "egl"}
VIDEO_FORMATS = (".mp4", ".gif")


def play(
    agent: Agent,
    episodes: int = 1,
    *,
    window: bool = False,
    video: str | Path | None = None,
    frames: str | Path | None = None,
    record: str | Path | None = None,
    delay: float | None = None,
    every_nth: int = 1,
    max_steps: int | None = None,
    seed: int = 0,
) -> Evaluation:
    """Play greedy episodes and show them; they are those of ``agent.evaluate(seed=seed)``.

    Args:
        agent: plays
        episodes: how many
        window: show a window (then there can be no video and no pictures)
        video: an .mp4 or .gif file, written whole or not at all
        frames: a folder for one PNG per picture
        record: a file of demonstrations: the episodes step by step
        delay: seconds per step; by default the environment's own speed
        every_nth: record every so many steps; the video keeps its speed
        max_steps: cut episodes off
        seed: episode k starts from a seed made of this and k

    Raises:
        UserError: nowhere to show it, no display, a format that can't be written, an environment
            that can't be rendered, or only with a package that is missing.
    """
    started = time.perf_counter()
    draws = window or video is not None or frames is not None
    _check(window, video, frames)
    returns, lengths = [], []
    with ExitStack() as stack:
        if draws:
            stack.enter_context(_drawing(agent.env))
        envs = Envs(
            agent.env,
            1,
            seed=seed,
            env_kwargs=agent.env_kwargs,
            **agent.view,
            max_episode_steps=max_steps,
            training=False,
            autoreset=False,
            render_mode="human" if window else "rgb_array" if draws else None,
        )
        stack.callback(envs.close)
        recorder = None
        if record is not None:
            space, source = envs.single_action_space, f"{agent.algorithm_spec}, greedy"
            recorder = Recorder(agent.env, agent.env_kwargs, agent.view, space, source)
            stack.enter_context(recording(recorder, record, "--record"))
        pace = delay if delay is not None else 1.0 / envs.steps_per_second
        sinks: list[Sink] = []
        if video is not None:
            frames_per_second = 1.0 / max(pace * every_nth, 0.01)
            sinks.append(stack.enter_context(open_video(Path(video), frames_per_second)))
        if frames is not None:
            sinks.append(stack.enter_context(open_frames(Path(frames))))
        for _ in range(episodes):
            episode_return, length = _play_episode(agent, envs, sinks, every_nth, delay, recorder)
            returns.append(episode_return)
            lengths.append(length)
    return Evaluation(returns, lengths, time.perf_counter() - started)


def _check(window: bool, video: str | Path | None, frames: str | Path | None) -> None:
    if not window:
        if not has_display():
            for variable, value in WITHOUT_DISPLAY.items():
                os.environ.setdefault(variable, value)
    elif video is not None or frames is not None:
        raise UserError("a window can't be recorded; leave out either the window or the recording")
    elif not has_display():
        raise UserError(
            "there is no display for a window; record instead: --video play.mp4 or --frames DIR"
        )
    if video is not None and Path(video).suffix.lower() not in VIDEO_FORMATS:
        raise UserError(f"video {video}: the name must end in .mp4 or .gif")


def has_display() -> bool:
    """Tell whether a window can be opened."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def _drawing(env: str) -> Iterator[None]:
    """Name the package that is missing where an environment draws: to be trained it needs none."""
    try:
        yield
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        said = str(error)
        if "pygame" in said:
            said = 'that needs pygame: pip install "rltune[video]"'
        raise UserError(f"environment {env!r} can't be drawn: {said}") from error


def _play_episode(
    agent: Agent,
    envs: Envs,
    sinks: list[Sink],
    every_nth: int,
    delay: float | None,
    recorder: Recorder | None,
) -> tuple[float, int]:
    acting = RecurrentActing(agent.algorithm)
    obs = envs.reset()
    inputs = acting.first(agent.normalised(obs))
    if recorder is not None:
        recorder.begin(obs[0])
    _show(agent, envs, sinks)
    length = 0
    while True:
        step = envs.step(acting.act(inputs, explore=False))
        if recorder is not None:
            recorder.step(
                step.action[0], step.reward[0], step.next_obs[0],
                bool(step.terminated[0]), bool(step.truncated[0]),
            )  # fmt: skip
        inputs = acting.inputs(agent.normalised(step.obs), step.terminated | step.truncated)
        length += 1
        # The last picture shows how it ended.
        if length % every_nth == 0 or step.episodes:
            _show(agent, envs, sinks)
        if delay is not None and not sinks:
            time.sleep(delay)
        if step.episodes:
            return step.episodes[0].episode_return, length


def _show(agent: Agent, envs: Envs, sinks: list[Sink]) -> None:
    if not sinks:
        return
    frame = envs.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3:
        raise UserError(
            f"environment {agent.env!r} can't be recorded: render() gives no picture of shape "
            "(height, width, 3) with render_mode='rgb_array'"
        )
    for sink in sinks:
        sink(cast(Frame, frame.astype(np.uint8, copy=False)))


# ------------------------------------------------------------------------------------------- files


@contextmanager
def open_video(path: Path, frames_per_second: float) -> Iterator[Sink]:
    """Give a function that adds a frame to an .mp4 or .gif; the file appears when all is well."""
    write = _mp4 if path.suffix.lower() == ".mp4" else _gif
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, path, "--video") from error
    with (
        file_of_user(path, "--video") as temporary,
        write(temporary, frames_per_second) as add,
    ):
        yield add


@contextmanager
def _mp4(path: Path, frames_per_second: float) -> Iterator[Sink]:
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise UserError(
            'an .mp4 needs imageio and ffmpeg: pip install "rltune[video]"; a .gif needs nothing'
        ) from None
    path.touch()  # ffmpeg's own words about a missing permission are many
    writer = imageio.get_writer(path, fps=frames_per_second, macro_block_size=1)
    try:
        yield lambda frame: writer.append_data(_even(frame))
    finally:
        writer.close()


def _even(frame: Frame) -> Frame:
    """Pad to even sides, which H.264 asks for."""
    height, width = frame.shape[:2]
    if height % 2 == width % 2 == 0:
        return frame
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


@contextmanager
def _gif(path: Path, frames_per_second: float) -> Iterator[Sink]:
    from PIL import Image

    pictures: list[Any] = []
    # 256 colours each, as the format has it: a quarter of the memory until the end.
    yield lambda frame: pictures.append(
        Image.fromarray(frame).quantize(256, Image.Quantize.FASTOCTREE)
    )
    first, *others = pictures
    # Viewers take hundredths of a second, and slow down below two.
    duration = max(20, round(100 / frames_per_second) * 10)
    first.save(path, save_all=True, append_images=others, duration=duration, loop=0)


@contextmanager
def open_frames(folder: Path) -> Iterator[Sink]:
    """Give a function that writes a frame as frame-000000.png, frame-000001.png, ..."""
    from PIL import Image

    written = 0

    def add(frame: Frame) -> None:
        nonlocal written
        Image.fromarray(frame).save(folder / f"frame-{written:06d}.png")
        written += 1

    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield add
    except OSError as error:
        raise storage_error(error, folder, "--frames") from error
