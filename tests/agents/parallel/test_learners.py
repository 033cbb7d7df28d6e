from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rltune.agents.config import make_config
from rltune.agents.errors import UserError
from rltune.agents.loop.agent import Agent
from rltune.agents.loop.compatibility import check_fit
from rltune.agents.parallel.learners import check_devices
from rltune.agents.registry import agent_class

from tests.parameters import quick

ROLLOUT = {"n_envs": 2, "n_steps": 16, "net_arch": [16, 16]}
# Shares of 17 and 16 rows, of several minibatches that are drawn at once.
REPLAY = {
    "learning_starts": 40,
    "batch_size": 33,
    "net_arch": [16, 16],
    "buffer_size": 500,
    "train_freq": 4,
    "gradient_steps": 3,
}
RAINBOW = {"prioritised": True, "noisy": True, "dueling": True, "distributional": "c51"}
LSTM = {"lstm_size": 8, "sequence_length": 8}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("ppo", "CartPole-v1", {**ROLLOUT, "batch_size": 13, "n_epochs": 2, "target_kl": 0.5}),
    ("ppo", "Pendulum-v1", {**ROLLOUT, "n_minibatches": 2, "n_epochs": 2, "clip_range_vf": 0.2}),
    ("a2c", "CartPole-v1", {**ROLLOUT, "n_steps": 5, "normalize_advantage": True}),
    ("dqn", "CartPole-v1", {**REPLAY, "double": True}),
    ("dqn", "CartPole-v1", {**REPLAY, "prioritised": True}),
    ("sac", "Pendulum-v1", {**REPLAY, "n_step": 3}),
    ("td3", "Pendulum-v1", REPLAY),
    ("ddpg", "Pendulum-v1", REPLAY),
]
TORCH_ONLY: list[tuple[str, str, dict[str, Any]]] = [
    ("ppo", "Pendulum-v1", {**ROLLOUT, **LSTM, "batch_size": 24, "n_epochs": 2}),
    ("ppo", "CartPole-v1", {**ROLLOUT, "curiosity_strength": 0.1, "n_epochs": 2}),
    ("a2c", "CartPole-v1", {**ROLLOUT, **LSTM}),
    ("dqn", "CartPole-v1", {**REPLAY, **RAINBOW}),
    ("sac", "CartPole-v1", REPLAY),
    ("sac", "Pendulum-v1", {**REPLAY, **LSTM, "burn_in": 2, "rnd_strength": 0.1}),
]
EVERY = [(*case, "numpy") for case in CASES] + [(*case, "torch") for case in CASES + TORCH_ONLY]
# What is divided differently: minibatches, weights of rows, steps, rollouts, hidden states.
QUICK = [EVERY[0], EVERY[4], EVERY[5], EVERY[10], EVERY[16]]


def made(agent: str, env: str, config: dict[str, Any], n: int, engine: str = "auto") -> Agent:
    config = {**config, "n_learners": n}
    return Agent(agent, env, config, total_timesteps=1000, seed=3, device="cpu", engine=engine)


def updated(agent: Agent, times: int = 10) -> dict[str, list[float]]:
    """Let an agent learn until it has done so many updates; returns their metrics."""
    starts = int(getattr(agent.config, "learning_starts", 0))
    return agent.learn(agent.env_steps + starts + times * agent.algorithm.update_every).values


def parameters(agent: Agent) -> np.ndarray[Any, Any]:
    nets = agent.algorithm.state_dict()["nets"]
    return torch.cat([part.reshape(-1) for part in nets.values()]).numpy()


def processes(agent: Agent) -> list[subprocess.Popen[bytes]]:
    assert agent._learners is not None
    return agent._learners._processes


@pytest.mark.parametrize(
    ("agent", "env", "config", "engine"),
    quick(QUICK, EVERY),
)
def test_two_learners_do_what_one_does(
    agent: str, env: str, config: dict[str, Any], engine: str
) -> None:
    with (
        contextlib.closing(made(agent, env, config, 1, engine)) as alone,
        contextlib.closing(made(agent, env, config, 2, engine)) as two,
    ):
        before = parameters(alone)
        expected, found = updated(alone), updated(two)
        assert len(processes(two)) == 1
        assert len(expected["learning_rate"]) >= 10
        assert np.abs(parameters(alone) - before).max() > 1e-4
        np.testing.assert_allclose(parameters(two), parameters(alone), rtol=1e-4, atol=1e-6)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-4, err_msg=name)


def test_more_learners_than_rows() -> None:
    config = {**ROLLOUT, "batch_size": 31, "n_epochs": 2}  # and a minibatch of one
    with (
        contextlib.closing(made("ppo", "CartPole-v1", config, 1)) as alone,
        contextlib.closing(made("ppo", "CartPole-v1", config, 3)) as three,
    ):
        updated(alone, 3), updated(three, 3)
        np.testing.assert_allclose(parameters(three), parameters(alone), rtol=1e-4, atol=1e-6)


def test_resumed(tmp_path: Path) -> None:
    config = {**REPLAY, "prioritised": True}
    with contextlib.closing(made("dqn", "CartPole-v1", config, 2)) as whole:
        updated(whole, 5)
        whole.save(tmp_path / "checkpoint")
        updated(whole, 5)
        with contextlib.closing(Agent.load(tmp_path / "checkpoint", device="cpu")) as resumed:
            updated(resumed, 5)
            assert resumed.config.n_learners == 2
            assert np.array_equal(parameters(resumed), parameters(whole))


def test_other_weights_and_hyperparameters_reach_all_learners(tmp_path: Path) -> None:
    config = {**ROLLOUT, "n_epochs": 2}
    with contextlib.closing(made("ppo", "CartPole-v1", config, 1)) as other:
        updated(other, 3)
        other.save(tmp_path / "weights")
    agents = [made("ppo", "CartPole-v1", config, n) for n in (1, 2)]
    for agent in agents:
        updated(agent, 2)
        agent.load_weights(tmp_path / "weights")
        updated(agent, 2)
    agents = [agent.with_config({**config, "n_learners": n}) for n, agent in enumerate(agents, 1)]
    for agent in agents:
        updated(agent, 2)
    alone, two = map(parameters, agents)
    for agent in agents:
        agent.close()
    np.testing.assert_allclose(two, alone, rtol=1e-4, atol=1e-6)


@contextlib.contextmanager
def running() -> Iterator[tuple[Agent, subprocess.Popen[bytes]]]:
    with contextlib.closing(made("sac", "Pendulum-v1", REPLAY, 2)) as agent:
        updated(agent, 2)
        yield agent, processes(agent)[0]


def test_a_learner_that_is_killed_ends_the_training_with_a_sentence() -> None:
    with running() as (agent, process):
        process.kill()
        began = time.monotonic()
        with pytest.raises(
            UserError, match=r"learner 2 of 2 was killed by signal 9; .* checkpoint"
        ):
            updated(agent, 2)
        assert time.monotonic() - began < 5
        updated(agent, 2)  # with a new one
        assert len(processes(agent)) == 1


@pytest.mark.slow
def test_a_learner_that_is_killed_while_it_computes() -> None:
    with running() as (agent, process):
        process.send_signal(signal.SIGSTOP)
        killer = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {process.pid}"])
        with pytest.raises(UserError, match="was killed by signal 9"):
            updated(agent, 2)
        killer.wait()


def test_the_failure_of_a_learner_is_told() -> None:
    with running() as (agent, _):
        assert agent._learners is not None
        agent._learners._channels[0].send("no update")
        with pytest.raises(RuntimeError, match="a learner failed:\nTraceback"):
            updated(agent, 2)


def test_learners_end_with_the_training() -> None:
    with running() as (_, process):
        pass
    assert process.returncode is not None


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from test_learners import REPLAY, made, processes, updated
agent = made("sac", "Pendulum-v1", REPLAY, 2)
updated(agent, 1)
print(processes(agent)[0].pid, flush=True)
while True:
    updated(agent, 1)
"""


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_no_process_is_left_behind_a_killed_training() -> None:
    script = SCRIPT.format(here=str(Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as training:
        assert training.stdout is not None
        pid = int(training.stdout.readline())
        assert is_running(pid)
        os.kill(training.pid, signal.SIGKILL)
    until = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(pid)


def test_a_training_that_only_acts_has_no_other_learners(tmp_path: Path) -> None:
    with contextlib.closing(made("ppo", "CartPole-v1", ROLLOUT, 2)) as agent:
        agent.evaluate(1)
        agent.save(tmp_path / "checkpoint")
        assert processes(agent) == []  # they start with the first update
    with contextlib.closing(Agent.load(tmp_path / "checkpoint", acts_only=True)) as actor:
        assert actor._learners is None


@pytest.mark.parametrize("agent", ["acer", "trpo"])
def test_agents_that_learn_alone(agent: str) -> None:
    said = f"n_learners is 2, but the updates of {agent} can't be divided"
    with pytest.raises(UserError, match=said):
        check_fit(agent, "CartPole-v1", [{"n_learners": 2}])
    with pytest.raises(UserError, match=said):
        made(agent, "CartPole-v1", {}, 2)


def test_gpus() -> None:
    check_devices(1, "cuda:7")
    check_devices(2, "cpu")
    with pytest.raises(UserError, match="learners can't share device cuda:1; use cpu or cuda"):
        check_devices(2, "cuda:1")
    n = torch.cuda.device_count()
    with pytest.raises(UserError, match=f"n_learners is {n + 2}, but there (is|are) {n} GPU"):
        check_devices(n + 2, "cuda")


def test_no_learner_at_all() -> None:
    with pytest.raises(UserError, match="n_learners is 0, but must be between 1 and"):
        make_config(agent_class("ppo").Config, {"n_learners": 0})
