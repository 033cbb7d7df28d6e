from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import rltune
import torch
from rltune.agents import Agent
from rltune.agents.algorithms.ppo import PPOConfig
from rltune.agents.config import config_dict, make_config
from rltune.agents.errors import UserError
from rltune.cli import main, make_parser
from rltune.runs.directory import RunDir
from rltune.runs.history import read_episodes, read_history
from rltune.runs.train_spec import TrainSpec
from rltune.training import train as train_module
from rltune.training.train import resume_training, train

TINY = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 1, "net_arch": [8]}


def spec(**changes: Any) -> TrainSpec:
    values = {"agent": "ppo", "env": "CartPole-v1", "config": TINY, "total_timesteps": 320}
    return TrainSpec(**{**values, "eval_freq": 80, "eval_episodes": 2, "wandb": "off", **changes})


def weights(path: Path) -> dict[str, torch.Tensor]:
    state = torch.load(path, weights_only=True)
    nets: dict[str, torch.Tensor] = state["algorithm"]["nets"]
    return nets


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_training_leaves_everything_in_its_run_directory(tmp_path: Path) -> None:
    result = train(spec(), name="one", storage_path=tmp_path, plain=True)
    assert result.path == tmp_path / "one"
    assert (result.env_steps, result.exit_code) == (320, 0)
    history = read_history(result.path)
    assert history["env_steps"].tolist() == [80, 160, 240, 320]
    assert history["iteration"].tolist() == [1, 2, 3, 4]
    assert set(history["role"]) == {"train"}
    assert history["eval_return"].notna().all()
    assert history["policy_loss"].notna().all()
    assert {"mean_reward", "best_reward", "episode_reward", "step", "time"} <= set(history)
    episodes = read_episodes(result.path)
    assert episodes["length"].sum() <= 320
    assert history["mean_reward"].iloc[-1] == pytest.approx(episodes["episode_return"].mean())
    run = RunDir.open(result.path)
    assert run.kind == "train"
    assert run.spec["config"]["n_steps"] == 16
    assert run.spec["config"]["clip_range"] == 0.2  # the defaults are written down too
    best = history["eval_return"].max()
    assert Agent.load(result.path / "checkpoints/best.pt").evaluate(2).mean == best
    assert result.best_return == best


def test_it_is_the_agent_that_a_search_would_train(tmp_path: Path) -> None:
    result = train(spec(seed=103), name="one", storage_path=tmp_path, plain=True)
    config = config_dict(make_config(PPOConfig, TINY))
    agent = Agent("ppo", "CartPole-v1", config, total_timesteps=320, seed=103)
    agent.learn(320)
    agent.save(tmp_path / "other.pt")
    assert same(weights(result.path / "checkpoints/last.pt"), weights(tmp_path / "other.pt"))


def interrupt_at(monkeypatch: pytest.MonkeyPatch, iteration: int, action: Any) -> None:
    """Do something in the ``iteration``-th history row of every training from now on."""
    append = train_module.HistoryWriter.append

    def appended(self: Any, row: dict[str, Any], episodes: Any) -> None:
        append(self, row, episodes)
        if row["iteration"] == iteration:
            action()

    monkeypatch.setattr(train_module.HistoryWriter, "append", appended)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_control_c_stops_cleanly_and_resume_goes_on(
    signum: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signum)  # ignored where a shell has put us in the background
    whole = train(spec(), name="whole", storage_path=tmp_path, plain=True)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, lambda: os.kill(os.getpid(), signum))
        stopped = train(spec(), name="cut", storage_path=tmp_path, plain=True)
    assert stopped.interrupted
    assert (stopped.env_steps, stopped.exit_code) == (160, 130)
    assert signal.getsignal(signum) is before
    resumed = resume_training(stopped.path, plain=True)
    assert (resumed.env_steps, resumed.exit_code) == (320, 0)
    check_equal(whole.path, resumed.path)


def check_equal(one: Path, other: Path) -> None:
    """The two runs have the same agent, history and episodes."""
    assert same(weights(one / "checkpoints/last.pt"), weights(other / "checkpoints/last.pt"))
    clock = ["time", "timestamp", "env_steps_per_second"]
    for read in (read_history, read_episodes):
        left, right = read(one), read(other)
        drop = [name for name in clock if name in left]
        assert left.drop(columns=drop).equals(right.drop(columns=drop)[left.columns.drop(drop)])


@pytest.mark.parametrize("iteration", [1, 3])
def test_a_killed_training_has_no_gap_and_no_doubled_row(
    iteration: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    whole = train(spec(), name="whole", storage_path=tmp_path, plain=True)
    with monkeypatch.context() as patch:
        interrupt_at(patch, iteration, kill)  # after the row, before the checkpoint
        with pytest.raises(Killed):
            train(spec(), name="cut", storage_path=tmp_path, plain=True)
    resumed = resume_training(tmp_path / "cut", plain=True)
    check_equal(whole.path, resumed.path)


def test_a_training_goes_on_on_another_device(tmp_path: Path) -> None:
    done = train(spec(device="cpu"), name="one", storage_path=tmp_path, plain=True)
    file = done.path / "run.yaml"
    file.write_text(file.read_text().replace("device: cpu", "device: xpu"))  # another machine's
    with pytest.raises(UserError, match=r"device 'xpu' can't be used: .*; --device cpu computes"):
        resume_training(done.path, total_timesteps=480)
    longer = resume_training(done.path, total_timesteps=480, device="cpu", plain=True)
    assert longer.env_steps == 480
    assert RunDir.open(done.path).spec["device"] == "cpu"


def test_a_finished_training_can_be_made_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = train(spec(), name="one", storage_path=tmp_path, plain=True)
    with pytest.raises(UserError, match=r"finished: 320 env steps .* -n 640"):
        resume_training(done.path)
    capsys.readouterr()
    assert main(["resume", str(done.path)]) == 0  # it may have been killed after its last step
    assert "is finished: 320 env steps are done" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"'one' is a training; rltune\.resume_training"):
        rltune.resume(done.path)
    longer = rltune.resume_training(done.path, total_timesteps=480, plain=True)
    assert longer.env_steps == 480
    assert read_history(done.path)["env_steps"].tolist() == [80, 160, 240, 320, 400, 480]
    assert RunDir.open(done.path).spec["total_timesteps"] == 480


def test_what_a_target_has_ended_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controls = {"target_reward": 1.0, "reward_buffer_size": 3}
    short = train(spec(controls=controls), name="one", storage_path=tmp_path, plain=True)
    assert "reached the target 1" in str(short.stop_reason)
    assert short.env_steps < 320
    # Its own length is the first that is offered, and not twice as much with each call.
    for _ in range(2):
        with pytest.raises(UserError, match=r"--target-reward X, or without one, .* -n 320`"):
            resume_training(short.path)
    with pytest.raises(UserError, match=r"-n 10: .* are done already"):
        resume_training(short.path, total_timesteps=10)
    with pytest.raises(UserError, match=r"--target-reward 1: the mean reward is .* already"):
        resume_training(short.path, target_reward=1.0)
    with pytest.raises(UserError, match="must be a number, not nan"):
        resume_training(short.path, target_reward=float("nan"))
    capsys.readouterr()
    assert main(["resume", str(short.path), "--target-reward", "1e6", "--plain"]) == 0
    spec_now = RunDir.open(short.path).spec
    assert spec_now["controls"] == {"target_reward": 1e6, "reward_buffer_size": 3}
    assert read_history(short.path)["env_steps"].iloc[-1] == 320
    longer = resume_training(short.path, total_timesteps=384, plain=True)
    assert (longer.env_steps, longer.stop_reason) == (384, None)
    assert read_history(short.path)["iteration"].is_monotonic_increasing


def test_what_a_plateau_has_ended_goes_on(tmp_path: Path) -> None:
    controls = {"plateau_patience": 1, "early_stop_patience": 2}
    short = train(spec(controls=controls), name="one", storage_path=tmp_path, plain=True)
    assert "no better mean reward" in str(short.stop_reason)
    longer = resume_training(short.path, total_timesteps=320, plain=True)
    assert (longer.env_steps, longer.stop_reason) == (320, None)
    assert RunDir.open(short.path).spec["controls"] == {"plateau_patience": 1}


# ------------------------------------------------------------------------- what checkpoints hold

REPLAYS = {"net_arch": [8], "buffer_size": 400, "learning_starts": 50, "batch_size": 8}


def memory_of(path: Path) -> Any:
    return torch.load(path, weights_only=True)["memory"]


def test_only_who_is_resumed_has_a_replay_memory(tmp_path: Path) -> None:
    done = train(spec(agent="dqn", config=REPLAYS), name="one", storage_path=tmp_path, plain=True)
    last, best = (done.path / "checkpoints" / f"{name}.pt" for name in ("last", "best"))
    assert memory_of(last)["steps"] == 320
    assert memory_of(best) is None
    assert best.stat().st_size < last.stat().st_size - 10_000  # 320 steps of 37 bytes
    small = spec(agent="dqn", config=REPLAYS, save_replay_buffer=False)
    done = train(small, name="small", storage_path=tmp_path, plain=True)
    assert memory_of(done.path / "checkpoints/last.pt") is None


def test_a_training_without_its_replay_memory_fills_a_new_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = spec(agent="dqn", config=REPLAYS, save_replay_buffer=False)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
        cut = train(small, name="cut", storage_path=tmp_path, plain=True)
    assert cut.env_steps == 160
    capsys.readouterr()
    agent = Agent.load(cut.path / "checkpoints/last.pt")
    before = {name: value.clone() for name, value in agent.algorithm.nets.state_dict().items()}
    assert agent.learn(160 + 49).updates == 0
    assert same(agent.algorithm.nets.state_dict(), before)
    agent.learn(160 + 80)
    assert not same(agent.algorithm.nets.state_dict(), before)
    agent.close()
    assert resume_training(cut.path, plain=True).env_steps == 320
    said = " ".join(capsys.readouterr().err.split())
    assert "the replay memory was not saved: a new one is filled first" in said


def test_the_switch_is_of_replay_memories_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(spec(), name="whole", storage_path=tmp_path, plain=True)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
        cut = train(spec(save_replay_buffer=False), name="cut", storage_path=tmp_path, plain=True)
    check_equal(whole.path, resume_training(cut.path, plain=True).path)


# ------------------------------------------------------------------------------ how it is evaluated


def test_an_evaluation_at_the_start_changes_nothing_else(tmp_path: Path) -> None:
    without = train(spec(), name="without", storage_path=tmp_path, plain=True)
    with_it = train(spec(eval_at_start=True), name="with", storage_path=tmp_path, plain=True)
    last = "checkpoints/last.pt"
    assert same(weights(without.path / last), weights(with_it.path / last))
    history = read_history(with_it.path)
    assert history["env_steps"].tolist() == [0, 80, 160, 240, 320]
    assert history["iteration"].tolist() == [0, 1, 2, 3, 4]
    agent = Agent("ppo", "CartPole-v1", TINY, total_timesteps=320)
    assert history["eval_return"].iloc[0] == agent.evaluate(2).mean
    returns = history["eval_return"].tolist()
    assert returns[1:] == read_history(without.path)["eval_return"].tolist()


def test_a_training_killed_after_its_first_evaluation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    asked = spec(eval_at_start=True)
    whole = train(asked, name="whole", storage_path=tmp_path, plain=True)
    for iteration in (0, 1):
        with monkeypatch.context() as patch:
            interrupt_at(patch, iteration, kill)
            with pytest.raises(Killed):
                train(asked, name=f"cut-{iteration}", storage_path=tmp_path, plain=True)
        check_equal(whole.path, resume_training(tmp_path / f"cut-{iteration}", plain=True).path)


@pytest.mark.parametrize(
    ("agent", "config"),
    [("ppo", {**TINY, "use_sde": True}), ("td3", REPLAYS), ("sac", {**REPLAYS, "use_sde": True})],
)
def test_evaluations_that_explore_do_not_touch_the_training(
    agent: str, config: dict[str, Any], tmp_path: Path
) -> None:
    if agent == "td3":
        config = {**config, "noise_type": "ornstein-uhlenbeck"}
    asked = spec(agent=agent, config=config, env="Pendulum-v1", total_timesteps=160)
    greedy = train(asked, name="greedy", storage_path=tmp_path, plain=True)
    changed = dataclasses.replace(asked, eval_mode="stochastic")
    stochastic = train(changed, name="stochastic", storage_path=tmp_path, plain=True)
    last = "checkpoints/last.pt"
    assert same(weights(greedy.path / last), weights(stochastic.path / last))
    one, other = (read_history(run.path)["eval_return"] for run in (greedy, stochastic))
    assert (one != other).all()
    loaded = Agent.load(stochastic.path / last)
    assert loaded.evaluate(2, mode="stochastic").mean == other.iloc[-1]  # of seeds of its own


# ------------------------------------------------------------------------------------- from weights


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training whose networks others begin with."""
    folder = tmp_path_factory.mktemp("parent")
    return train(spec(seed=7), name="parent", storage_path=folder, plain=True).path


def test_a_training_starts_from_weights(parent: Path, tmp_path: Path) -> None:
    fast = {**TINY, "learning_rate": 0.0}  # what it begins with is what it ends with
    asked = spec(config=fast, weights=str(parent), seed=1, eval_at_start=True)
    child = train(asked, name="child", storage_path=tmp_path, plain=True)
    assert same(
        weights(child.path / "checkpoints/last.pt"), weights(parent / "checkpoints/last.pt")
    )
    agent = Agent.load(child.path / "weights.pt")
    first = read_history(child.path).iloc[0]
    assert (first["iteration"], first["env_steps"]) == (0, 0)
    seed = Agent("ppo", "CartPole-v1", TINY, total_timesteps=1, seed=1)._seeds.evaluation
    assert first["eval_return"] == agent.evaluate(2, seed=seed).mean


def test_weights_stay_those_of_the_start(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(spec(weights=str(parent)), name="whole", storage_path=tmp_path, plain=True)
    copy = tmp_path / "copy.pt"
    copy.write_bytes((parent / "checkpoints/last.pt").read_bytes())
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1, lambda: os.kill(os.getpid(), signal.SIGINT))
        cut = train(spec(weights=str(copy)), name="cut", storage_path=tmp_path, plain=True)
    copy.unlink()  # the run has its own
    (cut.path / "checkpoints/last.pt").unlink()  # as if it had been killed before the first one
    check_equal(whole.path, resume_training(cut.path, plain=True).path)


def test_weights_in_commands_and_exports(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(spec(weights=str(parent)), name="whole", storage_path=tmp_path, plain=True)
    words = rltune.export(whole.path).splitlines()[-1].split()
    assert words[words.index("--weights") + 1] == "whole/weights.pt"
    with pytest.raises(UserError, match="starts from weights, which --to sb3 can't say"):
        rltune.export(whole.path, "sb3")
    file = tmp_path / "exported.yaml"
    file.write_text(rltune.export(whole.path, "yaml"))
    monkeypatch.setattr("rltune.backends.checkpoints.STORAGE", str(tmp_path))
    storage = ("--storage-path", str(tmp_path), "--wandb", "off", "--plain")
    for name, argv in (("command", words[2:]), ("yaml", ["ppo", "--config", str(file)])):
        evaluation = () if name == "command" else ("--eval-freq", "80", "--eval-episodes", "2")
        assert run(*argv, *evaluation, "--name", name, *storage) == 0
        check_equal(whole.path, tmp_path / name)


def test_weights_that_do_not_fit(parent: Path, tmp_path: Path) -> None:
    def refused(said: str, **changes: Any) -> None:
        with pytest.raises(UserError, match=said):
            train(spec(weights=str(parent), **changes), name="x", storage_path=tmp_path)
        assert not (tmp_path / "x").exists()

    wide = {**TINY, "net_arch": [9]}
    refused(r"\(ppo on CartPole-v1\) don't fit .*: nets\..* is \(8, 4\) there and \(9, 4\) here",
            config=wide)  # fmt: skip
    refused(r"nets\..* is \(8, 4\) there and \(8, 6\) here", env="Acrobot-v1")
    raw = {**TINY, "normalize_observations": False}
    refused("normalises observations; give --normalize-observations true", config=raw)
    refused("rllib:PPO can't start from weights", agent="rllib:PPO", config={})
    with pytest.raises(UserError, match="no run 'nowhere'"):
        train(spec(weights="nowhere"), name="x", storage_path=tmp_path)


def test_the_controls_end_it(tmp_path: Path) -> None:
    controls = {"target_reward": 1.0, "reward_buffer_size": 3}
    result = train(spec(controls=controls), name="one", storage_path=tmp_path, plain=True)
    assert result.env_steps < 320
    assert result.stop_reason
    assert read_history(result.path)["eval_return"].notna().iloc[-1]


def test_a_training_that_is_too_short_for_an_update_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for starts in (99, 100):
        config = {"learning_starts": starts, "net_arch": [8]}
        changes = {"agent": "dqn", "config": config, "total_timesteps": 100}
        train(spec(**changes), name=str(starts), storage_path=tmp_path, plain=True)
        said = "nothing is learned: learning_starts is 100 of 100 env steps"
        assert (said in capsys.readouterr().err) == (starts == 100)


def test_a_diverged_training_ends_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**TINY, "learning_rate": 1e38, "max_grad_norm": 0}
    result = train(spec(config=config), name="one", storage_path=tmp_path, plain=True)
    assert result.diverged
    assert result.exit_code == 1
    train_module.print_result(result)
    assert "diverged: non-finite" in capsys.readouterr().out
    assert read_history(result.path)["diverged"].iloc[-1] == 1
    with pytest.raises(UserError, match="can't go on: it diverged"):
        resume_training(result.path)


@pytest.mark.parametrize(
    "changes",
    [{"config": {"gama": 1}}, {"env": "CartPole-v7"}, {"agent": "pop"}, {"seed": -1}],
)
def test_a_mistake_leaves_nothing_behind(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        train(dataclasses.replace(spec(), **changes), name="one", storage_path=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_episodes_that_would_not_end_are_cut_off_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    monkeypatch.setattr("rltune.agents.envs.vector.LONGEST_EPISODE", 30)
    where: dict[str, Any] = {"storage_path": tmp_path, "plain": True}
    run = train(spec(env="toy:EndlessEnv"), name="run", **where)
    rows = read_history(run.path)["eval_cut"].dropna()
    assert len(rows) == 4
    assert set(rows) == {2}
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert said.count("are cut off after 30 steps: toy:EndlessEnv has no time limit") == 1
    limit = {"max_episode_steps": 25}
    run = train(spec(env="toy:EndlessEnv", env_kwargs=limit), name="limited", **where)
    assert "eval_cut" not in read_history(run.path)
    assert set(read_episodes(run.path)["length"]) == {25}
    captured = capsys.readouterr()
    assert "cut off" not in captured.out + captured.err


def test_points() -> None:
    one = spec(total_timesteps=100_000, eval_freq=25_000)
    points, at = [], 0
    while at < 100_000:
        at = one.next_point(at)
        points.append(at)
    thousands = [point // 1000 for point in points]
    assert thousands == [10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90, 100]
    assert one.next_evaluation(0) == one.next_evaluation(24_999) == 25_000
    assert spec(eval_freq=None, total_timesteps=2000).eval_steps == 100


# ------------------------------------------------------------------------------ the command line


def parse(*words: str) -> tuple[argparse.Namespace, list[str]]:
    return make_parser().parse_known_args(["train", *words])


def run(*words: str) -> int:
    args, extra = parse(*words)
    code: int = args.main(args, extra)
    return code


def test_flags_and_a_file_become_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("num_steps: 16\nn_envs: 2\nbatch_size: 8\nuse_sde: true\n")
    flags = """ppo --env CartPole-v1 -n 64 --seed 3 --config mine.yaml --batch-size=16
        --lr lin_1e-3 --net-arch 8 4 --no-use-sde --normalize_observations --n-epochs 1
        --eval-episodes 1 --eval-freq 32 --target-reward 400 --name one --wandb off"""
    code = run(*flags.split(), "--env-kwargs", "{sutton_barto_reward: true}")
    assert code == 0
    done = RunDir.open("runs/one").spec
    config = done["config"]
    assert (config["n_steps"], config["n_envs"], config["batch_size"]) == (16, 2, 16)
    assert (config["learning_rate"], config["net_arch"]) == ("lin_1e-3", [8, 4])
    assert config["use_sde"] is False
    assert config["normalize_observations"] is True
    assert (done["seed"], done["total_timesteps"], done["eval_freq"]) == (3, 64, 32)
    assert done["controls"] == {"target_reward": 400.0}
    assert done["env_kwargs"] == {"sutton_barto_reward": True}
    out = capsys.readouterr().out
    assert "rltune play runs/one/checkpoints/last.pt" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gama 1", "ppo no such hyperparameter; did you mean --gamma?"),
        ("--gamma 1.5", "gamma is '1.5', but must be between 0 and 1"),
        ("--gamma .9 .99", "several are a search: rltune run ppo"),
        ("--gamma", "--gamma needs a value"),
        ("--trials 3", "no such hyperparameter; see `rltune train ppo --help`"),
        ("--mai 3", "no such hyperparameter; see"),
        ("stray", "unexpected argument 'stray'"),
        ("--config none.yaml", "none.yaml: no such file"),
    ],
)
def test_wrong_flags_are_explained(words: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        run("ppo", "--env", "CartPole-v1", *words.split())
    assert message in str(error.value)


def test_the_help_lists_every_hyperparameter(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("ppo", "--help")
    text = capsys.readouterr().out
    for name, value in config_dict(PPOConfig()).items():
        assert f"--{name.replace('_', '-')} " in text, value
    assert "[0.9 to 0.9999, one_minus_log]" in text


@pytest.mark.slow
def test_after_a_kill_at_any_moment(tmp_path: Path) -> None:
    whole = train(spec(total_timesteps=6400), name="whole", storage_path=tmp_path, plain=True)
    code = (
        "from rltune.runs.directory import RunDir\n"
        "from rltune.training.train import *\n"
        f"s = TrainSpec.from_dict(RunDir.open({str(whole.path)!r}).spec)\n"
        f"train(s, name='cut', storage_path={str(tmp_path)!r}, plain=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    while not (tmp_path / "cut" / "checkpoints").exists():
        time.sleep(0.01)
    for delay in (0.0, 0.13, 0.37):
        time.sleep(delay)
        process.kill()
        process.wait()
        cut = str(tmp_path / "cut")
        code = f"from rltune.training.train import *; resume_training({cut!r}, plain=True)"
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        time.sleep(5)
    process.wait()
    check_equal(whole.path, tmp_path / "cut")
