"""Minari's data sets become demonstrations, and demonstrations become data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from random_demonstrations import demonstrations
from rltune.agents.demonstrations.files import read, write
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.cli import main
from rltune.training.minari_data import from_minari, to_minari

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")
EpisodeBuffer = pytest.importorskip("minari.data_collector").EpisodeBuffer
ABOUT = dict.fromkeys(("algorithm_name", "author", "author_email", "code_permalink"), "a test")
pytestmark = pytest.mark.filterwarnings("ignore:`")  # of metadata that nobody gave


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


@pytest.mark.parametrize("kind", ["Discrete", "MultiDiscrete", "MultiBinary", "Box"])
def test_demonstrations_survive_the_way_there_and_back(kind: str) -> None:
    given = demonstrations(kind)
    to_minari(given, "toy/there-v0")
    found = from_minari("toy/there-v0")
    assert (found.env, found.env_kwargs) == (given.env, given.env_kwargs)
    assert gymnasium.spec(given.env).kwargs == {}  # what all others make it from
    assert found.source == "Minari, toy/there-v0"
    for ours, theirs in zip(found.episodes, given.episodes, strict=True):
        np.testing.assert_array_equal(ours.obs, theirs.obs)
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_array_equal(ours.rewards, theirs.rewards)
        assert ours.terminated == theirs.terminated


def collect(name: str, env: str) -> list[Any]:
    """Let Minari store two episodes of random actions, as the environment shows them."""
    made = gymnasium.make(env)
    made.action_space.seed(0)
    buffers = []
    for seed in range(2):
        obs, _ = made.reset(seed=seed)
        buffer = EpisodeBuffer(observations=[obs], actions=[])
        over = False
        while not over:
            action = made.action_space.sample()
            obs, reward, terminated, truncated, _ = made.step(action)
            over = terminated or truncated
            buffer.observations.append(obs)
            buffer.actions.append(action)
            buffer.rewards.append(reward)
            buffer.terminations.append(terminated)
            buffer.truncations.append(truncated)
        buffers.append(buffer)
    minari.create_dataset_from_buffers(name, buffers, env=made, **ABOUT)
    return list(minari.load_dataset(name).iterate_episodes())


def test_a_data_set_of_minaris_own_can_be_learned_from(folder: Path) -> None:
    theirs = collect("toy/pole-v0", "CartPole-v1")
    ours = from_minari("toy/pole-v0").episodes
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.obs, b.observations)
        np.testing.assert_array_equal(a.actions, b.actions)
        assert a.terminated
    file = folder / "demos.parquet"
    assert main(["demonstrations", "minari:toy/pole-v0", "--to", str(file)]) == 0
    config = {"n_envs": 2, "n_steps": 16, "demonstrations": str(file), "cloning": 1}
    agent = Agent("ppo", "CartPole-v1", config, total_timesteps=64)
    assert agent.learn(64).values["cloning_loss"]


def test_dictionaries_are_shown_as_agents_see_them(folder: Path) -> None:
    parts = {"b": np.arange(6.0).reshape(3, 2), "a": np.array([0, 1, 1])}
    buffer = EpisodeBuffer(
        observations=parts, actions=[0, 1], rewards=[1.0, 0.5],
        terminations=[False, False], truncations=[False, True],
    )  # fmt: skip
    minari.create_dataset_from_buffers(
        "toy/dict-v0", [buffer], env="CartPole-v1",
        observation_space=spaces.Dict(b=spaces.Box(0, 9, (2,)), a=spaces.Discrete(2)),
        action_space=spaces.Discrete(2, start=0),
        **ABOUT,
    )  # fmt: skip
    (episode,) = from_minari("toy/dict-v0").episodes
    np.testing.assert_array_equal(episode.obs, [[1, 0, 0, 1], [0, 1, 2, 3], [0, 1, 4, 5]])
    assert not episode.terminated


def test_mistakes_are_said_in_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = demonstrations()
    file = folder / "demos.parquet"
    write(given, file, "--record")
    to_minari(given, "toy/there-v0")
    for words, said in (
        (["minari:toy/nothing-v0"], "minari download toy/nothing-v0 fetches it"),
        ([str(file), "--to", "minari:toy/there-v0"], "already exists"),
        ([str(file), "--to", "minari:two words"], "Malformed dataset ID"),
        ([str(file), "--to", str(folder)], "cannot write"),
    ):
        assert main(["demonstrations", *words]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(UserError, match=r'pip install "rltune\[minari\]"'):
        from_minari("toy/there-v0")
    assert read(file).steps == given.steps
