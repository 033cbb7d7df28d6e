"""Trainer files of ML-Agents: both styles become configurations that agents take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rltune.agents.config import make_config
from rltune.agents.errors import UserError
from rltune.agents.registry import agent_class
from rltune.cli import main
from rltune.importing.mlagents import DEFAULTS, import_trainer
from rltune.importing.settings import Translation
from rltune.importing.text import as_yaml

NEW = """\
behaviors:
  Pyramids:
    trainer_type: ppo
    time_horizon: 128
    max_steps: 1.0e7
    summary_freq: 30000
    hyperparameters:
      batch_size: 128
      beta: 0.01
      buffer_size: 2048
      epsilon: 0.2
      lambd: 0.95
      learning_rate: 0.0003
      num_epoch: 3
    network_settings:
      num_layers: 2
      normalize: false
      hidden_units: 512
      vis_encode_type: resnet
      memory: {memory_size: 256, sequence_length: 48}
    reward_signals:
      extrinsic: {strength: 2.0, gamma: 0.995}
      curiosity: {strength: 0.02, gamma: 0.99, encoding_size: 256}
    behavioral_cloning: {demo_path: Expert.demo, strength: 0.5, steps: 150000}
"""
OLD = """\
default:
    trainer: sac
    batch_size: 128
    buffer_size: 50000
    buffer_init_steps: 0
    hidden_units: 128
    init_entcoef: 1.0
    learning_rate: 3.0e-4
    max_steps: "5.0e5"
    normalize: false
    num_update: 1
    train_interval: 1
    num_layers: 2
    tau: 0.005
    save_replay_buffer: false
    use_recurrent: false
    reward_signals:
        extrinsic: {strength: 1.0, gamma: 0.99}
Walker:
    normalize: true
    num_layers: 4
    train_interval: 2
    hidden_units: 512
    max_steps: 2e7
    reward_signals:
        extrinsic: {strength: 3.0, gamma: 0.995}
Hallway:
    use_recurrent: true
    sequence_length: 32
    memory_size: 64
    num_update: 4
"""


def translated(text: str, folder: Path, behavior: str | None = None, **options: Any) -> Translation:
    file = folder / "trainer.yaml"
    file.write_text(text)
    found = import_trainer(file, behavior, **options)
    make_config(agent_class(found.agent).Config, found.config)  # an agent takes it
    read = yaml.safe_load(as_yaml(found, file))
    assert (read["agent"], read["budget"]) == (found.agent, found.budget)
    assert read["config"] == found.config
    return found


def test_todays_style(tmp_path: Path) -> None:
    found = translated(NEW, tmp_path)
    assert (found.behavior, found.agent, found.budget) == ("Pyramids", "ppo", 10_000_000)
    assert found.config == {
        "learning_rate": "lin_0.0003", "batch_size": 128, "net_arch": [512, 512],
        "activation": "silu", "max_grad_norm": 0.0, "optimizer_eps": 1e-8,
        "normalize_observations": False, "normalize_rewards": False, "n_envs": 16, "n_steps": 144,
        "n_epochs": 3, "gae_lambda": 0.95, "clip_range": "lin_0.2", "clip_range_vf": "lin_0.2",
        "ent_coef": 0.01, "vf_coef": 0.5, "lstm_size": 128, "sequence_length": 48, "gamma": 0.995,
        "extrinsic_strength": 2.0, "curiosity_strength": 0.02, "curiosity_gamma": 0.99,
        "curiosity_learning_rate": 3e-4, "curiosity_size": 256, "reward_signal_updates": 54,
        "reward_signal_batch_size": 128,
    }  # fmt: skip
    said = "\n".join(found.notes)
    for part in (
        "reward_signals.curiosity.strength: of rewards that are divided by their running deviation",
        "behavioral_cloning: a .demo file can't be read",
        "vis_encode_type: with --visual, for images, it becomes encoder: impala_resnet",
        "summary_freq: evaluations are asked for with --eval-freq",
        "n_envs: 16 environments of 128 steps are a buffer_size of 2048",
        "beta: it falls to 1e-5 there",
    ):
        assert part in said, part


def test_images_and_demonstrations(tmp_path: Path) -> None:
    found = translated(NEW, tmp_path, visual=True, demonstrations="demos.parquet")
    assert found.config["encoder"] == "impala_resnet"
    cloning = {name: found.config[name] for name in found.config if name.startswith("cloning")}
    assert cloning == {
        "cloning": 0.5, "cloning_steps": 150_000, "cloning_batch_size": 128, "cloning_updates": 3,
    }  # fmt: skip
    assert found.config["demonstrations"] == "demos.parquet"
    assert not any("behavioral_cloning" in note for note in found.notes)


def test_signals_of_both_styles(tmp_path: Path) -> None:
    signals = """\
    reward_signals:
        gail: {strength: 0.5, encoding_size: 64, use_actions: true, demo_path: Expert.demo}
        rnd: {learning_rate: 1e-4, network_settings: {hidden_units: 32, num_layers: 3}}
        unheard_of: {strength: 1}
    reward_signal_num_update: 4
"""
    text = f"A:\n    trainer: sac\n{signals}"
    found = translated(text, tmp_path, demonstrations="demos.parquet")
    own = {name: value for name, value in found.config.items() if name.startswith(("gail", "rnd"))}
    assert own == {
        "gail_strength": 0.5, "gail_gamma": 0.99, "gail_learning_rate": 3e-4, "gail_size": 64,
        "gail_use_actions": True, "gail_use_vail": False, "rnd_strength": 1.0, "rnd_gamma": 0.99,
        "rnd_learning_rate": 1e-4, "rnd_size": 32,
    }  # fmt: skip
    assert found.config["reward_signal_updates"] == 4
    assert found.config["demonstrations"] == "demos.parquet"
    assert "reward_signals.unheard_of: rltune has curiosity, rnd, gail" in found.notes
    assert "reward_signals.rnd.network_settings.num_layers: has no counterpart" in found.notes
    without = translated(text, tmp_path)
    assert "gail_strength" not in without.config
    assert any("reward_signals.gail: a .demo file can't be read" in said for said in without.notes)


def test_the_older_style(tmp_path: Path) -> None:
    found = translated(OLD, tmp_path, "Walker")
    assert (found.agent, found.budget) == ("sac", 20_000_000)
    assert found.config == {
        "learning_rate": 3e-4, "batch_size": 128, "net_arch": [512] * 4, "activation": "silu",
        "max_grad_norm": 0.0, "optimizer_eps": 1e-8, "normalize_observations": True,
        "normalize_rewards": False, "buffer_size": 50_000, "learning_starts": 0,
        "ent_coef": "auto_1", "tau": 0.005, "train_freq": 2, "gradient_steps": 1, "gamma": 0.995,
        "extrinsic_strength": 3.0,
    }  # fmt: skip
    assert found.notes == ["save_replay_buffer: a checkpoint always has the replay memory"]
    hallway = translated(OLD, tmp_path, "Hallway")
    assert (hallway.config["lstm_size"], hallway.config["sequence_length"]) == (32, 32)
    assert (hallway.config["train_freq"], hallway.config["gradient_steps"]) == (1, 4)
    assert hallway.budget == 500_000
    assert translated(OLD, tmp_path, "default").config["net_arch"] == [128, 128]


@pytest.mark.parametrize("trainer", ["ppo", "sac"])
def test_what_is_missing_has_ml_agents_default(trainer: str, tmp_path: Path) -> None:
    found = translated(f"behaviors: {{A: {{trainer_type: {trainer}}}}}", tmp_path)
    assert found.budget == DEFAULTS[trainer]["max_steps"]
    assert found.config["net_arch"] == [128, 128]
    own = {"ppo": ("n_envs", 160), "sac": ("ent_coef", "auto_1")}[trainer]
    assert found.config[own[0]] == own[1]


@pytest.mark.parametrize(("ratio", "updates"), [(10, (10, 1)), (1, (1, 1)), (0.25, (1, 4))])
def test_steps_per_update(ratio: float, updates: tuple[int, int], tmp_path: Path) -> None:
    text = (
        f"behaviors: {{A: {{trainer_type: sac, hyperparameters: {{steps_per_update: {ratio}}}}}}}"
    )
    found = translated(text, tmp_path)
    assert (found.config["train_freq"], found.config["gradient_steps"]) == updates


@pytest.mark.parametrize(
    ("text", "behavior", "said"),
    [
        ("[1, 2]", None, "is no trainer file"),
        ("behaviors: 3", None, "is no trainer file"),
        (OLD, None, r"which behavior\? Give --behavior, one of Walker, Hallway"),
        (OLD, "Walkr", r"did you mean 'Walker'\?"),
        ("behaviors: {A: 3}", None, r"behaviors.A: needs settings by name"),
        ("behaviors: {A: {trainer_type: poca}}", None, "learns from groups of agents"),
        ("behaviors: {A: {trainer_type: dqn}}", None, "unknown trainer 'dqn'"),
        ("A: {batch_size: many}", None, "batch_size needs a number from 1 up; got 'many'"),
        ("A: {hidden_units: 2.5}", None, "hidden_units needs a whole number; got 2.5"),
        ("A: {learning_rate_schedule: cosine}", None, "needs linear or constant; got 'cosine'"),
        ("A: {reward_signals: 3}", None, "reward_signals needs settings by name"),
        ("A: {reward_signals: {extrinsic: 3}}", None, "extrinsic needs settings by name"),
        ("A: {trainer: sac, steps_per_update: 0}", None, "needs a number above 0"),
    ],
)
def test_mistakes_are_said_with_their_place(
    text: str, behavior: str | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said) as error:
        translated(text, tmp_path, behavior)
    assert "trainer.yaml" in str(error.value)


def test_a_training_takes_what_the_command_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "behaviors: {Pole: {max_steps: 400, time_horizon: 50, hyperparameters: {buffer_size: 100}}}"
    )
    (tmp_path / "trainer.yaml").write_text(text)
    assert main(["import-trainer", "trainer.yaml", "-o", "ours.yaml"]) == 0
    words = [
        "train",
        "ppo",
        "--config",
        "ours.yaml",
        "--env",
        "CartPole-v1",
        "--name",
        "pole",
        "--plain",
    ]
    assert main(words) == 0
    spec = yaml.safe_load((tmp_path / "runs" / "pole" / "run.yaml").read_text())["spec"]
    assert (spec["agent"], spec["total_timesteps"]) == ("ppo", 400)
    assert spec["config"]["activation"] == "silu"
    capsys.readouterr()
    assert main(["import-trainer", "nothing.yaml"]) == 2
    assert "nothing.yaml: no such file" in capsys.readouterr().err
