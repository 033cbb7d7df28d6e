"""DQN: the losses against the papers row by row, the update against Stable-Baselines3's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent, UserError
from rltune.agents.algorithms.dqn import DQN, Scalars, dqn_loss
from rltune.agents.algorithms.dqn_config import DQNConfig
from rltune.agents.algorithms.dqn_targets import TDBatch
from rltune.agents.config import make_config
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.prioritised import PrioritisedMemory
from rltune.agents.networks.q_networks import NoisyLinear, QuantileReturns, Returns
from rltune.agents.spaces import Spaces
from torch import Tensor

from tests.parameters import quick

RAINBOW: dict[str, Any] = dict(
    double=True, dueling=True, noisy=True, prioritised=True, distributional="c51", n_atoms=11,
    v_min=0.0, v_max=4.0, n_step=3,
)  # fmt: skip
TINY: dict[str, Any] = dict(
    net_arch=[16], batch_size=8, learning_starts=16, buffer_size=64, target_update_interval=20
)
SCALARS = Scalars(torch.tensor(1.0))


def make(n_envs: int = 2, seed: int = 0, **config: Any) -> DQN:
    box = spaces.Box(-1, 1, (4,), np.float32)
    values = {**TINY, **config}
    return DQN(make_config(DQNConfig, values), Spaces(box, spaces.Discrete(3), n_envs), seed=seed)


def agent(env: str, total: int = 1000, seed: int = 0, **config: Any) -> Agent:
    values = {**TINY, **config}
    return Agent(
        "rltune.agents.algorithms.dqn:DQN",
        env,
        values,
        total_timesteps=total,
        seed=seed,
        device="cpu",
    )


def batch_of(n: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    discount = 0.9 * (torch.rand(n, generator=generator) > 0.3)
    action = torch.randint(3, (n,), generator=generator)
    return Batch(normal(n, 4), action, 2 * normal(n), normal(n, 4), discount)


def different(dqn: DQN) -> None:
    """Make the target network another one than the online network."""
    with torch.no_grad():
        for parameter in dqn.target.module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=dqn.generator))


def check_gradients(dqn: DQN, loss: Tensor, naive: Tensor) -> None:
    torch.testing.assert_close(loss, naive)
    parameters = list(dqn.nets.parameters())
    ours = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    theirs = torch.autograd.grad(naive, parameters, retain_graph=True, allow_unused=True)
    for own, other in zip(ours, theirs, strict=True):
        if own is not None or other is not None:
            torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-4)


# ------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize("double", [False, True])
def test_the_loss_of_a_mean_is_that_of_the_papers(double: bool) -> None:
    dqn, batch = make(double=double, dueling=True), batch_of(64)
    different(dqn)
    loss, metrics = dqn_loss(dqn.nets, dqn.td_targets.of(batch), SCALARS)
    total, choices = torch.zeros(()), set()
    for i in range(64):
        row = slice(i, i + 1)
        with torch.no_grad():
            values = dqn.target.module(batch.next_obs[row])[0, :, 0]
            online = dqn.nets(batch.next_obs[row])[0, :, 0]
        best = int(online.argmax()) if double else int(values.argmax())
        choices.add(int(online.argmax()) == int(values.argmax()))
        y = batch.reward[i] + batch.discount[i] * values[best]
        error = y - dqn.nets(batch.obs[row])[0, batch.action[i], 0]
        assert metrics["errors"][i].item() == pytest.approx(error.item(), abs=1e-5)
        total = total + (0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5)
    assert choices == {False, True}
    check_gradients(dqn, loss, total / 64)


def test_the_loss_of_c51_is_that_of_the_paper() -> None:
    dqn, batch = make(distributional="c51", n_atoms=7, v_min=-2, v_max=3), batch_of(64)
    different(dqn)
    # Moved atoms that hit an atom exactly are a case of their own in the paper's algorithm.
    batch = batch._replace(reward=batch.reward.where(batch.discount > 0, torch.tensor(0.5)))
    loss, _ = dqn_loss(dqn.nets, dqn.td_targets.of(batch), SCALARS)
    z = np.linspace(-2, 3, 7)
    delta = 5 / 6
    total = torch.zeros(())
    for i in range(64):
        row = slice(i, i + 1)
        with torch.no_grad():
            p = dqn.target.module(batch.next_obs[row])[0].softmax(-1).double().numpy()
        best = int((p @ z).argmax())
        m = np.zeros(7)
        for j in range(7):
            moved = np.clip(float(batch.reward[i]) + float(batch.discount[i]) * z[j], -2, 3)
            b = round((moved + 2) / delta, 6)
            low, high = int(np.floor(b)), int(np.ceil(b))
            if low == high:
                m[low] += p[best, j]
            else:
                m[low] += p[best, j] * (high - b)
                m[high] += p[best, j] * (b - low)
        log_p = dqn.nets(batch.obs[row])[0, batch.action[i]].log_softmax(-1)
        total = total - (torch.from_numpy(m).float() * log_p).sum()
    check_gradients(dqn, loss, total / 64)


def test_the_loss_of_quantiles_is_that_of_the_paper() -> None:
    dqn, batch = make(distributional="qr", n_quantiles=5), batch_of(64)
    different(dqn)
    kappa = 0.7
    loss, _ = dqn_loss(dqn.nets, dqn.td_targets.of(batch), Scalars(torch.tensor(kappa)))
    total = torch.zeros(())
    for k in range(64):
        row = slice(k, k + 1)
        with torch.no_grad():
            theta = dqn.target.module(batch.next_obs[row])[0]
        targets = batch.reward[k] + batch.discount[k] * theta[theta.mean(-1).argmax()]
        outputs = dqn.nets(batch.obs[row])[0, batch.action[k]]
        for i in range(5):
            for j in range(5):
                u = targets[j] - outputs[i]
                huber = 0.5 * u**2 if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                asymmetry = abs((2 * i + 1) / 10 - float(u < 0))
                total = total + asymmetry * huber / kappa / 5
    check_gradients(dqn, loss, total / 64)


def test_the_loss_of_quantiles_is_that_of_sb3_contrib() -> None:
    utils = pytest.importorskip("sb3_contrib.common.utils")
    outputs, target = torch.randn(2, 16, 20, generator=torch.Generator().manual_seed(0))
    ours = QuantileReturns(20).losses(outputs, target, torch.tensor(1.0)).mean()
    torch.testing.assert_close(ours, utils.quantile_huber_loss(outputs, target))


def test_importance_weights_multiply_the_rows_losses() -> None:
    dqn, batch = make(), batch_of(8)
    whole = dqn.td_targets.of(batch)
    weight = torch.linspace(0, 1, 8)
    rows = [
        dqn_loss(dqn.nets, dqn.td_targets.of(batch.rows(slice(i, i + 1))), SCALARS)[0].item()
        for i in range(8)
    ]
    loss, _ = dqn_loss(dqn.nets, whole._replace(weight=weight), SCALARS)
    assert loss.item() == pytest.approx(np.dot(rows, weight.numpy()) / 8, rel=1e-5)


@pytest.mark.parametrize("config", [{}, RAINBOW, {"distributional": "qr"}])
def test_the_loss_runs_for_several_agents_at_once(config: dict[str, Any]) -> None:
    agents = [make(seed=seed, **config) for seed in range(3)]
    batches = [dqn.td_targets.of(batch_of(8, seed)) for seed, dqn in enumerate(agents)]
    parameters = [dict(dqn.nets.named_parameters()) for dqn in agents]
    stacked = {name: torch.stack([p[name] for p in parameters]) for name in parameters[0]}
    fields = [None if part[0] is None else torch.stack(part) for part in zip(*batches, strict=True)]
    dims = TDBatch(*(None if field is None else 0 for field in fields))  # type: ignore[arg-type]
    nets = agents[0].nets

    class Others(torch.nn.Module):
        returns = nets.returns

        def __init__(self, parameters: dict[str, Tensor]) -> None:
            super().__init__()
            self.own = parameters

        def forward(self, *inputs: Any) -> Any:
            return torch.func.functional_call(nets, self.own, inputs)

    def loss(parameters: dict[str, Tensor], batch: TDBatch) -> Tensor:
        return dqn_loss(Others(parameters), batch, SCALARS)[0]

    losses = torch.func.vmap(loss, in_dims=(0, dims))(stacked, TDBatch(*fields))  # type: ignore[arg-type]
    for dqn, batch, found in zip(agents, batches, losses, strict=True):
        torch.testing.assert_close(found, dqn_loss(dqn.nets, batch, SCALARS)[0])


# ---------------------------------------------------------------------------------------- networks


def test_noisy_layers_are_those_of_the_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = NoisyLinear(4, 3, 0.5, generator)
    assert torch.equal(layer.weight_sigma, torch.full((3, 4), 0.25))
    x, noise = torch.randn(5, 4, generator=generator), torch.randn(5, 7, generator=generator)
    together = layer(x, noise)
    for i in range(5):
        weight = layer.weight + layer.weight_sigma * torch.outer(noise[i, 4:], noise[i, :4])
        bias = layer.bias + layer.bias_sigma * noise[i, 4:]
        torch.testing.assert_close(together[i], weight @ x[i] + bias)
        torch.testing.assert_close(layer(x[i : i + 1], noise[i])[0], together[i])


def test_the_noise_is_a_signed_root_and_of_every_layer() -> None:
    nets = make(noisy=True, dueling=True, net_arch=[6, 5], activation="tanh").nets
    noise = nets.draw_noise(torch.Generator().manual_seed(0), 2000)
    assert noise is not None
    assert noise.shape == (2000, (6 + 5) + (5 + 3) + (6 + 5) + (5 + 1))
    assert float((noise**4).mean()) == pytest.approx(1, abs=0.02)  # of a normal number's square
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)
    obs = torch.ones(1, 4)
    for i in range(noise.shape[1]):  # every number has an effect
        changed = noise[:1].clone()
        changed[0, i] += 1
        assert not torch.equal(nets(obs, changed), nets(obs, noise[:1]))


def test_advantages_have_a_mean_of_zero() -> None:
    nets = make(dueling=True, net_arch=[8, 8]).nets
    obs = torch.randn(6, 4)
    assert nets.value is not None
    value = nets.value(nets.torso(obs), None)
    torch.testing.assert_close(nets(obs).mean(1), value)


def test_greedy_actions_are_deterministic_and_change_nothing() -> None:
    dqn = make(**RAINBOW)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    for _ in range(10):
        dqn.act(obs, explore=True)  # past the random beginning
    before = dqn.state_dict()
    state, acted = before["generator"], dqn.acted
    first = dqn.act(obs, explore=False)
    assert (dqn.act(obs, explore=False) == first).all()
    assert torch.equal(dqn.generator.get_state(), state)
    assert dqn.acted == acted
    assert (dqn.act(obs, explore=True) != first).any()


def test_each_environment_explores_for_itself() -> None:
    dqn = make(learning_starts=0)
    obs = np.zeros((4000, 4), np.float32)
    greedy = dqn.act(obs, explore=False)[0]
    dqn.epsilon = 0.3
    assert np.mean(dqn.act(obs, explore=True) == greedy) == pytest.approx(0.7 + 0.1, abs=0.03)
    dqn.epsilon = 0.0
    assert (dqn.act(obs, explore=True) == greedy).all()
    noisy = make(learning_starts=0, noisy=True, noisy_sigma=3.0)
    assert len(np.unique(noisy.act(obs, explore=True))) > 1  # the same observation, other noise
    beginner = make(learning_starts=4001)
    beginner.epsilon = 0.0
    counts = np.bincount(beginner.act(obs, explore=True))
    np.testing.assert_allclose(counts / 4000, 1 / 3, atol=0.03)


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(UserError, match="dqn chooses among discrete actions"):
        agent("Pendulum-v1")
    with pytest.raises(UserError, match="v_min is 3, but must be below v_max 2"):
        make(v_min=3, v_max=2)


# ------------------------------------------------------------------------------------------ update


@pytest.mark.parametrize("n_envs", [1, 2, 8])
@pytest.mark.parametrize("gradient_steps", [1, 3, -1])
def test_cadence_does_not_depend_on_the_number_of_environments(
    n_envs: int, gradient_steps: int
) -> None:
    one = agent("CartPole-v1", n_envs=n_envs, gradient_steps=gradient_steps, learning_starts=40)
    chunk = one.learn(120)
    updates = (120 - 40) // 4
    steps = one.algorithm.learner.step_count  # type: ignore[attr-defined]
    assert int(steps) == updates * (4 if gradient_steps < 0 else gradient_steps)
    assert chunk.updates == 30
    assert {"loss", "q_value", "epsilon", "grad_norm"} <= chunk.metrics.keys()


def test_the_target_follows_in_env_steps() -> None:
    for interval, tau in ((10, 1.0), (3, 0.5), (1, 0.1)):
        dqn = make(target_update_interval=interval, tau=tau, learning_starts=10**6)
        different(dqn)
        distance = float((dqn.target.flat - dqn.learner.flat).norm())
        memory = dqn.make_memory()
        for _ in range(5):
            dqn.update(memory, 0.0)  # 4 env steps each
        left = float((dqn.target.flat - dqn.learner.flat).norm())
        assert left == pytest.approx(distance * (1 - tau) ** (20 // interval), rel=1e-4)


def test_epsilon_falls_with_progress() -> None:
    dqn = make(exploration_fraction=0.2, exploration_final_eps=0.1, learning_starts=10**6)
    seen = []
    for progress in (0.0, 0.1, 0.2, 0.9):
        dqn.update(dqn.make_memory(), progress)
        seen.append(dqn.epsilon)
    assert seen == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_prioritised_learning_writes_its_errors_down() -> None:
    one = agent("CartPole-v1", prioritised=True, learning_starts=40)
    one.learn(60)
    memory = one.memory
    assert isinstance(memory, PrioritisedMemory)
    assert len(np.unique(memory.tree.leaves)) > 10


CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("CartPole-v1", {}),
    "one env": ("CartPole-v1", {"n_envs": 1, "gradient_steps": 1}),
    "soft": ("CartPole-v1", {"tau": 0.1, "target_update_interval": 4}),
    "rainbow": ("CartPole-v1", {**RAINBOW, "n_envs": 4}),
    "quantiles": ("CartPole-v1", {"distributional": "qr", "prioritised": True}),
    "images": ("toy_envs:Picture", {"frame_stack": 3, "train_freq": 8, "gradient_steps": 1}),
    "image rainbow": ("toy_envs:Picture", {**RAINBOW, "frame_stack": 2, "gradient_steps": 1}),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_resumed_run_is_bit_equal(kind: str, tmp_path: Path) -> None:
    env, config = CONFIGS[kind]
    total, stop = (64, 38) if "image" in kind else (140, 74)
    config = {"n_envs": 2, **config}
    whole = agent(env, total, **config)
    chunk = whole.learn(total)
    first = agent(env, total, **config)
    first.learn(stop)
    first.save(tmp_path / "a.pt")
    again = Agent.load(tmp_path / "a.pt", device="cpu")
    again.save(tmp_path / "b.pt")
    third = Agent.load(tmp_path / "b.pt", device="cpu")
    assert third.learn(total).metrics.keys() == chunk.metrics.keys()
    ours: Any = whole.algorithm
    theirs: Any = third.algorithm
    assert not torch.equal(ours.learner.flat, first.algorithm.learner.flat)  # type: ignore[attr-defined]
    assert torch.equal(ours.learner.flat, theirs.learner.flat)
    assert torch.equal(ours.target.flat, theirs.target.flat)
    assert ours.epsilon == theirs.epsilon
    assert torch.equal(ours.generator.get_state(), theirs.generator.get_state())


WAYS = [{"prioritised": True}, {"double": True, "n_step": 2}, RAINBOW]


@pytest.mark.parametrize("config", quick(WAYS[:2], WAYS))
def test_a_bandit_is_learned(config: dict[str, Any]) -> None:
    one = agent("toy_envs:Which", 600, gamma=0.5, learning_rate=3e-3, **config)
    one.learn(600)
    assert one.evaluate(5).mean == 8


LEARNERS: dict[str, dict[str, Any]] = {
    "quantiles": {"distributional": "qr", "n_quantiles": 10},
    "rainbow": {**RAINBOW, "v_max": 1.0},
}


@pytest.mark.parametrize("kind", quick(["quantiles"], LEARNERS))
def test_a_delayed_reward_is_found(kind: str) -> None:
    one = agent(
        "toy_envs:Chain",
        1000,
        gamma=0.9,
        learning_rate=3e-3,
        buffer_size=1000,
        exploration_fraction=0.5,
        batch_size=32,
        gradient_steps=2,
        **LEARNERS[kind],
    )
    one.learn(1000)
    evaluation = one.evaluate(2)
    assert evaluation.returns == [1.0, 1.0]
    assert evaluation.lengths == [5, 5]


# ----------------------------------------------------------------------------- Stable-Baselines3

LAYERS = {"torso.0": "q_net.0", "advantage.layers.0": "q_net.2", "advantage.layers.1": "q_net.4"}
IMAGE_LAYERS = {
    **{f"encoder.layers.{i}": f"features_extractor.cnn.{i}" for i in (0, 2, 4)},
    "advantage.layers.0": "features_extractor.linear.0",
    "advantage.layers.1": "q_net.0",
}


class Snow(gymnasium.Env[Any, Any]):
    """Random pictures and rewards; now and then an episode ends."""

    observation_space = spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = spaces.Discrete(3)

    def _look(self) -> Any:
        return self.np_random.integers(0, 256, (36, 36), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> Any:
        return self._look(), float(action), self.np_random.random() < 0.1, False, {}


def stacked_snow() -> gymnasium.Env[Any, Any]:
    limited = gymnasium.wrappers.TimeLimit(Snow(), 10)
    return gymnasium.wrappers.FrameStackObservation(limited, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tau": 0.3, "target_update_interval": 2, "gradient_steps": -1, "max_grad_norm": 0.5},
        {"n_step": 3, "train_freq": 5, "learning_rate": 5e-3},
        pytest.param(
            {"images": True, "learning_rate": 1e-4, "gradient_steps": 1}, marks=pytest.mark.slow
        ),
    ],
)
def test_updates_are_those_of_sb3(changes: dict[str, Any]) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.callbacks import BaseCallback

    settings: dict[str, Any] = dict(
        learning_rate=1e-3, batch_size=16, buffer_size=200, learning_starts=50, train_freq=4,
        gradient_steps=2, target_update_interval=10, exploration_fraction=0.5, gamma=0.97,
        max_grad_norm=10.0, exploration_final_eps=0.2,
    )  # fmt: skip
    settings.update(changes)
    images = settings.pop("images", False)
    total = 400  # the ring goes round
    config = make_config(DQNConfig, {**settings, "n_envs": 1, "net_arch": [64, 64]})
    settings["n_steps"] = settings.pop("n_step", 1)
    # Short episodes: terminations and time limits both occur.
    env = stacked_snow() if images else gymnasium.make("CartPole-v1", max_episode_steps=10)
    policy = "CnnPolicy" if images else "MlpPolicy"
    theirs = sb3.DQN(policy, env, seed=0, device="cpu", **settings)
    ours = DQN(config, Spaces(theirs.observation_space, theirs.action_space, 1), seed=0)
    pairs = [
        (own.state_dict()[f"{a}.{kind}"], other.state_dict()[f"{b}.{kind}"])
        for own, other in ((ours.nets, theirs.q_net), (ours.target.module, theirs.q_net_target))
        for a, b in (IMAGE_LAYERS if images else LAYERS).items()
        for kind in ("weight", "bias")
    ]
    with torch.no_grad():
        for own, other in pairs:
            own.copy_(other)
    memory: Any = ours.make_memory()
    buffer, train = theirs.replay_buffer, theirs.train
    compared = []

    class Follow(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            seen = self.locals
            done, info = seen["dones"], seen["infos"][0]
            cut = done & info.get("TimeLimit.truncated", False)
            successor = info["terminal_observation"][None] if done[0] else seen["new_obs"]
            memory.add(
                obs=theirs._last_obs,
                action=seen["actions"],
                reward=seen["rewards"],
                terminated=done & ~cut,
                truncated=cut,
                next_obs=successor.copy(),
                valid=np.ones(1, np.bool_),
            )
            now = self.num_timesteps
            if now % config.train_freq == 0 and now <= config.learning_starts:
                assert ours.update(memory, now / total) == {}
            return True

    def follow(gradient_steps: int, batch_size: int) -> None:
        generator = torch.Generator()
        generator.set_state(ours.generator.get_state())
        shape = (gradient_steps * batch_size,)
        age = torch.randint(len(memory), shape, generator=generator).numpy() + 1
        minibatches = iter(np.split((buffer.pos - age) % buffer.buffer_size, gradient_steps))
        buffer.sample = lambda *args, **kwargs: buffer._get_samples(next(minibatches))
        train(gradient_steps, batch_size)
        ours.update(memory, theirs.num_timesteps / total)
        for own, other in pairs:
            # Adam makes steps of the rounding errors of gradients that are all but 0.
            torch.testing.assert_close(own, other, atol=2e-5 if images else 2e-6, rtol=0)
        assert ours.epsilon == pytest.approx(theirs.exploration_rate)
        compared.append(theirs.num_timesteps)

    theirs.train = follow
    theirs.learn(total, callback=Follow())
    assert memory.truncated.any()
    assert memory.terminated.any()
    assert len(compared) == total // config.train_freq - 50 // config.train_freq


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {0.0: 1.0, 0.05: 0.525, 0.1: 0.05, 0.9: 0.05}),
        ({"epsilon_decay_steps": 400}, {0.0: 1.0, 0.05: 1 - 0.95 * 0.125, 0.8: 0.05}),
        (
            {"exploration_schedule": "exponential", "exploration_decay_steps": 400},
            {0.05: 0.05 + 0.95 * math.exp(-0.125), 0.8: 0.05 + 0.95 * math.exp(-2)},
        ),
        ({"exploration_schedule": "exponential"}, {0.05: 0.05 + 0.95 * math.exp(-0.5)}),
    ],
)
def test_epsilon_falls_by_the_part_of_the_training_or_by_steps(
    config: dict[str, Any], expected: dict[float, float]
) -> None:
    algorithm = Agent("dqn", "CartPole-v1", config, total_timesteps=1000).algorithm
    assert isinstance(algorithm, DQN)
    for progress, epsilon in expected.items():
        algorithm.env_steps = round(1000 * progress)
        assert algorithm._epsilon_at(progress) == pytest.approx(epsilon)


def test_squared_errors_and_scaled_rewards() -> None:
    made = Agent(
        "dqn", "CartPole-v1", {"td_loss": "squared", "reward_scale": 3.0}, total_timesteps=100
    )
    algorithm: Any = made.algorithm
    error = torch.tensor([-7.0, 0.5])
    losses = Returns().losses(torch.zeros(2, 1), error, algorithm.scalars.huber_delta)
    torch.testing.assert_close(losses, 0.5 * error**2)
    zeros = torch.zeros(2, 4)
    batch = Batch(zeros, torch.zeros(2).long(), torch.tensor([1.0, 2.0]), zeros, torch.zeros(2))
    torch.testing.assert_close(algorithm.td_targets.of(batch).target, torch.tensor([3.0, 6.0]))
    with pytest.raises(UserError, match="not for distributional c51"):
        Agent(
            "dqn", "CartPole-v1", {"td_loss": "squared", "distributional": "c51"}, total_timesteps=1
        )
