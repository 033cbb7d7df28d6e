"""Unity builds, with a stand-in of mlagents_envs under a Python of its own (tests/data/unity)."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from rltune.agents import Agent, UserError
from rltune.agents.envs import unity_process
from rltune.agents.envs.make import is_own, make_env
from rltune.agents.envs.unity import Unity
from rltune.agents.envs.vector import Envs
from rltune.cli import main

STAND_IN = Path(__file__).parents[2] / "data" / "unity"
VECTOR = ["Vector", [2], [1]]
LAST, FIRST = ["Camera", [40, 60, 3], [2, 2, 1]], ["Camera", [3, 40, 60], [1, 2, 2]]
LINE = {"behaviors": {"Walker?team=0": {"continuous": 1, "sensors": [VECTOR]}}}
SWITCH = {"behaviors": {"Walker": {"branches": [3, 2], "masks": True, "sensors": [VECTOR]}}}


def scene(**changes: Any) -> dict[str, Any]:
    """Return a scene with one behavior like LINE's, changed."""
    return {"behaviors": {"Walker": {"continuous": 1, "sensors": [VECTOR], **changes}}}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> str:
    """Return an interpreter that has NumPy and the stand-in, made like a virtual environment."""
    root = tmp_path_factory.mktemp("interpreter")
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(base)
    (root / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    packages = root / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    numpy = Path(np.__file__).parents[1]
    (packages / "ours.pth").write_text(f"{STAND_IN}\n{numpy}\n")
    return str(root / "bin" / "python")


@pytest.fixture
def build(tmp_path, python):
    """Return a function from a scene and arguments to an environment, closed in the end."""
    made = []

    def make(what: dict[str, Any], **kwargs: Any) -> Unity:
        (tmp_path / "game.x86_64").write_text(json.dumps(what))
        made.append(Unity(str(tmp_path / "game"), **{"python": python, **kwargs}))
        return made[-1]

    yield make
    for env in made:
        env.close()


def log(tmp_path: Path, what: str) -> list[Any]:
    lines = (tmp_path / "game.x86_64.log").read_text().splitlines()
    return [said[1:] for said in map(json.loads, lines) if said[0] == what]


def play(env: Any, action: Any, seed: int = 0) -> list[Any]:
    """Return the steps of an episode in which always the same is done."""
    env.reset(seed=seed)
    steps = [env.step(action)]
    while not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(action))
    return steps


def test_continuous_actions_and_the_two_ends_of_an_episode(build):
    env = build(LINE)
    assert env.action_space == spaces.Box(-1, 1, (1,))
    assert env.observation_space == spaces.Box(-np.inf, np.inf, (2,))
    first, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, [0, 0])
    steps = play(env, np.ones(1, np.float32))
    np.testing.assert_array_equal([step[0] for step in steps], [[1, 1], [2, 2], [3, 3]])
    assert [step[1] for step in steps] == [0.125, 0.125, 1.25]  # the group's 0.25 included
    assert steps[-1][2:4] == (True, False)
    steps = play(env, np.zeros(1))
    assert len(steps) == 10
    assert steps[-1][1:4] == (-0.75, False, True)


def test_steps_without_a_decision_are_passed_over(build):
    steps = play(build({**LINE, "idle": 2}), np.ones(1))
    np.testing.assert_array_equal([step[0][0] for step in steps], [1, 2, 3])


def test_masks_say_what_is_allowed(build):
    env = build(SWITCH)
    assert env.action_space == spaces.MultiDiscrete([3, 2])
    first, _ = env.reset(seed=0)
    np.testing.assert_array_equal(first["action_mask"], [0, 1, 1, 1, 1])
    second, *_ = env.step(np.array([1, 0]))
    np.testing.assert_array_equal(second["action_mask"], [1, 0, 1, 1, 1])
    with pytest.raises(UserError, match="has failed: UnityActionException: a forbidden action"):
        env.step(np.array([1, 0]))
    assert env.step(np.array([2, 1]))[2] is False  # it goes on


def test_one_branch_is_discrete_and_masks_can_be_left_out(build):
    what = scene(continuous=0, branches=[3])
    assert build(what).observation_space["action_mask"].n == 3
    env = build(what, action_masks=False)
    assert env.action_space == spaces.Discrete(3)
    assert env.observation_space == spaces.Box(-np.inf, np.inf, (2,))
    assert play(env, np.int64(2))[-1][2]


@pytest.mark.parametrize("camera", [LAST, FIRST], ids=["0.30", "1.0"])
def test_images_are_channels_first_bytes_beside_vectors(build, tmp_path, camera):
    env = build(scene(sensors=[camera, VECTOR, VECTOR]))
    seen, _ = env.reset(seed=0)
    assert list(seen) == ["Camera", "Vector", "Vector 2"]
    assert seen["Camera"].shape == (3, 40, 60)
    assert seen["Camera"].dtype == np.uint8
    np.testing.assert_array_equal(seen["Camera"][:, 7, 9], [1, 2, 3])
    assert env.observation_space.contains(seen)
    assert [said["no_graphics"] for (said,) in log(tmp_path, "launch")] == [True, False]
    mixed = Envs("unity:game", 1, seed=0, env_kwargs={"python": env._python})
    assert mixed.single_observation_space.images == ((3, 40, 60),)
    assert mixed.single_observation_space.n_vector == 4
    mixed.close()


def test_a_picture_for_videos(build):
    env = build(scene(sensors=[FIRST]), render_mode="rgb_array")
    assert env.reset(seed=0)[0].shape == (3, 40, 60)
    assert env.render().shape == (40, 60, 3)
    np.testing.assert_array_equal(env.render()[0, 0], [1, 2, 3])
    grey = build(scene(sensors=[["Camera", [1, 40, 60], [1, 2, 2]]]), render_mode="rgb_array")
    grey.reset(seed=0)
    np.testing.assert_array_equal(grey.render()[0, 0], [1, 1, 1])


def test_three_dimensions_that_are_no_image(build):
    bright = {**scene(sensors=[FIRST]), "too_bright": True}
    with pytest.raises(UserError, match="outside of 0 to 1 in the image of sensor 'Camera'; imag"):
        build(bright)
    env = build(bright, images=False)
    assert env.observation_space == spaces.Box(-np.inf, np.inf, (3, 40, 60))
    assert env.reset(seed=0)[0].max() > 1


def test_what_the_build_is_told(build, tmp_path):
    env = build(LINE, parameters={"gravity": 2}, time_scale=5)
    env.reset(seed=7)
    env.reset(seed=2**24 + 1)
    env.reset()
    launched = [said for (said,) in log(tmp_path, "launch")]
    assert [said["seed"] for said in launched] == [0, 7]  # the first one was asked for its spaces
    assert [said["no_graphics"] for said in launched] == [True, True]
    told = [said for (said,) in log(tmp_path, "channel") if said]
    frames = {"time_scale": 5, "target_frame_rate": -1, "capture_frame_rate": 60}
    assert told == [*[frames, {"gravity": 2.0}] * 2, {"seed": 7.0}, {"seed": 1.0}]
    env.close()
    assert len(log(tmp_path, "close")) == 2
    build(LINE, parameters={"gravity": 2}, time_scale=5).reset(seed=1)
    assert len(log(tmp_path, "launch")) == 3 + 1  # the file is newer: it is asked again


def test_a_window_runs_in_real_time(build, tmp_path):
    build(LINE, render_mode="human").reset(seed=0)
    assert log(tmp_path, "launch")[-1][0]["no_graphics"] is False
    told = [said for (said,) in log(tmp_path, "channel") if said]
    assert told == [{"time_scale": 1.0}, {"time_scale": 1.0}, {"seed": 0.0}]


def test_every_build_has_a_port_of_its_own(build, tmp_path):
    one, other = build({**LINE, "ports_in_use": 2}), build({**LINE, "ports_in_use": 2})
    one.reset(seed=0)
    other.reset(seed=0)
    assert len(log(tmp_path, "in use")) == 2  # and was tried again
    ports = [said["port"] for (said,) in log(tmp_path, "launch")]
    assert len(set(ports)) == len(ports)


def test_what_gymnasium_checks(build):
    for what in (LINE, SWITCH, scene(sensors=[LAST, VECTOR])):
        env = build(what)
        env.reset(seed=0)
        if what is not SWITCH:  # it samples actions without a look at the mask
            check_env(env, skip_render_check=True)
        else:
            assert env.observation_space.contains(env.reset(seed=1)[0])


@pytest.mark.parametrize(
    ("what", "kwargs", "said"),
    [
        (scene(agents=2), {}, "has several agents of behavior 'Walker', and rltune trains one"),
        (scene(branches=[2]), {}, "'Walker' has both continuous and discrete actions"),
        (scene(continuous=0), {}, "'Walker' has no actions"),
        (
            {"behaviors": {"A?team=0": LINE["behaviors"]["Walker?team=0"], **scene()["behaviors"]}},
            {},
            "has several behaviors; name the one to train, behavior: A, Walker",
        ),
        (LINE, {"behavior": "Runner"}, "has no behavior 'Runner'; choose one of: Walker"),
        ({"behaviors": {}}, {}, "has no behavior whose Behavior Type is Default"),
        (LINE, {"time_scale": 0}, "time_scale must be a number above 0, not 0"),
        (LINE, {"parameters": {"gravity": "low"}}, "parameters are names with numbers"),
        (LINE, {"python": "/bin/sh"}, "'/bin/sh' is no interpreter"),
        (LINE, {"python": "no/such/python"}, "there is no interpreter 'no/such/python'"),
        (LINE, {"python": ""}, r"mlagents_envs, which .* can't import .*pip install mlagents_envs"),
    ],
)
def test_mistakes_are_sentences(build, what, kwargs, said):
    with pytest.raises(UserError, match=said) as error:
        build(what, **kwargs)
    assert "\n" not in str(error.value)


def test_a_behavior_by_name_leaves_the_others_alone(build):
    behaviors = {"A": LINE["behaviors"]["Walker?team=0"], **SWITCH["behaviors"]}
    assert build({"behaviors": behaviors}, behavior="A").action_space.shape == (1,)


def test_no_such_build_and_builds_of_runs(build, tmp_path, python):
    with pytest.raises(UserError, match=r"'none': there is no such build; write its path"):
        make_env("unity:none", env_kwargs={"python": python})
    (tmp_path / "run.yaml").write_text("format_version: 1\n")
    with pytest.raises(UserError, match="lies in a run directory, from where nothing is started"):
        build(LINE)


def test_a_build_that_dies_may_be_tried_again(build):
    env = build({**LINE, "dies_at": 2})
    env.reset(seed=0)
    env.step(np.zeros(1))
    with pytest.raises(UserError, match="has failed: its process ended with code 7, ") as error:
        env.step(np.zeros(1))
    assert isinstance(error.value.__cause__, OSError)
    env.close()
    env.reset(seed=0)
    assert env.step(np.zeros(1))[1] == 0.125


def test_it_ends_with_the_pipe(build, tmp_path):
    env = build(LINE)
    env.reset(seed=0)
    before = len(log(tmp_path, "close"))
    assert env._process is not None
    env._process._stdin.close()  # as where this process is killed
    env._process._popen.wait(10)
    assert len(log(tmp_path, "close")) == before + 1


def test_messages_hold_nothing_that_is_executed():
    stream = io.BytesIO()
    unity_process.send(stream, {"do": "step"}, [np.arange(6, dtype=np.int32).reshape(2, 3)])
    stream.seek(0)
    header, (array,) = unity_process.receive(stream)
    assert header == {"do": "step"}
    np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])
    objects = io.BytesIO()
    unity_process.send(objects, {}, [np.array([None])])
    objects.seek(0)
    with pytest.raises(ValueError, match=r"\|O"):
        unity_process.receive(objects)
    with pytest.raises(EOFError):
        unity_process.receive(io.BytesIO(stream.getvalue()[:-1]))


def test_names():
    assert is_own("unity:builds/Walker-v1")


@pytest.mark.parametrize("what", [LINE, SWITCH], ids=["continuous", "masked"])
def test_ppo_trains(build, tmp_path, python, what):
    build(what)
    config = {"n_envs": 2, "n_steps": 32, "batch_size": 32, "net_arch": (16,)}
    kwargs = {"python": python}
    agent = Agent("ppo", "unity:game", config, total_timesteps=512, env_kwargs=kwargs)
    chunk = agent.learn(512)
    assert chunk.env_steps == 512
    assert agent.diverged is None
    assert agent.evaluate(2).returns
    agent.close()
    launched, closed = log(tmp_path, "launch"), log(tmp_path, "close")
    assert len(launched) == len(closed) == 2 + 2 + 2  # for the spaces, to train, to evaluate


def test_processes_of_their_own_and_time_limits(build, python):
    build(LINE)
    kwargs = {"python": python, "max_episode_steps": 4}
    envs = Envs("unity:game", 2, seed=0, env_kwargs=kwargs, vectorization="async")
    envs.reset()
    steps = [envs.step(np.zeros((2, 1), np.float32)) for _ in range(4)]
    assert steps[-1].truncated.all()
    envs.close()


def test_an_episode_is_replayed_beyond_its_end(build):
    env = build(LINE)
    play(env, np.ones(1))
    seen, _, terminated, truncated, _ = env.step(np.ones(1))
    np.testing.assert_array_equal(seen, [0, 0])
    assert not terminated
    assert not truncated


def test_from_the_command_line(build, python, capsys):
    build(LINE)
    kwargs = yaml.safe_dump({"python": python}, default_flow_style=True).strip()
    few = ["-n", "256", "--n-envs", "2", "--eval-episodes", "1", "--eval-freq", "256"]
    assert main(["train", "ppo", "--env", "unity:game", "--env-kwargs", kwargs, *few]) == 0
    assert "Trained for 256 env steps" in capsys.readouterr().out
