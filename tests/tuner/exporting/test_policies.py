"""Exported policies act as their agents do, in each format, and are played without rltune."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import rltune
import torch
from rltune.agents import Agent
from rltune.agents.loop import checkpoint
from rltune.agents.loop.normalization import ObservationNormalizer
from rltune.cli import main
from rltune.exporting import agreement
from rltune.exporting.registry import POLICIES

from tests.parameters import quick

ROOT = Path(__file__).parents[3]

ON = {"n_envs": 2, "n_steps": 16, "net_arch": [16, 16]}
OFF = {"learning_starts": 16, "batch_size": 8, "net_arch": [16, 16], "buffer_size": 500}
IMAGE = {"n_envs": 2, "n_steps": 8}
NORMALISED = {"normalize_observations": True}
RNN = {"lstm_size": 8}
OFF_RNN = {**OFF, **RNN, "sequence_length": 8, "burn_in": 0}
IMAGES_OFF = {"learning_starts": 16, "batch_size": 8, "buffer_size": 100}
MODEL = "[dense] units=8 activation=silu common=1 [dense] output=1 [dense] output=1"
KINDS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", {**ON, **NORMALISED}, {}),
    "ppo-box": ("ppo", "Pendulum-v1", {**ON, **NORMALISED, "use_sde": True}, {}),
    "a2c-bits": ("a2c", "toy_envs:Bits", ON, {}),
    "a2c-std": ("a2c", "Pendulum-v1", {**ON, "state_dependent_std": True}, {}),
    "ppo-several": ("ppo", "toy_envs:Both", {**ON, "shared_torso": True}, {}),
    "trpo": ("trpo", "CartPole-v1", {**ON, "cg_max_steps": 3, "layer_norm": True}, {}),
    "trpo-box": ("trpo", "Pendulum-v1", {**ON, "cg_max_steps": 3}, {}),
    "acer": ("acer", "CartPole-v1", {**ON, "replay_start": 20}, {}),
    "dqn": ("dqn", "CartPole-v1", OFF, {}),
    "rainbow": (
        "dqn",
        "CartPole-v1",
        {**OFF, "dueling": True, "noisy": True, "distributional": "c51"},
        {},
    ),
    "quantiles": ("dqn", "CartPole-v1", {**OFF, "distributional": "qr", "frame_stack": 3}, {}),
    "ddpg": ("ddpg", "Pendulum-v1", {**OFF, **NORMALISED}, {}),
    "td3": ("td3", "Pendulum-v1", {**OFF, "activation": "elu"}, {}),
    "sac": ("sac", "Pendulum-v1", {**OFF, "use_sde": True}, {}),
    "sac-choices": ("sac", "toy_envs:Both", OFF, {}),
    "lstm": ("ppo", "toy_envs:Still", {**ON, **RNN, **NORMALISED}, {}),
    "lstm-sac": ("sac", "Pendulum-v1", OFF_RNN, {}),
    "lstm-dqn": ("dqn", "CartPole-v1", OFF_RNN, {}),
    "masks": ("ppo", "toy_envs:Fenced", {**ON, **NORMALISED}, {"where": "info", "counts": [3, 4]}),
    "masks-dqn": ("dqn", "toy_envs:Fenced", OFF, {"where": "dict"}),
    "image": ("ppo", "toy_envs:Camera", IMAGE, {}),
    "image-masks": ("ppo", "toy_envs:FencedPicture", IMAGE, {}),
    "image-frames": ("dqn", "toy_envs:Picture", {**IMAGES_OFF, "frame_stack": 2}, {}),
    "impala": ("a2c", "toy_envs:Picture", {**IMAGE, "encoder": "impala_resnet"}, {}),
    "mixed": ("sac", "toy_envs:Camera", IMAGES_OFF, {"masked": True}),
    "image-lstm": ("ppo", "toy_envs:FencedPicture", {**IMAGE, **RNN}, {}),
    "model": ("ppo", "CartPole-v1", {"n_envs": 2, "n_steps": 16, "model": MODEL}, {}),
    "number": ("ppo", "Taxi-v3", ON, {}),
    "goals": ("sac", "goal_envs:Reach", {**OFF, "n_sampled_goal": 2}, {}),
}


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "agents"))
    monkeypatch.setattr(agreement, "N_OBSERVATIONS", 70)


def trained(path: Path, kind: str) -> Agent:
    agent, env, config, kwargs = KINDS[kind]
    made = Agent(agent, env, config, total_timesteps=100, env_kwargs=kwargs, device="cpu")
    made.learn(48)
    made.save(path)
    return made


LONGER = {"impala", "mixed", "image-frames", "lstm-dqn"}


@pytest.mark.parametrize("kind", quick(KINDS.keys() - LONGER, KINDS))
def test_each_format_acts_as_the_agent(kind: str, tmp_path: Path) -> None:
    agent = trained(tmp_path / "agent.pt", kind)
    wanted = agent.evaluate(2, seed=5, max_steps=40)
    for to, exporter in POLICIES.items():
        made = rltune.export_policy(
            tmp_path / "agent.pt", to, tmp_path / f"policy{exporter.suffix}", own_code=True
        )
        assert made.agreement, made
        policy = rltune.load(made.path)
        assert policy.env == agent.env
        again = rltune.evaluate(policy, 2, seed=5, max_steps=40)
        np.testing.assert_allclose(again.returns, wanted.returns, rtol=1e-4)
        assert again.lengths == wanted.lengths
        policy.close()
    agent.close()


def test_cloned_behaviour_is_exported(tmp_path: Path) -> None:
    trained(tmp_path / "expert.pt", "ppo").close()
    demos = tmp_path / "demos.parquet"
    rltune.play(tmp_path / "expert.pt", 2, record=demos, max_steps=40)
    agent = Agent(
        "bc", "CartPole-v1", {**RNN, "net_arch": [16], "demonstrations": str(demos)},
        total_timesteps=1000,
    )  # fmt: skip
    agent.learn(500)
    agent.save(tmp_path / "bc.pt")
    wanted = agent.evaluate(2, seed=5)
    agent.close()
    for to in POLICIES:
        made = rltune.export_policy(tmp_path / "bc.pt", to, tmp_path / "bc")
        assert rltune.evaluate(made.path, 2, seed=5).returns == wanted.returns


def test_an_onnx_file_says_what_it_is(tmp_path: Path) -> None:
    agent = trained(tmp_path / "agent.pt", "lstm")
    made = rltune.export_policy(tmp_path / "agent.pt", "onnx", tmp_path / "a.onnx", own_code=True)
    session = onnxruntime.InferenceSession(str(made.path))
    about = session.get_modelmeta().custom_metadata_map
    assert (about["agent"], about["env"]) == ("ppo", "toy_envs:Still")
    assert about["rltune"] == rltune.__version__
    assert about["action"].startswith("Discrete(2)")
    assert json.loads(about["env_steps"]) == agent.env_steps
    assert [(port.name, port.shape) for port in session.get_inputs()] == [
        ("observation", ["batch", 2]),
        ("state", ["batch", 16]),
    ]
    assert [(port.name, port.shape) for port in session.get_outputs()] == [
        ("action", ["batch"]),
        ("next_state", ["batch", 16]),
    ]
    agent.close()


def test_files_hold_the_weights_that_acting_needs(tmp_path: Path) -> None:
    agent = trained(tmp_path / "agent.pt", "acer")
    whole = sum(weights.numel() for weights in agent.algorithm.nets.parameters())
    agent.close()
    rltune.export_policy(tmp_path / "agent.pt", "torchscript", tmp_path / "torchscript")
    assert whole == 2 * (4 * 16 + 16 + 16 * 16 + 16 + 16 * 2 + 2)
    with zipfile.ZipFile(tmp_path / "torchscript") as file:
        sizes = [part.file_size for part in file.infolist() if "/constants/" in part.filename]
    assert sum(sizes) == 4 * whole // 2 + 2 * 4 * 8  # and how observations are normalised


def test_a_saved_policy_is_small_and_needs_pytorch_alone(tmp_path: Path) -> None:
    trained(tmp_path / "agent.pt", "sac").close()
    made = rltune.export_policy(tmp_path / "agent.pt", "saved-policy", tmp_path / "sac.policy.pt")
    state = torch.load(made.path, weights_only=True)
    assert {name.split(".")[0] for name in state["nets"]} == {"actor"}
    assert not {"memory", "algorithm", "actor_learner"} & set(state)
    assert state["about"]["observation"]["kind"] == "flatten"
    again = rltune.export_policy(made.path, "onnx", tmp_path / "again.onnx")  # it is an agent's
    assert again.agreement.difference < 1e-6
    with pytest.raises(rltune.UserError, match="is a saved policy, which can only act"):
        Agent("sac", "Pendulum-v1", OFF, total_timesteps=9).load_weights(made.path)


EPISODES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "numbers": ("ppo", "Pendulum-v1", {**ON, **NORMALISED, "frame_stack": 2}, {}),
    "masks": ("ppo", "Taxi-v3", {**ON, **RNN}, {"max_episode_steps": 30}),
    "images": ("ppo", "CarRacing-v3", {**IMAGE, "frame_stack": 2}, {"max_episode_steps": 8}),
    "atari": ("dqn", "ALE/Pong-v5", IMAGES_OFF, {"max_episode_steps": 20}),
}
# What the example must do without.
BLOCKED = """
import runpy, sys
sys.modules["torch"] = sys.modules["rltune"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("kind", quick(EPISODES.keys() - {"images"}, EPISODES))
def test_the_example_plays_with_onnxruntime_alone(kind: str, tmp_path: Path) -> None:
    agent, env, config, kwargs = EPISODES[kind]
    made = Agent(agent, env, config, total_timesteps=40, env_kwargs=kwargs, device="cpu")
    made.learn(32)
    made.save(tmp_path / "agent.pt")
    made.close()
    file = rltune.export_policy(tmp_path / "agent.pt", "onnx", tmp_path / "policy.onnx").path
    script = ROOT / "examples" / "onnx" / "play.py"
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(script), str(file), "3"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{agent} on {env}; an action is" in done.stdout
    if kind == "atari":  # no-ops and sticky actions are drawn from another generator
        return
    policy = rltune.load(tmp_path / "agent.pt")
    own = policy.make_env()
    obs, info = own.reset(seed=3)
    total, steps, ended = 0.0, 0, False
    while not ended:
        action = policy(obs, mask=info.get("action_mask"))
        obs, reward, terminated, truncated, info = own.step(action)
        total, steps, ended = total + float(reward), steps + 1, terminated or truncated
    found = re.search(r"return (\S+) in (\d+) steps", done.stdout)
    assert found is not None
    assert int(found[2]) == steps
    assert float(found[1]) == pytest.approx(total, rel=1e-3)


def test_a_file_that_does_not_agree_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "box.pt", "ppo-box").close()
    trained(tmp_path / "discrete.pt", "ppo").close()
    right = ObservationNormalizer.constants

    def wrong(self: ObservationNormalizer) -> Any:
        mean, factor, limit = right(self)
        return mean, -factor, limit

    monkeypatch.setattr(ObservationNormalizer, "constants", wrong)
    (tmp_path / "p.onnx").write_text("as before")
    with pytest.raises(rltune.UserError, match=r"is not written: largest difference .* not as the"):
        rltune.export_policy(tmp_path / "box.pt", "onnx", tmp_path / "p.onnx")
    with pytest.raises(rltune.UserError, match=r"is not written: .* of the agent's actions differ"):
        rltune.export_policy(tmp_path / "discrete.pt", "torchscript", tmp_path / "p.onnx")
    assert (tmp_path / "p.onnx").read_text() == "as before"
    assert {path.name for path in tmp_path.iterdir()} == {"box.pt", "discrete.pt", "p.onnx"}


def test_what_can_not_be_exported_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "agent.pt", "ppo").close()
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "custom"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "agents"]:
        monkeypatch.delitem(sys.modules, name)  # the example has a package of that name, too
    own = Agent("my_agent:MyAgent", "CartPole-v1", {}, total_timesteps=10)
    own.save("own.pt")
    own.close()
    state = checkpoint.read("agent.pt")
    checkpoint.write("rllib.pt", {**state, "agent": "rllib:PPO"})
    monkeypatch.setattr(agreement, "N_OBSERVATIONS", 1000)
    assert main(["export", "agent.pt", "--to", "onnx", "-o", "p.onnx"]) == 0
    assert "largest difference from the agent's actions on 1,000" in capsys.readouterr().out
    for command, said in {
        "export own.pt --to onnx": "has to make the agent 'my_agent:MyAgent'",
        "export own.pt --to onnx --own-code": "MyAgent has no policy that can be exported",
        "export rllib.pt --to torchscript": "rllib:PPO has a network of RLlib's",
        "export p.onnx --to torchscript": "p.onnx is a policy in onnx already",
        "export nothing --to onnx": "nothing",
        "export agent.pt --to onnx -o nowhere/x.onnx": "cannot write nowhere/x.onnx",
        "export agent.pt --to zoo --best": "--best is of trained policies",
        "export agent.pt --to onnx --trial 3": "is one checkpoint",
        "eval p.onnx --eval-mode stochastic": "an exported policy is greedy",
        "eval p.onnx --env Acrobot-v1": "is of env 'CartPole-v1', not of 'Acrobot-v1'",
    }.items():
        assert main(command.split()) == 2, command
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    with pytest.raises(rltune.UserError, match=r"rltune\.export_policy writes it"):
        rltune.export("agent.pt", "onnx")


def test_files_are_played_and_measured_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "agent.pt", "ppo").close()
    shutil.move("agent.pt", "mine.pt")
    told = set()
    for to, exporter in POLICIES.items():
        assert main(["export", "mine.pt", "--to", to]) == 0  # named after the checkpoint
        file = f"mine{exporter.suffix}"
        assert main(["play", file, "--record", "demos.parquet", "--seed", "4"]) == 0
        assert f"{file}: ppo on CartPole-v1" in capsys.readouterr().out
        assert main(["eval", file, "--episodes", "3", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        told.add((tuple(found["returns"]), found["env"], found["agent"], found["env_steps"]))
    assert len(told) == 1


class Reader(torch.nn.Module):
    """Reads a file, which a policy has no need of."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.from_file("/etc/passwd", False, 4, dtype=torch.uint8)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    trained(tmp_path / "agent.pt", "ppo").close()
    for to in ("onnx", "torchscript"):
        made = rltune.export_policy(tmp_path / "agent.pt", to, tmp_path / to)
        content = made.path.read_bytes()
        (tmp_path / "cut").write_bytes(content[: len(content) // 2])
        with pytest.raises(rltune.UserError, match="cut is no"):
            rltune.load(tmp_path / "cut")
    program = next(n for n in zipfile.ZipFile(tmp_path / "torchscript").namelist() if "/code/" in n)
    for line in ('observation.save("x")', "(torch.save # a comment\n (observation))"):
        with zipfile.ZipFile(tmp_path / "torchscript") as ours:
            parts = {name: ours.read(name) for name in ours.namelist()}
        parts[program] += f"    {line}\n".encode()
        with zipfile.ZipFile(tmp_path / "changed", "w") as theirs:
            for name, content in parts.items():
                theirs.writestr(name, content)
        with pytest.raises(rltune.UserError, match="its program calls"):
            rltune.load(tmp_path / "changed")
    torch.jit.save(torch.jit.script(Reader()), str(tmp_path / "reader"))
    with pytest.raises(rltune.UserError, match="its program calls"):
        rltune.load(tmp_path / "reader")
    import onnx

    model = onnx.load(tmp_path / "onnx")
    for wrong, said in (("[", "env_kwargs can't be"), ('"x"', "env_kwargs can't be")):
        for prop in model.metadata_props:
            prop.value = wrong if prop.key == "env_kwargs" else prop.value
        onnx.save(model, tmp_path / "damaged")
        with pytest.raises(rltune.UserError, match=said):
            rltune.load(tmp_path / "damaged")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "bare")
    with pytest.raises(rltune.UserError, match="is no policy that rltune exported"):
        rltune.load(tmp_path / "bare")
