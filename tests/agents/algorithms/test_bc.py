"""Behavioural cloning by itself: a policy that learns demonstrations alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experts import demonstrate
from random_demonstrations import demonstrations
from rltune.agents.config import config_dict, hyperparameters
from rltune.agents.demonstrations.files import read
from rltune.agents.demonstrations.memory import DemonstrationMemory
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.loop.compatibility import check_fit
from rltune.agents.loop.controls import Controls
from rltune.agents.registry import agent_class

from tests.parameters import quick

SMALL: dict[str, Any] = {"learning_rate": 1e-2, "net_arch": [32, 32], "batch_size": 64}
QUICK: list[tuple[str, dict[str, Any]]] = [
    ("Which", {}),
    ("Both", {"layer_norm": True}),
    ("Fenced", {}),
    ("Picture", {"encoder": "small_cnn", "learning_rate": 1e-3}),
]


def make(env: str, file: str, total: int = 32_000, **config: Any) -> Agent:
    values = {**SMALL, "demonstrations": file, **config}
    return Agent("bc", f"toy_envs:{env}", values, total_timesteps=total)


def weights(agent: Agent) -> dict[str, torch.Tensor]:
    return dict(agent.algorithm.nets.state_dict())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("env", "config"),
    quick(
        QUICK,
        [
            *QUICK,
            ("Which", {"normalize_observations": True, "optimizer": "rmsprop"}),
            ("Which", {"weight_decay": 0.1}),
            ("Bits", {}),
            ("Aim", {"learning_rate": "lin_1e-2"}),
            ("Remember", {"lstm_size": 16}),
        ],
    ),
)
def test_every_kind_of_action_is_learned(env: str, config: dict[str, Any], tmp_path: Path) -> None:
    file = demonstrate(env, tmp_path / "demos.parquet")
    total = 6400 if env == "Picture" else 32_000
    agent = make(env, file, total, **config)
    best = 1.0 if env == "Remember" else 8.0
    assert agent.evaluate(40).mean < 0.9 * best
    chunk = agent.learn(total)
    assert (chunk.env_steps, chunk.episodes, chunk.mean_reward) == (total, [], None)
    assert agent.finished
    assert chunk.values["loss"][-1] < chunk.values["loss"][0]
    assert chunk.values["validation_loss"][-1] < 0.1
    assert agent.evaluate(40).mean > 0.99 * best


def test_the_steps_of_minibatches_are_counted_and_a_budget_is_kept(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    agent = make("Which", file, total=1000)
    assert agent.learn(100).env_steps == 128
    assert agent.learn(128).updates == 0
    chunk = agent.learn(1000)
    assert (chunk.env_steps, chunk.updates) == (1000, 14)  # the last one counts 40 of 64
    assert agent.env_steps == agent.total_timesteps
    assert agent.learn(1064).updates == 1  # beyond the end, as others do
    agent.total_timesteps = 1200
    assert agent.learn(1200).updates == 3
    recurrent = make("Remember", demonstrate("Remember", tmp_path / "memory.parquet"), lstm_size=4)
    assert recurrent.learn(1).env_steps == 64  # two sequences
    recurrent = make(
        "Remember", str(tmp_path / "memory.parquet"), lstm_size=4, batch_size=8, sequence_length=16
    )
    assert recurrent.learn(1).env_steps == 16


@pytest.mark.parametrize("env", ["Which", "Remember"])
def test_a_resumed_training_is_bit_equal(env: str, tmp_path: Path) -> None:
    file = demonstrate(env, tmp_path / "demos.parquet")
    config = {"lstm_size": 8} if env == "Remember" else {"weight_decay": 0.1}

    def training() -> Agent:
        return make(env, file, total=3000, learning_rate="lin_1e-3", **config)

    whole = training()
    expected = whole.learn(3000)
    first = training()
    half = first.learn(1300)
    first.save(tmp_path / "half.pt", memory=False)
    second = Agent.load(tmp_path / "half.pt")
    rest = second.learn(3000)
    for name, values in expected.values.items():
        assert [*half.values.get(name, []), *rest.values[name]] == values, name
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(second)[name]), name
    assert not second.replays  # a checkpoint without memory is whole


def test_a_trained_policy_acts_without_its_demonstrations(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    agent = make("Which", file, total=6400)
    agent.learn(6400)
    agent.save(tmp_path / "done.pt")
    Path(file).unlink()
    acting = Agent.load(tmp_path / "done.pt", acts_only=True)
    assert acting.evaluate(20).returns == agent.evaluate(20).returns
    with pytest.raises(UserError, match=r"there is no file .*demos\.parquet"):
        Agent.load(tmp_path / "done.pt")


def test_observations_are_normalised_by_all_demonstrated_ones(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    agent = make("Which", file, validation_fraction=0.0, normalize_observations=True)
    obs = np.concatenate([episode.obs[:-1] for episode in read(file).episodes])
    assert agent.observations is not None
    assert agent.observations.statistics.mean == pytest.approx(obs.mean(0), abs=1e-5)
    before = agent.observations.state_dict()
    agent.learn(640)
    assert torch.equal(agent.observations.state_dict()["mean"], before["mean"])
    assert make("Which", file).observations is None


@pytest.mark.parametrize(
    ("fraction", "held_out"), [(0.0, 0), (0.3, 0), (0.34, 1), (0.67, 2), (0.9, 2)]
)
def test_whole_episodes_are_held_out(fraction: float, held_out: int) -> None:
    found = demonstrations()  # of 1, 7 and 3 steps
    memory = DemonstrationMemory(found, fraction, seed=1)
    kept = 0 if memory.held_out is None else len(memory.held_out)
    assert len(memory.steps) + kept == found.steps
    assert kept in {0: [0], 1: [1, 3, 7], 2: [4, 8, 10]}[held_out]
    again = DemonstrationMemory(found, fraction, seed=1)
    assert np.array_equal(memory.obs, again.obs)
    others = [DemonstrationMemory(found, fraction, seed=k).obs for k in range(2, 9)]
    assert held_out == 0 or any(not np.array_equal(memory.obs, other) for other in others)


def test_seven_of_ten_are_seven() -> None:
    found = demonstrations()
    ten = type(found)(
        found.env, found.env_kwargs, found.view, found.actions, (found.episodes[0],) * 10
    )
    memory = DemonstrationMemory(ten, 0.7, seed=0)
    assert memory.held_out is not None
    assert len(memory.held_out) == 7


def test_what_is_held_out_is_looked_at_once_an_epoch_and_twenty_times(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")  # 240 steps, of which 24 are held out
    # Four minibatches are an epoch.
    assert len(make("Which", file, total=64_000).learn(3000).values["validation_loss"]) == 47 // 4
    # So short a training is less than one.
    chunk = make("Which", file, total=200, batch_size=1).learn(200)
    assert (chunk.updates, len(chunk.values["validation_loss"])) == (200, 20)
    assert "validation_loss" not in make("Which", file, validation_fraction=0.0).learn(640).values


def test_the_weights_shrink(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    sizes = []
    for decay in (0.0, 5.0):
        agent = make("Which", file, total=6400, weight_decay=decay)
        critic = agent.algorithm.nets.critic[1].weight.clone()  # type: ignore[attr-defined]
        agent.learn(6400)
        assert torch.equal(critic, agent.algorithm.nets.critic[1].weight)  # type: ignore[attr-defined]
        sizes.append(float(agent.algorithm.learner.flat.square().sum()))  # type: ignore[attr-defined]
    assert sizes[1] < 0.5 * sizes[0]


def test_ppo_begins_with_what_was_cloned(tmp_path: Path) -> None:
    file = demonstrate("Aim", tmp_path / "demos.parquet")
    cloned = make("Aim", file)
    cloned.learn(32_000)
    cloned.save(tmp_path / "cloned.pt")
    values = {"net_arch": [32, 32], "normalize_observations": False}
    ppo = Agent("ppo", "toy_envs:Aim", values, total_timesteps=100)
    ppo.load_weights(tmp_path / "cloned.pt")
    assert ppo.evaluate(20).returns == pytest.approx(cloned.evaluate(20).returns)
    assert ppo.evaluate(20).mean > 7.9


def test_hyperparameters_may_change_on_the_way(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    agent = make("Which", file, total=6400)
    agent.learn(640)
    same = agent.with_config(config_dict(agent.config))
    assert same.env_steps == 640
    agent = same.with_config({**config_dict(same.config), "batch_size": 32, "learning_rate": 1e-3})
    chunk = agent.learn(1280)
    assert chunk.updates == 20
    assert chunk.metrics["learning_rate"] == pytest.approx(1e-3)
    with pytest.raises(UserError, match=r"validation_fraction is 0\.1, and a training that has"):
        agent.with_config({**config_dict(agent.config), "validation_fraction": 0.5})


def test_what_has_no_meaning_is_no_hyperparameter(tmp_path: Path) -> None:
    config = agent_class("bc").Config
    known = hyperparameters(config)
    assert not known.keys() & {"n_envs", "gamma", "n_steps", "cloning", "vf_coef", "use_sde"}
    assert known.keys() == config_dict(config()).keys()
    assert known.keys() >= {"demonstrations", "learning_rate", "batch_size", "lstm_size", "model"}
    with pytest.raises(UserError, match="unknown hyperparameter 'n_envs'"):
        make("Which", "", n_envs=4)


def test_a_model_file_has_one_output_layer(tmp_path: Path) -> None:
    model = tmp_path / "net.cfg"
    model.write_text("[dense]\nunits=12\nactivation=relu\n[dense]\noutput=1\n")
    values = {"demonstrations": demonstrate("Which", tmp_path / "demos.parquet")}
    values |= {"model": str(model), "learning_rate": "1e-2"}
    agent = Agent("bc", "toy_envs:Which", values, total_timesteps=6400)
    agent.learn(6400)
    assert agent.evaluate(20).mean > 7.9


def test_mistakes_are_said_in_a_sentence(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    needs = "agent bc needs demonstrations; name a file: --demonstrations FILE"
    with pytest.raises(UserError, match=needs):
        Agent("bc", "toy_envs:Which", {}, total_timesteps=9)
    with pytest.raises(UserError, match=r"there is no file .*nowhere"):
        make("Which", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"the shape \(2,\), but here they have \(4,\)"):
        make("Which", file, frame_stack=2)
    with pytest.raises(UserError, match=r"actions of toy_envs:Which are .*Discrete.*, but here"):
        make("Both", file)
    for rule in ({"target_reward": 1.0}, {"plateau_patience": 3}):
        (name,) = rule
        with pytest.raises(UserError, match=f"{name} watches the episodes of a training, and bc"):
            Agent(
                "bc", "toy_envs:Which", {"demonstrations": file}, total_timesteps=9,
                controls=Controls(**rule),  # type: ignore[arg-type]
            )  # fmt: skip
    agent = make("Which", file)
    with pytest.raises(UserError, match="target_reward watches"):
        agent.go_on(Controls(target_reward=1.0))
    with pytest.raises(UserError, match="engine numpy has nothing for BC"):
        Agent("bc", "toy_envs:Which", {"demonstrations": file}, total_timesteps=9, engine="numpy")


def test_the_data_of_a_search_are_looked_at_before_it(tmp_path: Path) -> None:
    file = demonstrate("Which", tmp_path / "demos.parquet")
    check_fit("bc", "toy_envs:Which", [{}])  # nothing is asked for
    with pytest.raises(UserError, match="agent bc needs demonstrations"):
        check_fit("bc", "toy_envs:Which", [{"demonstrations": ""}])
    check_fit("bc", "toy_envs:Which", [{"demonstrations": file}], has_data=True)
    check_fit("bc", "toy_envs:Which", [{"demonstrations": "/on/the/cluster"}])
    with pytest.raises(UserError, match="there is no file"):
        check_fit("bc", "toy_envs:Which", [{"demonstrations": "/not/here"}], has_data=True)
    with pytest.raises(UserError, match="but here"):
        check_fit("bc", "toy_envs:Both", [{"demonstrations": file}], has_data=True)


def test_a_damaged_observation_ends_the_training(tmp_path: Path) -> None:
    file = demonstrate("Aim", tmp_path / "demos.parquet")
    agent = make("Aim", file, learning_rate=1e30, max_grad_norm=0.0)
    chunk = agent.learn(6400)
    assert chunk.diverged is not None
    assert "non-finite" in chunk.diverged
    assert math.isfinite(chunk.values["loss"][0])
