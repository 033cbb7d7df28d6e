"""Recurrent policies: the LSTM, its states in the loop, the sequences that it learns from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent, UserError
from rltune.agents.algorithms.on_policy import Rollout
from rltune.agents.algorithms.ppo import PPO, PPOConfig
from rltune.agents.loop.video import play
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.networks.recurrent import LSTM, Reader
from rltune.agents.spaces import AugmentedBox, InputParts, Spaces

from tests.parameters import quick

REMEMBER = "tests.agents.toy_envs:Remember"
ROLLOUT = {"lstm_size": 16, "n_steps": 16, "net_arch": (32,), "gamma": 0.9, "learning_rate": 0.005}
REPLAYED = {
    "lstm_size": 16,
    "sequence_length": 8,
    "burn_in": 2,
    "net_arch": (32,),
    "gamma": 0.9,
    "learning_rate": 0.005,
    "n_envs": 4,
    "learning_starts": 200,
    "buffer_size": 5000,
    "train_freq": 8,
    "batch_size": 64,
}
AGENTS: dict[str, dict[str, Any]] = {
    "a2c": ROLLOUT,
    "ppo": {**ROLLOUT, "sequence_length": 8, "batch_size": 64, "n_epochs": 4},
    "dqn": {
        **REPLAYED,
        "gradient_steps": 1,
        "target_update_interval": 100,
        "exploration_fraction": 0.5,
    },
    "sac": {**REPLAYED, "ent_coef": "0.01", "tau": 0.05},
}
STEPS = {"a2c": 5000, "ppo": 2000, "dqn": 2000, "sac": 2000}


def make(name: str, env: str = REMEMBER, steps: int = 400, **changes: Any) -> Agent:
    return Agent(name, env, {**AGENTS[name], **changes}, total_timesteps=steps)


def nets_of(agent: Agent) -> dict[str, Any]:
    nets: torch.nn.Module = agent.algorithm.nets  # type: ignore[attr-defined]
    return nets.state_dict()


# -------------------------------------------------------------------------------------------- LSTM


class Net(Reader):
    """Reads vectors of 3 with an LSTM of 5 that is the second of two."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = InputParts(AugmentedBox(spaces.Box(-1, 1, (3,), np.float32), 2, (4, 5)))
        self.encoder = torch.nn.Identity()
        torch.manual_seed(0)
        self.core = LSTM(self.parts, 3, 1)


def sequences(length: int = 6, begins: dict[tuple[int, int], int] | None = None) -> Any:
    """Return two sequences: 3 numbers, 2 bits, the mark of a beginning, states of 8 and 10."""
    inputs = torch.randn(2, length, 3 + 2 + 1 + 8 + 10, generator=torch.Generator().manual_seed(1))
    inputs[..., 5] = 0
    for where in begins or {}:
        inputs[(*where, 5)] = 1
    return inputs


def test_the_cell_is_torchs() -> None:
    net, inputs = Net(), sequences()
    cell = torch.nn.LSTM(3, 5, batch_first=True)
    assert net.core is not None
    # torch has its gates in another order: input, forget, cell, output.
    forget, write, show, new = (net.core.input.weight.chunk(4)[i] for i in range(4))
    own = [net.core.input.weight, net.core.recurrent.weight, net.core.input.bias + net.core.forget]
    theirs = [cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0]
    with torch.no_grad():
        for ours, torchs in zip(own, theirs, strict=True):
            forget, write, show, new = ours.chunk(4)
            torchs.copy_(torch.cat([write, forget, new, show]))
        cell.bias_hh_l0.zero_()
    hidden, memory = inputs[:, 0, 14:].chunk(2, -1)
    expected, _ = cell(
        inputs[..., :3], (hidden.unsqueeze(0).contiguous(), memory[None].contiguous())
    )
    torch.testing.assert_close(net.read(inputs), expected.flatten(0, 1))


def test_unrolling_is_stepping_with_the_stored_state_where_an_episode_begins() -> None:
    net, inputs = Net(), sequences(begins={(0, 3): 1, (1, 5): 1})
    state = inputs[:, 0, 14:]
    outputs = []
    for t in range(6):
        step = inputs[:, t].clone()
        begins = step[:, 5:6] > 0
        step[:, 14:] = torch.where(begins, step[:, 14:], state)
        outputs.append(net.read(step))
        state = net.next_state(step)
    torch.testing.assert_close(net.read(inputs), torch.stack(outputs, 1).flatten(0, 1))
    torch.testing.assert_close(net.next_state(inputs), state)


def test_burn_in_replaces_stale_states_and_keeps_those_of_beginnings() -> None:
    net, inputs = Net(), sequences(begins={(1, 2): 1})
    warm = net.warm_up(inputs, 2)
    assert warm.shape[1] == 4
    assert net.warm_up(inputs, 0) is inputs
    torch.testing.assert_close(net.read(warm), net.read(inputs).view(2, 6, 5)[:, 2:].flatten(0, 1))
    torch.testing.assert_close(warm[1], inputs[1, 2:])
    assert not torch.equal(warm[0, 0, 14:], inputs[0, 2, 14:])
    assert not warm.requires_grad


def test_gradients_flow_through_time_up_to_the_beginning_of_an_episode() -> None:
    net, inputs = Net(), sequences(begins={(1, 3): 1}).requires_grad_()
    last = net.read(inputs).view(2, 6, 5)[:, -1].sum()
    (gradient,) = torch.autograd.grad(last, inputs)
    assert (gradient[0, :, :3].abs().sum(1) > 0).all()
    assert (gradient[1, :, :3].abs().sum(1) > 0).tolist() == [False] * 3 + [True] * 3


def test_many_at_once() -> None:
    net, inputs = Net(), sequences()
    parameters = {name: torch.stack([p, 2 * p]) for name, p in net.named_parameters()}

    def read(own: Any) -> Any:
        return torch.func.functional_call(net.core, own, (inputs[..., :3].flatten(0, 1), inputs))[0]

    stacked = {name.removeprefix("core."): p for name, p in parameters.items()}
    torch.testing.assert_close(torch.vmap(read)(stacked)[0], net.read(inputs))


# --------------------------------------------------------------------------------------- sequences


def test_sequences_of_a_rollout_are_consecutive_steps_of_one_environment() -> None:
    index = torch.arange(6 * 2)  # 6 steps of 2 environments
    rollout = Rollout(*(index.float().unsqueeze(1) if i < 2 else index.float() for i in range(6)))
    cut = rollout.sequences(n_envs=2, length=3)
    assert cut.value.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert cut.flat().value.tolist() == cut.value.flatten().tolist()
    assert cut.flat().obs.shape == (4, 3, 1)


def test_minibatches_hold_whole_sequences() -> None:
    config = PPOConfig(lstm_size=4, n_steps=8, sequence_length=4, batch_size=8, n_epochs=2)
    space = spaces.Box(-1, 1, (2,), np.float32)
    agent = PPO(config, Spaces(space, spaces.Discrete(2), 3), seed=0)
    rows = torch.arange(24.0)
    rollout = Rollout(rows.unsqueeze(1), rows.unsqueeze(1), rows, rows, rows, rows)
    batches = list(agent._minibatches(rollout))
    assert [tuple(batch.obs.shape) for batch in batches] == [(2, 4, 1)] * 6
    for batch in batches:
        assert torch.equal(batch.obs.flatten(), batch.value)
        assert (batch.obs.diff(dim=1) == 3).all()


def filled(n_step: int, steps: int = 12, capacity: int = 16) -> ReplayMemory:
    """Return a memory of one environment whose rows say their time; episodes end at 4 and 8.

    The state of a row is its time too: that of a successor says when it was.
    """
    inputs = AugmentedBox(spaces.Box(-np.inf, np.inf, (1,), np.float32), 0, (1,))
    memory = ReplayMemory(
        capacity, Spaces(inputs, spaces.Discrete(2), 1), (), np.int64, gamma=0.5, n_step=n_step
    )
    begins = True
    for t in range(steps):
        terminated, truncated = t == 4, t == 8
        next_obs = np.array([[t + 1, 0, t + 1, t + 1]], np.float32)
        obs = np.array([[t, 1, 0, 0] if begins else [t, 0, t, t]], np.float32)
        if truncated:
            next_obs[0, 0] = -1  # an observation that no row begins with
        begins = terminated or truncated
        memory.add(
            obs=obs,
            action=np.array([t]),
            reward=np.array([1.0]),
            terminated=np.array([terminated]),
            truncated=np.array([truncated]),
            next_obs=next_obs,
            valid=np.array([True]),
        )
    return memory


def test_replayed_sequences_are_consecutive_and_mark_where_to_begin_anew() -> None:
    batch = filled(1).sample_sequences(200, 5, 2, torch.Generator().manual_seed(0))
    times = batch.obs[..., 0]
    assert batch.obs.shape == batch.next_obs.shape == (200, 7, 4)
    assert (times.diff(dim=1) == 1).all()
    assert set(times[:, 0].tolist()) == {0, 1, 2, 3, 4, 5}
    assert torch.equal(batch.action.view(200, 5), times[:, 2:].long())
    assert torch.equal(batch.discount.view(200, 5) == 0, times[:, 2:] == 4)
    assert torch.equal(batch.obs[..., 1] == 1, (times == 0) | (times == 5) | (times == 9))
    # Successors follow one another but behind the ends.
    anew = batch.next_obs[:, 1:, 1] == 1
    assert torch.equal(anew, (times[:, 1:] == 5) | (times[:, 1:] == 9))
    at_limit = batch.next_obs[times == 8]
    assert (at_limit[:, 0] == -1).all()
    assert (at_limit[:, 2] == 9).all()


def test_successors_of_many_steps_begin_anew_where_they_are_cut_short() -> None:
    batch = filled(3).sample_sequences(100, 12, 0, torch.Generator().manual_seed(0))
    # The successors of 0 ... 11 are 3 4 5 5 5 8 -1 -1 -1 12 12 12; those of 2, 3, 4 count nothing.
    assert batch.next_obs[0, 6:9, 0].tolist() == [-1, -1, -1]
    assert batch.next_obs[0, 1:, 1].tolist() == [0, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1]


# ------------------------------------------------------------------------------------------ agents


@pytest.mark.parametrize("name", quick(("ppo", "dqn"), AGENTS))
def test_what_was_seen_first_is_remembered(name: str) -> None:
    agent = make(name, steps=STEPS[name])
    agent.learn(STEPS[name])
    assert agent.evaluate(20).mean == 1.0


@pytest.mark.slow
def test_cartpole_without_velocities_needs_memory() -> None:
    means = []
    for lstm_size in (64, 0):
        config = {
            "lstm_size": lstm_size,
            "sequence_length": 32,
            "n_steps": 128,
            "batch_size": 256,
            "n_epochs": 4,
            "net_arch": (64,),
            "learning_rate": 1e-3,
        }
        agent = Agent("ppo", "tests.agents.toy_envs:Still", config, total_timesteps=60_000)
        agent.learn(60_000)
        means.append(agent.evaluate(20).mean)
    with_memory, without = means
    assert with_memory > 400
    assert without < 100


@pytest.mark.parametrize("name", AGENTS)
def test_without_memory_it_cannot_be_known(name: str) -> None:
    agent = make(name, steps=1000, lstm_size=0)
    agent.learn(1000)
    assert 0.2 < agent.evaluate(40).mean < 0.8


def test_boxes_and_masks_and_images_go_with_memory() -> None:
    for name, env in (
        ("sac", "tests.agents.toy_envs:Aim"),
        ("ppo", "tests.agents.toy_envs:Aim"),
        ("sac", "tests.agents.toy_envs:Fenced"),
        ("dqn", "tests.agents.toy_envs:Fenced"),
        ("ppo", "tests.agents.toy_envs:Fenced"),
        ("ppo", "tests.agents.toy_envs:Picture"),
    ):
        changes = {"n_steps": 8} if name == "ppo" else {"learning_starts": 80}
        agent = make(name, env, 160, **changes)
        assert agent.learn(160).updates
        assert agent.diverged is None
        assert agent.evaluate(1).lengths == [8]


@pytest.mark.parametrize("name", AGENTS)
def test_resumed_is_bit_equal_and_evaluation_touches_nothing(name: str, tmp_path: Any) -> None:
    straight = make(name)
    straight.learn(400)

    agent = make(name)
    agent.learn(230)
    agent.evaluate(3)
    agent.save(tmp_path / "agent.pt")
    resumed = Agent.load(tmp_path / "agent.pt")
    resumed.learn(400)
    for key, tensor in nets_of(straight).items():
        assert torch.equal(tensor, nets_of(resumed)[key]), key
    assert straight.evaluate(3).returns == resumed.evaluate(3).returns


def test_states_in_the_loop_are_those_of_stepping() -> None:
    agent: Any = make("ppo")
    agent.learn(120)  # 15 of a rollout's 16 steps: nothing is learned yet
    obs = torch.from_numpy(agent.memory.obs[: agent.memory.position])
    assert len(obs) == 15
    state = agent.algorithm.nets.next_state(obs.transpose(0, 1)[:, :-1])
    last = obs[-1]
    begins = last[:, 2:3] > 0
    torch.testing.assert_close(last[:, 3:], torch.where(begins, 0, state))


def test_successors_at_a_time_limit_bring_the_state_after_the_step() -> None:
    agent: Any = make("ppo", "tests.agents.toy_envs:Forever")  # ends after 4 steps
    agent.learn(64)
    memory, nets = agent.memory, agent.algorithm.nets
    assert memory.final_index[0] == (3, 0)
    final = torch.from_numpy(memory.final_obs[0])
    state = nets.next_state(torch.from_numpy(memory.obs[3, :1]))[0]
    torch.testing.assert_close(final[2:], state)
    assert final[1] == 0
    assert not memory.obs[4, :, 2:].any()
    assert memory.obs[4, :, 1].all()


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_learning_waits_for_a_whole_sequence(name: str) -> None:
    agent = make(name, learning_starts=0)  # 2 steps of each of 4 environments between updates
    assert agent.learn(36).metrics == {}
    assert agent.learn(40).metrics


def test_playing_is_evaluating() -> None:
    agent = make("ppo", env="CartPole-v1", steps=256)
    agent.learn(256)
    assert play(agent, 2, seed=3).returns == agent.evaluate(2, 3).returns


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("ppo", {"sequence_length": 5}, "n_steps is 16, but must be a multiple"),
        ("a2c", {"sequence_length": 32}, "n_steps is 16, but must be a multiple"),
        ("dqn", {"prioritised": True}, "prioritised"),
        ("dqn", {"buffer_size": 36}, "keeps 9 steps"),
        ("sac", {"buffer_size": 36}, "keeps 9 steps"),
        ("ppo", {"vectorization": "native"}, "vectorization"),
    ],
)
def test_what_does_not_go_together(name: str, changes: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make(name, "CartPole-v1", **changes)


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("frame_stack", quick([2], [0, 2]))
def test_images_are_remembered_and_resumed_bit_equal(
    name: str, frame_stack: int, tmp_path: Any
) -> None:
    """With masks, too; the networks read the pixels as numbers from 0 to 1."""
    config = {"encoder": "small_cnn", "frame_stack": frame_stack, "lstm_size": 4}
    config |= {"learning_starts": 32} if name in ("dqn", "sac") else {"n_steps": 8}
    agents = [make(name, "tests.agents.toy_envs:FencedPicture", 96, **config) for _ in range(2)]
    straight, agent = agents
    assert straight.learn(96).updates
    agent.learn(64)
    agent.save(tmp_path / "agent.pt")
    resumed = Agent.load(tmp_path / "agent.pt")
    resumed.learn(96)
    for key, tensor in nets_of(straight).items():
        assert torch.equal(tensor, nets_of(resumed)[key]), key
    assert straight.evaluate(2).returns == resumed.evaluate(2).returns
    modules = straight.algorithm.nets.modules()  # type: ignore[attr-defined]
    assert {module.scale for module in modules if hasattr(module, "scale")} == {1 / 255}


def test_burn_in_of_images_is_what_stepping_gives() -> None:
    agent: Any = make("dqn", "tests.agents.toy_envs:Picture", 96, learning_starts=32, lstm_size=4)
    agent.learn(96)
    nets, generator = agent.algorithm.nets, torch.Generator().manual_seed(0)
    batch = agent.memory.sample_sequences(3, 5, 2, generator)
    image = nets.parts.observation(batch.obs)
    assert image.shape == (3 * 7, 1, 36, 36)
    assert set(image.unique().tolist()) == {20, 220}
    warm = nets.warm_up(batch.obs, 2)
    whole = nets(batch.obs).view(3, 7, -1)[:, 2:].flatten(0, 1)
    torch.testing.assert_close(nets(warm).squeeze(-1), whole)
