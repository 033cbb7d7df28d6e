"""Logs of Stable-Baselines3 and rl-zoo3, as a comparison reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.comparing import sb3_logs
from rltune.comparing.sb3_logs import read_logs

# As rl-zoo3 2.9.2 writes them.
ARGS = """\
!!python/object/apply:collections.OrderedDict
- - - algo
    - ppo
  - - env
    - CartPole-v1
  - - env_kwargs
    - null
  - - n_timesteps
    - {steps}
  - - seed
    - {seed}
"""
CONFIG = """\
!!python/object/apply:collections.OrderedDict
- - - learning_rate
    - lin_0.001
  - - n_timesteps
    - 100000.0
  - - net_arch
    - !!python/tuple
      - 64
      - 64
  - - policy
    - {policy}
"""


def write_monitor(file: Path, episodes: Sequence[tuple[float, int, float]], start: float = 5.0,
                  env: str = "CartPole-v1") -> None:  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"#{json.dumps({'t_start': start, 'env_id': env})}", "r,l,t"]
    lines += [",".join(map(str, episode)) for episode in episodes]
    file.write_text("\n".join(lines) + "\n")


def write_evaluations(folder: Path, value: float, steps: int = 10_000) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    points = np.arange(1, 11) * steps // 10
    results = np.linspace(value / 10, value, 10)[:, None] + np.array([-1.0, 1.0])
    np.savez(folder / "evaluations.npz", timesteps=points, results=results,
             ep_lengths=results)  # fmt: skip
    return folder


def write_zoo(logs: Path, number: int, value: float, *, policy: str = "MlpPolicy") -> Path:
    folder = write_evaluations(logs / "ppo" / f"CartPole-v1_{number}", value)
    for worker in range(2):
        episodes = [(20.0, 1000, 2.0 * k + worker) for k in range(1, 5)]
        write_monitor(folder / f"{worker}.monitor.csv", episodes, start=100.0 + 0.5 * worker)
    (folder / "CartPole-v1").mkdir()
    text = ARGS.format(steps=10_000, seed=40 + number)
    (folder / "CartPole-v1" / "args.yml").write_text(text)
    (folder / "CartPole-v1" / "config.yml").write_text(CONFIG.format(policy=policy))
    return folder


def test_folders_of_rl_zoo3_are_seeds_of_one_entry(tmp_path: Path) -> None:
    for number in range(1, 12):
        write_zoo(tmp_path / "logs", number, 400.0 + number)
    found = rltune.compare(tmp_path / "logs")
    (row,) = found.environments[0].rows
    assert row.label == "sb3 ppo"
    assert [training.seed for training in row.entry.trainings] == list(range(41, 52))
    assert row.scores == pytest.approx([0.9 * (400 + number) for number in range(1, 12)])
    assert found.environments[0].env == "CartPole-v1"
    # 8,000 env_steps of episodes have ended; what is missing to 10,000 may be under way.
    assert found.warnings == ()
    one = row.entry.trainings[0]
    assert (one.planned, one.reached) == (10_000, 10_000)
    assert one.config == {"learning_rate": "lin_0.001", "net_arch": [64, 64], "policy": "MlpPolicy"}
    # Two workers, 1,000 steps each in 2 s: the evaluation at 4,000 came after 4 episodes.
    assert one.curve.seconds is not None
    assert one.curve.seconds[3] == pytest.approx(5.5)

    write_zoo(tmp_path / "logs", 12, 300.0, policy="Other")
    found = rltune.compare(tmp_path / "logs")
    assert found.labels == ["sb3 ppo, policy MlpPolicy", "sb3 ppo, policy Other"]


def test_training_episodes_of_workers_run_side_by_side(tmp_path: Path) -> None:
    write_monitor(tmp_path / "a2c" / "0.monitor.csv", [(1, 10, 1.0), (3, 10, 3.0)], start=50.0)
    write_monitor(tmp_path / "a2c" / "1.monitor.csv", [(2, 20, 1.0), (4, 10, 3.0)], start=51.0)
    (one,) = read_logs(tmp_path)
    assert (one.agent, one.env, one.metric) == ("sb3 a2c", "CartPole-v1", "mean_reward")
    # In the order of their ends: 1 (after 10 env_steps), 2 (30), 3 (40), 4 (50).
    assert one.curve.env_steps[-1] == 50
    at = dict(zip(one.curve.env_steps.tolist(), one.curve.values.tolist(), strict=True))
    assert (at[10.0], at[30.0], at[40.0], at[50.0]) == (1, 1.5, 2, 2.5)
    assert min(at) == 10
    seconds = dict(zip(one.curve.env_steps, one.curve.seconds, strict=True))
    assert (seconds[10.0], seconds[50.0]) == (1, 4)
    said = " ".join(rltune.compare(tmp_path).warnings)
    assert "sb3 a2c: there are no evaluations" in said
    assert "stands in" not in " ".join(rltune.compare(tmp_path, metric="mean_reward").warnings)


def test_names_of_the_users_own_are_trainings_of_their_own(tmp_path: Path) -> None:
    for seed in range(3):
        write_monitor(tmp_path / f"seed{seed}.monitor.csv", [(seed, 10, 1.0)])
    trainings = read_logs(tmp_path)
    assert [training.name for training in trainings] == ["seed0", "seed1", "seed2"]
    assert len(rltune.compare(tmp_path).environments[0].rows[0].scores) == 3


def test_a_single_file(tmp_path: Path) -> None:
    folder = write_evaluations(tmp_path / "sac_1" / "eval", 200.0)
    with pytest.raises(
        UserError, match=r"doesn't say of which environment it is; --env ENV does\."
    ):
        rltune.compare(folder / "evaluations.npz")
    found = rltune.compare(folder / "evaluations.npz", env="Pendulum-v1")
    assert (found.labels, found.environments[0].env) == (["sb3 sac"], "Pendulum-v1")
    (lengths,) = read_logs(folder, "-eval_length", env="x")
    assert lengths.curve.values[-1] == pytest.approx(-200)


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "monitor.csv"
    write_monitor(file, [(5, 10, 1.0), (7, 10, 2.0)])
    with open(file, "a") as stream:
        stream.write("9,1")
    (one,) = read_logs(tmp_path)
    assert (one.reached, one.curve.values[-1]) == (20, 6)


def test_a_return_that_is_no_number_counts_as_diverged(tmp_path: Path) -> None:
    folder = write_evaluations(tmp_path / "ppo", math.nan)
    (one,) = read_logs(folder, env="x")
    assert one.score("last:3") == -math.inf


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("evaluations.npz", b"PK\x03\x04 no archive", "is damaged, or not written by an EvalCall"),
        ("evaluations.npz", b"", "is damaged, or not written by an EvalCallback"),
        ("monitor.csv", b"\xff\xfe\x00", "is damaged, or not written by a Monitor"),
        ("monitor.csv", b"a,b\n1,2\n", "is damaged, or not written by a Monitor"),
        ("monitor.csv", b'#{"t_start": 1.0}\nr,l,t\n', "has no finished episode"),
        ("args.yml", b"a: [", "is damaged: it is not readable as YAML"),
        ("args.yml", b"!!python/object/apply:collections.OrderedDict\n- 3\n", "is damaged: it is"),
    ],
)
def test_damaged_files_are_one_sentence(
    name: str, content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_zoo(tmp_path, 1, 400.0)
    (folder / name).write_bytes(content)
    for file in folder.glob("*.monitor.csv") if name == "monitor.csv" else ():
        file.unlink()
    assert main(["compare", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1


def test_nothing_of_a_log_is_executed(tmp_path: Path) -> None:
    folder = write_zoo(tmp_path, 1, 400.0)
    (folder / "CartPole-v1" / "args.yml").write_text(
        f"algo: !!python/object/apply:os.system ['touch {tmp_path}/evil']\nenv: CartPole-v1\n"
    )
    pickled = np.array([[1.0, None]], dtype=object)
    rltune.compare(folder)
    np.savez(folder / "evaluations.npz", timesteps=np.array([1]), results=pickled)
    with pytest.raises(UserError, match="is damaged"):
        rltune.compare(folder)
    assert not (tmp_path / "evil").exists()


def test_what_stable_baselines3_really_writes(tmp_path: Path) -> None:
    stable = pytest.importorskip("stable_baselines3")
    import gymnasium
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.monitor import Monitor

    for seed in (0, 1):
        folder = tmp_path / f"ppo_{seed}"
        folder.mkdir()
        env = Monitor(gymnasium.make("CartPole-v1"), str(folder / "monitor.csv"))
        evaluations = EvalCallback(
            Monitor(gymnasium.make("CartPole-v1")), eval_freq=128, n_eval_episodes=2,
            log_path=str(folder / "eval"), verbose=0,
        )  # fmt: skip
        agent = stable.PPO("MlpPolicy", env, seed=seed, device="cpu", n_steps=128, n_epochs=1)
        agent.learn(256, callback=evaluations)
    found = rltune.compare(tmp_path, objective="last")
    (row,) = found.environments[0].rows
    assert (row.label, len(row.scores)) == ("sb3 ppo", 2)
    for training, score in zip(row.entry.trainings, row.scores, strict=True):
        data = np.load(training.source / "eval" / "evaluations.npz")
        assert score == data["results"][-1].mean()
        assert list(training.curve.env_steps) == [128, 256]
        assert training.curve.seconds is not None
        assert training.reached == 256


def test_archives_that_lie_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compression that nobody knows (found by the fuzzer), and more zeros than memory."""
    file = tmp_path / "evaluations.npz"
    np.savez(file, timesteps=np.arange(2), results=np.zeros((2, 3)))
    content = bytearray(file.read_bytes())
    for start in (content.find(b"PK\x03\x04") + 8, content.find(b"PK\x01\x02") + 10):
        content[start] = 77
    file.write_bytes(bytes(content))
    with pytest.raises(UserError, match="damaged"):
        read_logs(tmp_path, env="CartPole-v1")
    monkeypatch.setattr(sb3_logs, "LARGEST", 1_000_000)
    np.savez_compressed(file, timesteps=np.arange(2), results=np.zeros((2, 100_000)))
    with pytest.raises(UserError, match="too large"):
        read_logs(tmp_path, env="CartPole-v1")
