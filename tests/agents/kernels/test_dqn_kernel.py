"""DQN's kernel against the loss and the update that PyTorch computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from replay_helpers import fill
from rltune.agents import Agent, UserError
from rltune.agents.algorithms.dqn import DQN, dqn_loss
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.config import make_config
from rltune.agents.kernels.dqn import DQNKernel
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.prioritised import PrioritisedMemory
from rltune.agents.memory.replay import ReplayMemory
from rltune.agents.spaces import AugmentedBox, Spaces
from torch import Tensor

BOX = spaces.Box(-1, 1, (4,), np.float32)
TINY: dict[str, Any] = dict(
    net_arch=[16, 12], batch_size=8, learning_starts=0, buffer_size=200, target_update_interval=16
)
FORMS: list[dict[str, Any]] = [
    {},
    dict(net_arch=[], dueling=True),
    dict(net_arch=[24], dueling=True, activation="silu"),
    dict(net_arch=[16, 24, 8], dueling=True, double=True),
    dict(net_arch=[16], activation="tanh", double=True),
    dict(activation="elu", td_loss="squared", reward_scale=3.0),
    dict(huber_delta=0.3, n_step=3),
]


def make(space: spaces.Box = BOX, engine: str = "torch", **config: Any) -> DQN:
    made = make_config(DQNConfig, {**TINY, **config})
    dqn = DQN(made, Spaces(space, spaces.Discrete(3), 2), seed=0)
    with torch.no_grad():
        for parameter in [*dqn.nets.parameters(), *dqn.target.module.parameters()]:
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=dqn.generator))
    dqn.use_engine(engine)
    return dqn


def batch_of(n: int, weighted: bool = False, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    discount = 0.9 * (torch.rand(n, generator=generator) > 0.3)
    action = torch.randint(3, (n,), generator=generator)
    weight = torch.rand(n, generator=generator) if weighted else None
    return Batch(normal(n, 4), action, 2 * normal(n), normal(n, 4), discount, weight)


def kernel_of(dqn: DQN) -> DQNKernel:
    assert isinstance(dqn.kernel, DQNKernel)
    return dqn.kernel


def check_gradient(dqn: DQN, batch: Batch) -> None:
    """Compare the kernel's gradient, loss and errors with those of the loss that defines them."""
    loss, metrics = dqn_loss(dqn.nets, dqn.td_targets.of(batch), dqn.scalars)
    kernel = kernel_of(dqn)
    (minibatch,) = kernel._minibatches([batch])
    found_loss, found_value, found_errors = kernel.set_gradient(minibatch)
    assert found_loss == pytest.approx(loss.item(), rel=1e-5)
    assert found_value == pytest.approx(metrics["q_value"].item(), rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(found_errors, metrics["errors"].numpy(), rtol=1e-4, atol=1e-5)
    at = 0
    for wanted in torch.autograd.grad(loss, dqn.learner.parameters):
        own = kernel.gradient[at : at + wanted.numel()].reshape(wanted.shape)
        at += wanted.numel()
        np.testing.assert_allclose(own, wanted.numpy(), atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("config", FORMS)
@pytest.mark.parametrize(("rows", "weighted"), [(1, False), (64, False), (37, True)])
def test_the_gradient_is_that_of_the_loss(
    config: dict[str, Any], rows: int, weighted: bool
) -> None:
    dqn = make(engine="numpy", **config, batch_size=rows)
    for seed in range(3):
        check_gradient(dqn, batch_of(rows, weighted, seed))


@pytest.mark.parametrize("dead", [0, 100, 200, 256])
def test_units_that_are_off_for_all_rows_are_left_out_of_the_products(dead: int) -> None:
    dqn = make(engine="numpy", net_arch=[64, 256])
    with torch.no_grad():
        dqn.nets.advantage.layers[0].bias[:dead] = -100
    kernel_of(dqn).gradient.fill(7)  # what was there before must not stay
    check_gradient(dqn, batch_of(8))


def test_targets_of_more_rows_than_are_valued_at_once_are_their_own() -> None:
    dqn, batch = make(engine="numpy"), batch_of(1000)
    minibatches = list(kernel_of(dqn)._minibatches([batch]))
    assert len(minibatches) == 125
    found = np.concatenate([minibatch.target for minibatch in minibatches])
    np.testing.assert_allclose(found, dqn.td_targets.of(batch).target.numpy(), atol=1e-5)


def pair(**config: Any) -> list[tuple[DQN, ReplayMemory]]:
    """Return an agent of each engine, in the same state, with a memory of its own."""
    made = []
    for engine in ("torch", "numpy"):
        dqn = make(engine=engine, train_freq=16, gradient_steps=3, **config)
        made.append((dqn, fill(dqn, 60)))
    return made


UPDATES = [
    *FORMS,
    dict(prioritised=True, double=True, dueling=True, n_step=3),
    dict(optimizer="rmsprop", max_grad_norm=0.5),
    dict(max_grad_value=0.01, tau=0.3),
]


@pytest.mark.parametrize("config", UPDATES)
def test_ten_updates_end_where_pytorchs_do(config: dict[str, Any]) -> None:
    (torchs, memory), (ours, own_memory) = pair(**config)
    for _ in range(10):
        wanted, found = torchs.update(memory, 0.5), ours.update(own_memory, 0.5)
        assert list(found) == list(wanted)
        assert found == pytest.approx(wanted, rel=1e-4)
    moved = (torchs.learner.flat - make(**config).learner.flat).abs().max()
    assert float((torchs.learner.flat - ours.learner.flat).abs().max()) < 1e-4 < 0.01 * moved
    assert float((torchs.target.flat - ours.target.flat).abs().max()) < 1e-4
    assert torch.equal(torchs.generator.get_state(), ours.generator.get_state())
    if isinstance(memory, PrioritisedMemory) and isinstance(own_memory, PrioritisedMemory):
        np.testing.assert_allclose(memory.tree.leaves, own_memory.tree.leaves, atol=1e-3)


def test_rounding_at_the_corner_of_relu_becomes_a_learning_rate() -> None:
    # Why trainings of both engines part: with Adam's first steps, a unit's weights move by a whole
    # learning rate, whatever its gradient; and a number that rounding puts on the one side of 0 or
    # the other decides whether it has one. So it is in PyTorch alone.
    after = []
    for bias in (-1e-9, 1e-9):
        moved = []
        for engine in ("torch", "numpy"):
            dqn = make(engine=engine, net_arch=[6], train_freq=1, gradient_steps=1)
            with torch.no_grad():
                dqn.nets.advantage.layers[0].weight[0] = 0
                dqn.nets.advantage.layers[0].bias[0] = bias
            dqn.update(fill(dqn, 20), 0.0)
            moved.append(dqn.learner.flat.clone())
        torch.testing.assert_close(moved[0], moved[1], atol=1e-6, rtol=0)
        after.append(moved[0])
    assert float((after[0] - after[1]).abs().max()) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(("row", "what"), [("obs", np.nan), ("reward", np.nan), ("reward", np.inf)])
def test_what_is_not_finite_is_seen_in_the_metrics(row: str, what: float) -> None:
    found = []
    for dqn, memory in pair(learning_rate=1e-3):
        values = memory.reward if row == "reward" else memory.observations.frames
        values[7] = what
        found.append(dqn.update(memory, 0.5))
    for name, wanted in found[0].items():
        assert np.isfinite(found[1][name]) == np.isfinite(wanted), name
    assert not np.isfinite(found[1]["loss"])


def test_both_engines_act_alike() -> None:
    acted = []
    for dqn, _ in pair(learning_starts=6, exploration_initial_eps=0.5):
        rng = np.random.default_rng(0)
        looks = [rng.normal(size=(n, 4)).astype(np.float32) for n in (2, 2, 2, 2, 1, 7, 30)]
        actions = [dqn.act(obs, explore=explore) for obs in looks for explore in (True, False)]
        assert all(action.dtype == np.int64 for action in actions)
        acted.append(np.concatenate(actions))
    np.testing.assert_array_equal(acted[0], acted[1])
    assert set(acted[0]) == {0, 1, 2}


IMAGE = spaces.Box(0, 255, (4, 36, 36), np.uint8)
STRANGE: list[tuple[str, spaces.Box, dict[str, Any]]] = [
    ("an LSTM", BOX, dict(lstm_size=4)),
    ("action masks", AugmentedBox(BOX, 3), {}),
    ("images", IMAGE, {}),
    ("noisy layers", BOX, dict(noisy=True)),
    ("distributional returns", BOX, dict(distributional="c51", v_min=0, v_max=3)),
    ("distributional returns", BOX, dict(distributional="qr", n_quantiles=1)),
    ("a LayerNorm in the network", BOX, dict(layer_norm=True)),
]


@pytest.mark.parametrize(("name", "space", "config"), STRANGE)
def test_what_no_kernel_computes_is_named(
    name: str, space: spaces.Box, config: dict[str, Any]
) -> None:
    dqn = DQN(
        make_config(DQNConfig, {**TINY, **config}), Spaces(space, spaces.Discrete(3), 1), seed=0
    )
    with pytest.raises(UserError, match=f"engine numpy has nothing for {name}; use auto or torch"):
        dqn.use_engine("numpy")
    dqn.use_engine("auto")
    assert dqn.engine == "torch"


def test_a_model_file_is_none_of_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "net.cfg"
    path.write_text("[dense]\nunits=8\nactivation=relu\n\n[dense]\noutput=1\n")
    config = make_config(DQNConfig, {"model": str(path)})
    dqn = DQN(config, Spaces(BOX, spaces.Discrete(3), 1), seed=0)
    with pytest.raises(UserError, match="engine numpy has nothing for a model file"):
        dqn.use_engine("numpy")


def agent(engine: str = "numpy", **config: Any) -> Agent:
    values = {**TINY, "n_envs": 2, "prioritised": True, **config}
    return Agent("dqn", "CartPole-v1", values, total_timesteps=600, device="cpu", engine=engine)


def test_a_training_that_went_on_equals_one_that_was_never_interrupted(tmp_path: Path) -> None:
    whole, half = agent(), agent()
    whole.learn(600)
    half.learn(290)
    half.save(tmp_path / "half.pt")
    rest = Agent.load(tmp_path / "half.pt", device="cpu")
    assert rest.algorithm.engine == "numpy"
    rest.learn(600)
    states = [trained.algorithm.state_dict() for trained in (whole, rest)]
    for part in ("nets", "target", "learner"):
        for name, values in states[0][part].items():
            assert torch.equal(states[1][part][name], values), name
    assert torch.equal(states[1]["generator"], states[0]["generator"])


@pytest.mark.parametrize(("first", "second"), [("torch", "numpy"), ("numpy", "torch")])
def test_the_checkpoint_of_one_engine_goes_on_with_the_other(
    first: str, second: str, tmp_path: Path
) -> None:
    whole, half = agent(first), agent(first)
    whole.learn(330)
    half.learn(300)
    half.save(tmp_path / "half.pt")
    rest = Agent.load(tmp_path / "half.pt", device="cpu", engine=second)
    assert rest.algorithm.engine == second
    rest.learn(330)
    flats = [trained.algorithm.learner.flat for trained in (whole, rest)]  # type: ignore[attr-defined]
    torch.testing.assert_close(flats[0], flats[1], atol=1e-4, rtol=0)
