"""`rltune.train` and the command line ask for the same training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rltune
from rltune.cli import main
from rltune.runs.directory import RunDir
from rltune.runs.train_spec import TrainSpec
from rltune.training import request
from rltune.training.train import TrainResult


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[TrainSpec]:
    """The specification that would be trained, instead of a training."""
    specs: list[TrainSpec] = []

    def train(spec: TrainSpec, **_: Any) -> TrainResult:
        specs.append(spec)
        return TrainResult(Path("runs/x"), 1, 1.0, None, None, None, 0, None, None, False)

    monkeypatch.setattr(request, "train_spec", train)
    monkeypatch.setattr("rltune.training.train.train", train)
    return specs


def test_keywords_are_the_flags(asked: list[TrainSpec]) -> None:
    rltune.train(
        "ppo", "CartPole-v1", total_timesteps=5e3, lr=1e-3, net_arch=[8, 8],
        normalize_rewards=False, seed=3, eval_freq=500, eval_mode="stochastic",
        eval_at_start=True, target_reward=100,
        env_kwargs={"sutton_barto_reward": True}, save_replay_buffer=False, wandb="off",
    )  # fmt: skip
    flags = (
        "train ppo --env CartPole-v1 -n 5e3 --lr 1e-3 --net-arch 8,8 --no-normalize-rewards "
        "--seed 3 --eval-freq 500 --eval-mode stochastic --eval-at-start --target-reward 100 "
        "--no-save-replay-buffer --wandb off"
    )
    main([*flags.split(), "--env-kwargs", "{sutton_barto_reward: true}"])
    one, other = asked
    assert one == other
    assert one.config == {"learning_rate": 1e-3, "net_arch": (8, 8), "normalize_rewards": False}
    assert one.controls == {"target_reward": 100}


def test_data_in_place_of_files(asked: list[TrainSpec]) -> None:
    exported = {"env": "CartPole-v1", "budget": 500, "config": {"gamma": 0.9, "n_steps": 16}}
    schedule = [{"env_steps": 100, "config": {"gamma": 0.5}}]
    rltune.train("ppo", config=exported, schedule=schedule, gamma=0.8)
    (spec,) = asked
    assert (spec.env, spec.total_timesteps, spec.schedule) == ("CartPole-v1", 500, schedule)
    assert (spec.config["gamma"], spec.config["n_steps"]) == (0.8, 16)
    rltune.train("td3", "Pendulum-v1", preset="zoo")
    assert asked[1].config["learning_rate"] == 1e-3


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"learnin_rate": 1}, "unknown keyword 'learnin_rate'; did you mean 'learning_rate'"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast', but must be a number"),
        ({"eval_mode": "lucky"}, "--eval-mode: unknown value 'lucky'"),
        ({"preset": "zoo", "config": {}}, "keep one of them"),
    ],
)
def test_mistakes(keywords: dict[str, Any], said: str, asked: list[TrainSpec]) -> None:
    with pytest.raises(rltune.UserError, match=said):
        rltune.train("ppo", "CartPole-v1", **keywords)
    with pytest.raises(rltune.UserError, match="which environment"):
        rltune.train("ppo")


def test_from_python_to_a_policy(tmp_path: Path) -> None:
    done = rltune.train(
        "ppo", "CartPole-v1", total_timesteps=64, n_envs=2, n_steps=16, net_arch=[8],
        eval_freq=32, eval_episodes=2, wandb="off", name="one", storage_path=tmp_path, plain=True,
    )  # fmt: skip
    assert RunDir.open(tmp_path / "one").spec["config"]["n_steps"] == 16
    evaluation = rltune.evaluate(done, 2, seed=1)
    assert rltune.evaluate(done.policy(), 2, seed=1).returns == evaluation.returns
    assert rltune.evaluate(tmp_path / "one/checkpoints/last.pt", 2, seed=1).returns == (
        evaluation.returns
    )
    child = rltune.train(
        "ppo", "CartPole-v1", total_timesteps=32, n_envs=2, n_steps=16, net_arch=[8], weights=done,
        eval_episodes=2, wandb="off", name="child", storage_path=tmp_path, plain=True,
    )  # fmt: skip
    assert RunDir.open(child.path).spec["weights"] == str(done.path)
    stochastic = rltune.evaluate(done, 5, seed=1, eval_mode="stochastic")
    assert stochastic.returns != rltune.evaluate(done, 5, seed=1).returns
    video = tmp_path / "play.gif"
    assert rltune.play(done, video=video, max_steps=3, best=True).lengths == [3]
    assert video.is_file()
