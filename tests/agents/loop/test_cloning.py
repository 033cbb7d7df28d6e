"""Behavioural cloning: every kind of policy learns what was shown, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from experts import demonstrate
from rltune.agents.config import config_dict
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent

from tests.parameters import quick

OFF_POLICY = ("ddpg", "sac", "td3")
# All but still without cloning, so that what is learned comes from the demonstrations.
SMALL: dict[str, Any] = {
    "learning_rate": 1e-7, "cloning": 1e5, "cloning_updates": 32, "cloning_batch_size": 64,
    "net_arch": [32, 32],
}  # fmt: skip
ON = {"n_envs": 2, "n_steps": 16, "normalize_observations": False, "normalize_rewards": False}
OFF = {"train_freq": 32, "gradient_steps": 1, "learning_starts": 10_000}
QUICK: list[tuple[str, str, dict[str, Any]]] = [
    ("ppo", "Which", {}),
    ("ppo", "Bits", {}),
    ("ppo", "Aim", {}),
    ("trpo", "Which", {}),
    ("sac", "Aim", {}),
    ("sac", "Fenced", {}),
    ("td3", "Aim", {}),
]


def make(agent: str, env: str, file: str, **config: Any) -> Agent:
    base = OFF if agent in OFF_POLICY else ON
    if agent == "acer":
        base = {**base, "replay_ratio": 0}
    values = {**SMALL, **base, "demonstrations": file, **config}
    return Agent(agent, f"toy_envs:{env}", values, total_timesteps=640)


@pytest.mark.parametrize(
    ("agent", "env", "config"),
    quick(
        QUICK,
        [
            *QUICK,
            ("ppo", "Which", {"normalize_observations": True}),
            ("ppo", "Both", {}),
            ("ppo", "Fenced", {}),
            ("ppo", "Picture", {"encoder": "small_cnn", "cloning": 1e4, "cloning_updates": 4}),
            ("ppo", "Remember", {"lstm_size": 16}),
            ("a2c", "Which", {}),
            ("a2c", "Remember", {"lstm_size": 16}),
            ("acer", "Which", {}),
            ("sac", "Both", {}),
            ("sac", "Remember", {"lstm_size": 16}),
            ("ddpg", "Aim", {}),
        ],
    ),
)
def test_a_policy_learns_what_was_demonstrated(
    agent: str, env: str, config: dict[str, Any], tmp_path: Path
) -> None:
    trained = make(agent, env, demonstrate(env, tmp_path / "demos.parquet"), **config)
    best = 1.0 if env == "Remember" else 8.0
    assert trained.evaluate(40).mean < 0.9 * best
    chunk = trained.learn(640)
    losses = chunk.values["cloning_loss"]
    assert losses[-1] < losses[0]
    assert trained.evaluate(40).mean > (0.9 if env == "Aim" else 0.99) * best


def test_cloning_fades_away(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    trained = make("ppo", "Which", file, cloning_steps=320)
    chunk = trained.learn(640)
    assert len(chunk.values["cloning_loss"]) == 9  # of 20 updates, those before the 320th step
    assert len(chunk.values["loss"]) == 20


@pytest.mark.parametrize("engine", ["torch", "numpy"])
def test_a_resumed_training_is_bit_equal(engine: str, tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    values = {**ON, "demonstrations": file, "cloning": 1.0, "net_arch": [16], "learning_rate": 1e-3}

    def training() -> Agent:
        return Agent("ppo", "toy_envs:Which", values, total_timesteps=640, engine=engine)

    whole = training()
    whole.learn(640)
    first = training()
    first.learn(320)
    first.save(tmp_path / "half.pt")
    second = Agent.load(tmp_path / "half.pt")
    second.learn(640)
    for name, weights in whole.algorithm.nets.state_dict().items():
        assert torch.equal(weights, second.algorithm.nets.state_dict()[name]), name


def test_demonstrated_steps_are_drawn_from_a_seed_of_their_own(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    trained = make("ppo", "Which", file)
    assert trained._cloning is not None
    seed = trained._cloning.generator.initial_seed()
    assert seed != trained.algorithm.generator.initial_seed()
    # Those of a training that was saved go on where they were, whatever the seed.
    trained.learn(320)
    state = trained._cloning.generator.get_state()
    trained.save(tmp_path / "half.pt")
    again = Agent.load(tmp_path / "half.pt")
    assert again._cloning is not None
    assert torch.equal(again._cloning.generator.get_state(), state)


def test_a_population_may_change_the_strength(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    trained = make("ppo", "Which", file, cloning=0.0)
    trained.learn(64)
    trained = trained.with_config({**config_dict(trained.config), "cloning": 1e5})
    chunk = trained.learn(640)
    assert trained.evaluate(40).mean > 7.9
    assert chunk.values["cloning_loss"][-1] < 0.1
    trained = trained.with_config({**config_dict(trained.config), "cloning": 0.0})
    trained.total_timesteps = 1000
    assert "cloning_loss" not in trained.learn(1000).values


def test_without_cloning_nothing_changes(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    plain, given = (
        Agent("ppo", "toy_envs:Which", {**ON, **more}, total_timesteps=320)
        for more in ({}, {"demonstrations": file, "cloning": 0.0})
    )
    plain.learn(320)
    given.learn(320)
    for name, weights in plain.algorithm.nets.state_dict().items():
        assert torch.equal(weights, given.algorithm.nets.state_dict()[name]), name


def test_mistakes_are_said_in_a_sentence(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    with pytest.raises(UserError, match="DQN has no policy that could imitate demonstrations"):
        Agent("dqn", "toy_envs:Which", {"demonstrations": file, "cloning": 1}, total_timesteps=9)
    with pytest.raises(UserError, match="cloning needs demonstrations; name a file"):
        Agent("ppo", "toy_envs:Which", {"cloning": 1}, total_timesteps=9)
    with pytest.raises(UserError, match=r"there is no file .*nowhere"):
        make("ppo", "Which", str(tmp_path / "nowhere"))
    with pytest.raises(
        UserError, match=r"observations of toy_envs:Which have the shape \(2,\), but"
    ):
        make("ppo", "Remember", file, frame_stack=2)
    with pytest.raises(UserError, match=r"actions of toy_envs:Which are .*Discrete.*, but here"):
        make("ppo", "Both", file)
