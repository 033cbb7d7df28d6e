from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent
from rltune.agents.algorithms.ppo import PPO, PPOConfig
from rltune.agents.config import config_dict, config_hash, make_config
from rltune.agents.errors import UserError
from rltune.agents.model_files import parse_model, read_model
from rltune.agents.registry import agent_class
from rltune.agents.spaces import Spaces
from small_agents import AGENTS
from torch import nn

# As xagents has them: numbered sections, one line a key.
ACTOR_CRITIC = """\
# small
[dense-0]
units=12
activation=tanh
initializer=orthogonal
gain=1.4142135

[dense-1]
units = 10
activation : elu
common=1

[dense-2]
initializer=orthogonal
gain=0.01
output=1

[dense-3]
output=1"""
ONE = "[dense-0]\nunits=12\nactivation=relu\n\n[dense-1]\nunits=10\n\n[dense-2]\noutput=1\n"
CONVOLUTIONS = """\
[convolutional]
filters=4
size=8
stride=4
activation=relu
[convolutional]
filters=6
size=3
stride=2
[flatten]
[dense]
units=11
activation=relu
"""
IMAGES = CONVOLUTIONS + "common=1\n[dense]\noutput=1\n[dense]\noutput=1\n"
IMAGE = CONVOLUTIONS + "[dense]\noutput=1\n"


def write(folder: Path, **texts: str) -> dict[str, str]:
    for name, text in texts.items():
        (folder / f"{name}.cfg").write_text(text)
    return {name: str(folder / f"{name}.cfg") for name in texts}


def files_for(folder: Path, agent: str, image: bool = False) -> dict[str, str]:
    if agent in ("a2c", "ppo", "acer"):
        return write(folder, model=IMAGES if image else ACTOR_CRITIC)
    one = IMAGE if image else ONE
    if agent == "dqn":
        return write(folder, model=one)
    return write(folder, actor_model=one, critic_model=one)


# ----------------------------------------------------------------------------------------- parsing


def test_a_file_is_read() -> None:
    model = parse_model(ACTOR_CRITIC, ("", ""), "a.cfg")
    first, second = model.layers
    assert (first.kind, first.units, first.activation) == ("dense", 12, "tanh")
    assert first.rule == (1.4142135, "orthogonal")
    assert (second.units, second.activation, second.common) == (10, "elu", True)
    assert second.rule == (1.0, "xavier")
    assert [output.rule for output in model.outputs] == [(0.01, "orthogonal"), (1.0, "xavier")]


@pytest.mark.parametrize(
    ("text", "outputs"), [(ACTOR_CRITIC, ("", "")), (ONE, ("",)), (IMAGES, ("", ""))]
)
def test_the_text_in_one_line_means_the_same(text: str, outputs: tuple[str, ...]) -> None:
    model = parse_model(text, outputs, "a.cfg")
    line = model.text()
    assert "\n" not in line
    assert read_model(line, outputs) == model
    assert read_model(line, outputs).text() == line


MISTAKES = [
    ("", "a.cfg: there is no layer; write a [dense] with output=1"),
    ("units=3", "a.cfg:1: units stands before the first section"),
    ("[dens]\noutput=1", "a.cfg:1: unknown section 'dens'; did you mean 'dense'?"),
    ("[dense]\nunit=3", "a.cfg:2: unknown key of [dense] 'unit'; did you mean 'units'?"),
    ("[dense]\nunits=3\nunits=4", "a.cfg:3: units is given twice; keep one"),
    ("[dense]\nunits=many", "a.cfg:2: units is 'many', but must be a whole number of at least 1"),
    ("[dense]\nunits=0", "write units=64"),
    ("[dense]\nunits=", "a.cfg:2: units is ''"),
    ("[dense]\nunits=3 tanh", "a.cfg:2: 'tanh' is neither a [section] nor key=value"),
    ("[dense]\nactivation=rely", "activation is 'rely', but must be one of linear, tanh, relu"),
    ("[dense]\ninitializer=zeros", "must be one of orthogonal, glorot_uniform"),
    ("[dense]\nunits=3\ngain=2\n[dense]\noutput=1", "a.cfg:1: gain needs initializer=orthogonal"),
    ("[dense]\ngain=-1", "gain is '-1', but must be a positive number"),
    ("[dense]\noutput=0", "output is '0', but must be 1 or left out"),
    ("[dense]\n[dense]\noutput=1", "a.cfg:1: [dense] needs units"),
    ("[dense]\nunits=3", "a.cfg: 0 layers have output=1, but there must be 1"),
    ("[dense]\noutput=1\n[dense]\noutput=1", "2 layers have output=1, but there must be 1"),
    ("[dense]\noutput=1\n[dense]\nunits=3", "a.cfg:1: output=1 stands before other layers"),
    ("[dense]\noutput=1\nunits=3", "an output layer is as large as the agent needs it; drop units"),
    ("[dense]\noutput=1\nactivation=tanh", "output layer has no activation tanh; drop it"),
    ("[dense]\nunits=3\nactivation=softmax\n[dense]\noutput=1", "softmax is for outputs"),
    (
        "[dense]\nunits=3\ncommon=1\n[dense]\nunits=3\n[dense]\noutput=1",
        "a.cfg:1: common=1 belongs",
    ),
    (
        "[convolutional]\nsize=3\nstride=1\n[dense]\noutput=1",
        "a.cfg:1: [convolutional] needs filters",
    ),
    (
        "[convolutional]\nfilters=2\nsize=3\nstride=1\n[dense]\noutput=1",
        "a.cfg:5: [dense] stands behind [convolutional]; put [flatten] between",
    ),
    (
        "[flatten]\n[convolutional]\nfilters=2\nsize=3\nstride=1\n[dense]\noutput=1",
        "a.cfg:2: [convolutional] stands behind [flatten]; the order is",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_mistakes_are_told_with_their_place(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_model(text, ("",), "a.cfg")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_two_outputs_need_a_common_layer() -> None:
    with pytest.raises(UserError, match=r"a.cfg:1: .* write common=1"):
        parse_model("[dense]\nunits=3\n[dense]\noutput=1\n[dense]\noutput=1", ("", ""), "a.cfg")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "b.cfg").write_bytes(b"\xff\xfe\x00")
    for path, message in (
        (tmp_path / "a.cfg", "does not exist"),
        (tmp_path / "b.cfg", "is not a text"),
        (tmp_path, "can't be read"),
    ):
        with pytest.raises(UserError, match=f"--model: model: model file {path} {message}"):
            make_config(PPOConfig, {"model": str(path)}, "--model")
    for name in ("a\0b", "\ud800"):
        with pytest.raises(UserError, match="is no name of a file"):
            read_model(name, ("",))


@pytest.mark.parametrize(
    ("agent", "name", "activation"), [("acer", "model", "softmax"), ("td3", "actor_model", "tanh")]
)
def test_an_output_may_name_what_the_agent_does_itself(
    agent: str, name: str, activation: str, tmp_path: Path
) -> None:
    files = files_for(tmp_path, agent)
    path = Path(files[name])
    text = path.read_text()
    plain = make_config(agent_class(agent).Config, files)
    path.write_text(text.replace("output=1", f"activation={activation}\noutput=1", 1))
    assert make_config(agent_class(agent).Config, files) == plain
    path.write_text(text.replace("output=1", "activation=relu\noutput=1", 1))
    with pytest.raises(UserError, match=f"no activation relu; write {activation}, or drop it"):
        make_config(agent_class(agent).Config, files)


# --------------------------------------------------------------------------------- configurations


def test_the_configuration_holds_the_content(tmp_path: Path) -> None:
    files = write(tmp_path, model=ACTOR_CRITIC)
    config = make_config(PPOConfig, files)
    assert config.model == parse_model(ACTOR_CRITIC, ("", ""), "").text()
    assert make_config(PPOConfig, config_dict(config)) == config
    assert PPOConfig(**files) == config
    same, other = write(tmp_path, same="; the same\n" + ACTOR_CRITIC, other=IMAGES).values()
    hashes = [
        config_hash(config_dict(make_config(PPOConfig, {"model": path})))
        for path in (files["model"], same, other)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    "also",
    [
        {"net_arch": "32"},
        {"encoder": "mlp"},
        {"activation": "relu"},
        {"weight_init": "xavier"},
        {"layer_norm": True},
        {"shared_torso": True},
    ],
    ids=str,
)
def test_what_the_file_says_must_not_be_said_twice(also: dict[str, Any], tmp_path: Path) -> None:
    files = write(tmp_path, model=ACTOR_CRITIC)
    with pytest.raises(UserError, match=f"model and {next(iter(also))} both describe the network"):
        make_config(PPOConfig, {**files, **also})


def test_actor_and_critic_come_together(tmp_path: Path) -> None:
    files = files_for(tmp_path, "sac")
    with pytest.raises(UserError, match="actor_model is given, but critic_model is not"):
        make_config(agent_class("sac").Config, {"actor_model": files["actor_model"]})


# ---------------------------------------------------------------------------------------- networks


def linears(agent: Agent, part: str) -> list[tuple[int, int]]:
    nets = getattr(agent.algorithm.nets, part)  # type: ignore[attr-defined]
    return [(m.in_features, m.out_features) for m in nets.modules() if isinstance(m, nn.Linear)]


def state(agent: Agent) -> torch.Tensor:
    nets = agent.algorithm.nets  # type: ignore[attr-defined]
    return torch.cat([p.detach().reshape(-1) for p in nets.parameters()])


# Inputs and outputs of the linear layers, by the networks' parts.
EXPECTED = {
    "a2c": {"encoder": [(4, 12), (12, 10)], "actor": [(10, 2)], "critic": [(10, 1)]},
    "acer": {"encoder": [(4, 12), (12, 10)], "actor": [(10, 2)], "critic": [(10, 2)]},
    "ppo": {"encoder": [(4, 12), (12, 10)], "actor": [(10, 2)], "critic": [(10, 1)]},
    "dqn": {"encoder": [(4, 12), (12, 10)], "advantage": [(10, 2)]},
    "trpo": {
        "encoder": [],
        "actor": [(4, 12), (12, 10), (10, 2)],
        "critic": [(4, 12), (12, 10), (10, 1)],
    },
    "ddpg": {"actor": [(3, 12), (12, 10), (10, 1)], "critics": [(4, 12), (12, 10), (10, 1)]},
    "td3": {"actor": [(3, 12), (12, 10), (10, 1)], "critics": [(4, 12), (12, 10), (10, 1)] * 2},
    "sac": {"actor": [(3, 12), (12, 10), (10, 2)], "critics": [(4, 12), (12, 10), (10, 1)] * 2},
}


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_trains_with_a_file_and_resumes_without_it(name: str, tmp_path: Path) -> None:
    env, small = AGENTS[name]
    files = files_for(tmp_path, name)
    config = {**{k: v for k, v in small.items() if k != "net_arch"}, **files}
    whole, first = (
        Agent(name, env, config, total_timesteps=96, seed=1, device="cpu") for _ in range(2)
    )
    for part, shapes in EXPECTED[name].items():
        assert linears(whole, part) == shapes
    whole.learn(96)
    first.learn(40)
    first.save(tmp_path / "a.pt")
    for path in files.values():
        Path(path).unlink()
    again = Agent.load(tmp_path / "a.pt", device="cpu")
    again.learn(96)
    assert torch.equal(state(whole), state(again))


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_convolves_images(name: str, tmp_path: Path) -> None:
    image = spaces.Box(0, 255, (3, 40, 50), np.uint8)
    box = name in ("ddpg", "td3", "sac")
    action: Any = spaces.Box(-1, 1, (2,)) if box else spaces.Discrete(2)
    found = agent_class(name)
    config = make_config(
        found.Config,
        {**files_for(tmp_path, name, image=True), **({"buffer_size": 10} if box else {})},
    )
    algorithm = found(config, Spaces(image, action, 1), seed=0)
    convolutions = [m for m in algorithm.nets.modules() if isinstance(m, nn.Conv2d)]  # type: ignore[attr-defined]
    kernels = {(m.in_channels, m.out_channels, *m.kernel_size, *m.stride) for m in convolutions}
    assert kernels == {(3, 4, 8, 8, 4, 4), (4, 6, 3, 3, 2, 2)}
    obs = np.random.default_rng(0).integers(256, size=(5, 3, 40, 50), dtype=np.uint8)
    assert len(algorithm.act(obs, explore=False)) == 5


def test_outputs_begin_as_the_file_says(tmp_path: Path) -> None:
    vector = Spaces(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), 1)
    nets = PPO(make_config(PPOConfig, write(tmp_path, model=ACTOR_CRITIC)), vector, seed=0).nets
    head = nets.actor.head.weight.detach()
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(2), atol=1e-7, rtol=0)


@pytest.mark.parametrize("switches", [{"dueling": True}, {"noisy": True}], ids=str)
def test_dqns_switches_concern_the_output_layer(switches: Any, tmp_path: Path) -> None:
    files = write(tmp_path, model=ONE)
    config = {**files, **switches, "learning_starts": 8, "batch_size": 8}
    agent = Agent("dqn", "CartPole-v1", config, total_timesteps=32, device="cpu")
    assert linears(agent, "encoder") == [(4, 12), (12, 10)]
    assert agent.learn(32).updates > 0


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        (IMAGES, (4,), "a [convolutional] reads images, but gets vectors of shape (4,)"),
        (ACTOR_CRITIC, (3, 40, 50), "put [flatten] in front of it"),
        (IMAGES, (3, 10, 10), "a [convolutional] of size=3 gets images of 1 x 1"),
    ],
)
def test_files_that_do_not_fit_the_observations(
    text: str, shape: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    config = make_config(PPOConfig, write(tmp_path, model=text))
    observed = Spaces(spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2), 1)
    with pytest.raises(UserError) as error:
        PPO(config, observed, seed=0)
    assert message in str(error.value)
