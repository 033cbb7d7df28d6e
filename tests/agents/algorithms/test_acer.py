"""ACER against the paper, written down in loops; its cadence, its resumption and small tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rltune.agents import Agent, UserError
from rltune.agents.algorithms.acer import (
    ACER,
    ACERBatch,
    Scalars,
    acer_loss,
    retrace,
    within_trust_region,
)
from rltune.agents.config import make_config
from rltune.agents.memory.segments import SegmentMemory
from rltune.agents.spaces import Spaces
from torch import Tensor, nn

from tests.parameters import quick

SPEC = "rltune.agents.algorithms.acer:ACER"
GAMMA = 0.9
N_ENVS, N_STEPS, N_ACTIONS = 6, 7, 3


def make(n_envs: int = 2, seed: int = 0, action: Any = None, **config: Any) -> ACER:
    observation = spaces.Box(-1, 1, (4,), np.float32)
    space = spaces.Discrete(N_ACTIONS) if action is None else action
    values = {"n_steps": 4, "net_arch": [16], "gamma": GAMMA, "replay_start": 0, **config}
    return ACER(make_config(ACER.Config, values), Spaces(observation, space, n_envs), seed=seed)


def sharpened(agent: ACER, seed: int = 0) -> ACER:
    """Give the policy head larger weights, so that policies differ from each other."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        weight = agent.nets.actor[1].weight
        weight.copy_(torch.randn(weight.shape, generator=generator))
    return agent


def random_batch(seed: int = 0, bound: bool = True) -> ACERBatch:
    generator = torch.Generator().manual_seed(seed)
    shape = (N_ENVS, N_STEPS)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    kind = torch.rand(shape, generator=generator)
    cut = (kind > 0.8) & (torch.arange(N_STEPS) < N_STEPS - 1)
    return ACERBatch(
        obs=normal(N_ENVS, N_STEPS + 1, 4),
        action=torch.randint(N_ACTIONS, shape, generator=generator),
        reward=normal(*shape),
        mu=(2 * normal(*shape, N_ACTIONS)).softmax(-1),
        terminated=kind < 0.2,
        cut=cut,
        valid=torch.rand(shape, generator=generator) < 0.8,
        final_value=normal(*shape) * cut,
        average=normal(*shape, N_ACTIONS).softmax(-1) if bound else None,
    )


def scalars(c: float = 1.5, delta: float = 0.05) -> Scalars:
    return Scalars(*(torch.tensor(x) for x in (GAMMA, c, delta, 0.01, 0.5)))


def naive_targets(batch: ACERBatch, env: int, pi: Tensor, q: Tensor) -> list[float]:
    """Algorithm 2 of the paper, one step after the other, from the last one to the first."""
    value = (pi * q).sum(-1)
    targets: list[float] = []
    follows = float(value[N_STEPS])
    for t in reversed(range(N_STEPS)):
        if batch.terminated[env, t]:
            follows = 0.0
        elif batch.cut[env, t]:
            follows = float(batch.final_value[env, t])
        target = float(batch.reward[env, t]) + GAMMA * follows
        targets.insert(0, target)
        a = int(batch.action[env, t])
        rho = float(pi[t, a] / batch.mu[env, t, a])
        follows = min(1.0, rho) * (target - float(q[t, a])) + float(value[t])
    return targets


def test_retrace_is_that_of_the_paper() -> None:
    agent, batch = sharpened(make()), random_batch()
    with torch.no_grad():
        logits, q = (
            out.view(N_ENVS, N_STEPS + 1, -1) for out in agent.nets(batch.obs.flatten(0, 1))
        )
    pi = logits.softmax(-1)
    action = batch.action[..., None]
    rho = (pi[:, :-1] / batch.mu).gather(-1, action).squeeze(-1)
    assert rho.min() < 0.5 < 2 < rho.max()
    targets = retrace(
        batch, rho, q[:, :-1].gather(-1, action).squeeze(-1), (pi * q).sum(-1), torch.tensor(GAMMA)
    )
    naive = [naive_targets(batch, env, pi[env], q[env]) for env in range(N_ENVS)]
    torch.testing.assert_close(targets, torch.tensor(naive), atol=1e-5, rtol=1e-5)


def test_on_policy_retrace_gives_the_return() -> None:
    """With weights of 1 and Q equal to V the targets are the discounted rewards and one value."""
    batch = random_batch()._replace(
        terminated=torch.zeros(N_ENVS, N_STEPS, dtype=torch.bool),
        cut=torch.zeros(N_ENVS, N_STEPS, dtype=torch.bool),
    )
    value = torch.randn(N_ENVS, N_STEPS + 1, generator=torch.Generator().manual_seed(1))
    one = torch.ones(N_ENVS, N_STEPS)
    targets = retrace(batch, one, value[:, :-1], value, torch.tensor(GAMMA))
    expected = value[:, -1]
    for t in reversed(range(N_STEPS)):
        expected = batch.reward[:, t] + GAMMA * expected
        torch.testing.assert_close(targets[:, t], expected)


def naive_loss(agent: ACER, batch: ACERBatch, c: float, delta: float) -> tuple[Tensor, int]:
    """The paper's gradients row by row, and how many rows met the trust region."""
    total, rows, met = torch.zeros(()), 0, 0
    for env in range(N_ENVS):
        logits, q = agent.nets(batch.obs[env])
        fixed_q, pi = q.detach(), logits.detach().softmax(-1)
        targets = naive_targets(batch, env, pi, fixed_q)
        for t in range(N_STEPS):
            if not batch.valid[env, t]:
                continue
            rows += 1
            a, mu = int(batch.action[env, t]), batch.mu[env, t]
            phi = logits[t].detach().requires_grad_()  # the policy's statistics
            f = torch.distributions.Categorical(logits=phi)
            fixed, value = pi[t], float(pi[t] @ fixed_q[t])
            rho = fixed / mu
            gain = min(c, float(rho[a])) * f.log_prob(torch.tensor(a)) * (targets[t] - value)
            for b in range(N_ACTIONS):
                excess = max(0.0, float((rho[b] - c) / rho[b])) * float(fixed[b])
                gain = gain + excess * f.log_prob(torch.tensor(b)) * (fixed_q[t, b] - value)
            (g,) = torch.autograd.grad(gain + 0.01 * f.entropy(), phi, retain_graph=True)
            z = g
            if batch.average is not None:
                average = torch.distributions.Categorical(probs=batch.average[env, t])
                kl = torch.distributions.kl_divergence(average, f)
                (k,) = torch.autograd.grad(kl, phi)
                step = max(0.0, float((k @ g - delta) / (k @ k)))
                met += step > 0
                z = g - step * k
            total = total - z @ logits[t] + 0.5 * 0.5 * (targets[t] - q[t, a]) ** 2
    return total / rows, met


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("c", [1.5, 10.0])
def test_the_gradient_is_that_of_the_paper(bound: bool, c: float) -> None:
    agent, batch = sharpened(make()), random_batch(bound=bound)
    loss, metrics = acer_loss(agent.nets, batch, scalars(c))
    naive, met = naive_loss(agent, batch, c, delta=0.05)
    rows = int(batch.valid.sum())
    assert 0 < rows < N_ENVS * N_STEPS
    assert float(metrics["trust_region_fraction"]) == pytest.approx(met / rows)
    assert (0 < met < rows) == bound
    parameters = list(agent.nets.parameters())
    ours = torch.autograd.grad(loss, parameters)
    theirs = torch.autograd.grad(naive, parameters)
    for own, other in zip(ours, theirs, strict=True):
        assert other.abs().max() > 1e-3
        torch.testing.assert_close(own, other, atol=1e-4, rtol=1e-4)


def test_the_trust_region_changes_as_little_as_it_can() -> None:
    generator = torch.Generator().manual_seed(0)
    g, k = (torch.randn(200, N_ACTIONS, generator=generator) for _ in range(2))
    delta = torch.tensor(0.3)
    z = within_trust_region(g, k, delta)
    for i in range(200):
        if g[i] @ k[i] <= delta:
            assert torch.equal(z[i], g[i])
        else:  # on the boundary, and straight towards it
            assert float(z[i] @ k[i]) == pytest.approx(0.3, abs=1e-3)
            moved = (g[i] - z[i]) / (g[i] - z[i]).norm()
            torch.testing.assert_close(moved, k[i] / k[i].norm(), atol=1e-3, rtol=1e-3)
    same = within_trust_region(g, torch.zeros_like(k), delta)  # the average policy itself
    assert torch.equal(same, g)


@pytest.mark.parametrize("c", [0.5, 1.0, 3.0, 1e6])
def test_the_bias_of_truncation_is_corrected(c: float) -> None:
    """With the right action values any c gives the gradient of the expected value."""
    agent = sharpened(make())
    obs = torch.tensor([0.3, -0.8, 0.5, 1.0])
    logits, q = agent.nets(obs[None])
    counts = torch.tensor([2, 6, 12])[logits[0].argsort(descending=True).argsort()]
    action = torch.repeat_interleave(torch.arange(N_ACTIONS), counts)[:, None]
    mu = (counts / counts.sum()).expand(len(action), 1, N_ACTIONS)
    never = torch.zeros(action.shape, dtype=torch.bool)
    batch = ACERBatch(
        obs=obs.expand(len(action), 2, 4),
        action=action,
        reward=q[0].detach()[action],
        mu=mu,
        terminated=~never,
        cut=never,
        valid=~never,
        final_value=torch.zeros(action.shape),
        average=None,
    )
    rho = logits[0].softmax(-1) / mu[0, 0]
    assert rho.max() > 3.5
    hp = Scalars(*(torch.tensor(x) for x in (GAMMA, c, 1.0, 0.0, 0.0)))
    loss, _ = acer_loss(agent.nets, batch, hp)
    expected = (logits[0].softmax(-1) * q[0].detach()).sum()
    parameters = list(agent.nets.actor.parameters())
    ours = torch.autograd.grad(loss, parameters, retain_graph=True)
    theirs = torch.autograd.grad(-expected, parameters)
    for own, other in zip(ours, theirs, strict=True):
        assert other.abs().max() > 1e-4
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-3)


def fill(agent: ACER, memory: SegmentMemory, rng: np.random.Generator, **fixed: Any) -> None:
    n = agent.spaces.n_envs
    obs = rng.normal(size=(n, 4)).astype(np.float32)
    for _ in range(agent.config.n_steps):
        step = {
            "obs": obs,
            "action": agent.act(obs, explore=True),
            "reward": rng.normal(size=n),
            "terminated": rng.random(n) < 0.1,
            "truncated": rng.random(n) < 0.2,
            "next_obs": rng.normal(size=(n, 4)).astype(np.float32),
            "valid": np.ones(n, np.bool_),
        }
        memory.add(**{**step, **fixed})
        obs = step["next_obs"]


def test_time_limits_bootstrap_and_terminations_do_not() -> None:
    agent = sharpened(make(n_envs=2))
    memory = agent.make_memory()
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(5, 2, 4)).astype(np.float32)
    final = rng.normal(size=(2, 4)).astype(np.float32)
    for t in range(4):
        over = t == 1
        memory.add(
            obs=obs[t],
            action=np.zeros(2, np.int64),
            reward=np.array([1.0, 2.0]) + t,
            terminated=np.array([over, False]),
            truncated=np.array([False, over or t == 3]),  # the last step reaches a limit too
            next_obs=final if over else obs[t + 1],
            valid=np.ones(2, np.bool_),
        )
    memory.keep(np.full((2, 4, N_ACTIONS), 1 / N_ACTIONS, np.float32))
    batch = agent._batch(memory.newest(agent.device))
    zero = torch.zeros(2, 4)
    with torch.no_grad():
        value = agent.nets.value(batch.obs.flatten(0, 1)).view(2, 5)
        at_the_limit = float(agent.nets.value(torch.from_numpy(final))[1])
        at_the_end = agent.nets.value(torch.from_numpy(obs[4]))
    targets = retrace(batch, zero, zero, value, torch.tensor(GAMMA))  # a trace of one step
    assert float(targets[0, 1]) == pytest.approx(2.0)
    assert float(targets[1, 1]) == pytest.approx(3.0 + GAMMA * at_the_limit, abs=1e-5)
    assert float(targets[0, 3]) == pytest.approx(4.0 + GAMMA * float(at_the_end[0]), abs=1e-5)
    assert float(targets[1, 3]) == pytest.approx(5.0 + GAMMA * float(at_the_end[1]), abs=1e-5)
    assert abs(at_the_limit - float(value[1, 2])) > 1e-2
    # What comes behind the end changes nothing before it.
    behind = batch._replace(reward=batch.reward + 100.0 * (torch.arange(4) > 1))
    one = torch.ones(2, 4)
    before = retrace(batch, one, zero, value, torch.tensor(GAMMA))
    after = retrace(behind, one, zero, value, torch.tensor(GAMMA))
    assert torch.equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] < after[:, 2:] - 50).all()


def test_the_probabilities_of_the_policy_that_acted_are_kept() -> None:
    agent = make(learning_rate=0.1, replay_ratio=0.0)
    memory, rng = agent.make_memory(), np.random.default_rng(0)
    for _ in range(2):
        fill(agent, memory, rng)
        with torch.no_grad():
            obs = torch.from_numpy(memory.fresh_obs.copy())
            acted = agent.nets.logits(obs.flatten(0, 1)).softmax(-1).view(2, 4, -1)
        metrics = agent.update(memory, 0.0)
        torch.testing.assert_close(memory.newest(agent.device).mu, acted)
        assert metrics["importance_weight"] == pytest.approx(1.0, abs=1e-4)
    with torch.no_grad():
        now = agent.nets.logits(obs.flatten(0, 1)).softmax(-1).view(2, 4, -1)
    assert (now - acted).abs().max() > 0.01


def test_the_average_policy_follows() -> None:
    agent = make(replay_ratio=0.0, average_decay=0.75)
    before = agent.learner.flat.clone()
    memory = agent.make_memory()
    fill(agent, memory, np.random.default_rng(0))
    agent.update(memory, 0.0)
    average = torch.cat([p.reshape(-1) for p in agent.average.module.parameters()])
    torch.testing.assert_close(average, 0.75 * before + 0.25 * agent.learner.flat)


@pytest.mark.slow
def test_replays_follow_a_poisson_distribution_once_there_is_enough() -> None:
    agent = make(replay_start=24, replay_ratio=3.0)  # rollouts of 8 transitions
    memory, rng = agent.make_memory(), np.random.default_rng(0)
    replays = []
    for _ in range(120):
        fill(agent, memory, rng)
        replays.append(agent.update(memory, 0.0)["replays"])
    assert replays[:2] == [0, 0]
    assert np.mean(replays[2:]) == pytest.approx(3.0, abs=0.4)
    assert np.var(replays[2:]) == pytest.approx(3.0, abs=1.0)


def test_a_small_memory_is_replayed_when_it_is_full() -> None:
    agent = make(replay_start=1000, buffer_size=17, replay_ratio=50.0)  # two rollouts of 8
    memory, rng = agent.make_memory(), np.random.default_rng(0)
    replays = []
    for _ in range(3):
        fill(agent, memory, rng)
        replays.append(agent.update(memory, 0.0)["replays"] > 0)
    assert replays == [False, True, True]


def test_schedules_and_the_plateau_factor_reach_the_update() -> None:
    agent = make(learning_rate="lin_1e-2")
    agent.learning_rate_factor = 0.5
    memory = agent.make_memory()
    fill(agent, memory, np.random.default_rng(0))
    assert agent.update(memory, 0.75)["learning_rate"] == pytest.approx(0.5 * 0.25e-2)


def test_acting_greedily_changes_nothing() -> None:
    agent = sharpened(make())
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    before = agent.generator.get_state()
    greedy = agent.act(obs, explore=False)
    assert np.array_equal(greedy, agent.act(obs, explore=False))
    assert torch.equal(agent.generator.get_state(), before)
    assert greedy.shape == (50,)
    explored = agent.act(obs, explore=True)
    assert set(explored.tolist()) == {0, 1, 2}
    assert not np.array_equal(explored, agent.act(obs, explore=True))


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2])])
def test_other_actions_are_refused(space: Any) -> None:
    with pytest.raises(UserError, match="Discrete actions"):
        make(action=space)


class Loss(nn.Module):
    def __init__(self, nets: nn.Module) -> None:
        super().__init__()
        self.nets = nets

    def forward(self, batch: ACERBatch, hp: Scalars) -> Tensor:
        return acer_loss(self.nets, batch, hp)[0]


def test_several_agents_can_share_a_loss() -> None:
    agents = [sharpened(make(seed=seed), seed) for seed in (0, 1, 2)]
    batches = [random_batch(seed) for seed in (0, 1, 2)]
    constants = [scalars(c) for c in (1.0, 2.0, 10.0)]
    modules = [Loss(agent.nets) for agent in agents]
    parameters, _ = torch.func.stack_module_state(modules)  # type: ignore[arg-type]
    batch = ACERBatch(*(torch.stack(column) for column in zip(*batches, strict=True)))  # type: ignore[arg-type]
    hp = Scalars(*(torch.stack(column) for column in zip(*constants, strict=True)))

    def loss(own: dict[str, Tensor], batch: ACERBatch, hp: Scalars) -> Any:
        return torch.func.functional_call(modules[0], own, (batch, hp))

    together = torch.vmap(loss)(parameters, batch, hp)
    alone = [m(b, s) for m, b, s in zip(modules, batches, constants, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone))


RAW = {"normalize_observations": False, "normalize_rewards": False}
TINY = {**RAW, "n_envs": 2, "n_steps": 16, "net_arch": [8], "replay_start": 40, "buffer_size": 170}
RESUMED = {
    "cartpole": ("CartPole-v1", {}),
    "one env": ("CartPole-v1", {"n_envs": 1}),
    "normalised": (
        "CartPole-v1",
        {"normalize_observations": True, "normalize_rewards": True, "optimizer": "adam"},
    ),
    "limits": ("toy_envs:Forever", {"learning_rate": "lin_1e-2"}),
    "images": ("toy_envs:Picture", {"n_steps": 8, "replay_ratio": 1}),
}


@pytest.mark.parametrize("kind", quick(RESUMED.keys() - {"images", "one env"}, RESUMED))
@pytest.mark.parametrize("stop", [128, 150])  # between two rollouts, and amid one
def test_a_resumed_run_is_bit_equal(kind: str, stop: int, tmp_path: Path) -> None:
    env, config = RESUMED[kind]

    def new() -> Agent:
        return Agent(SPEC, env, {**TINY, **config}, total_timesteps=320, device="cpu")

    whole = new()
    assert whole.learn(320).metrics["replays"] > 0
    first = new()
    first.learn(stop)
    first.save(tmp_path / "a.pt")
    Agent.load(tmp_path / "a.pt", device="cpu").save(tmp_path / "b.pt")
    third = Agent.load(tmp_path / "b.pt", device="cpu")
    third.learn(320)

    def flat(agent: Agent) -> Tensor:
        found: Tensor = agent.algorithm.learner.flat  # type: ignore[attr-defined]
        return found

    assert not torch.equal(flat(first), flat(third))
    assert torch.equal(flat(whole), flat(third))
    assert whole.evaluate(3).returns == third.evaluate(3).returns


@pytest.mark.slow
def test_images_are_learned() -> None:
    config = {**RAW, "replay_start": 500, "gamma": 0.5}
    agent = Agent(SPEC, "toy_envs:Picture", config, total_timesteps=4_000, device="cpu")
    for until in range(400, 4_001, 400):
        agent.learn(until)
        if agent.evaluate(10).mean == 8:
            return
    pytest.fail("it was not learned")


def test_cartpole_is_learned_quickly() -> None:
    agent = Agent(SPEC, "CartPole-v1", {}, total_timesteps=100_000, device="cpu")
    best = max(agent.learn(until).mean_reward or 0.0 for until in range(3_000, 12_001, 3_000))
    assert best >= 60


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_cartpole_is_solved_within_100k_steps() -> None:
    solved = 0
    for seed in range(4):
        agent = Agent(SPEC, "CartPole-v1", {}, total_timesteps=100_000, seed=seed, device="cpu")
        agent.learn(100_000)
        solved += agent.evaluate(100).mean >= 475
    assert solved >= 3
