"""What would CUDA graphs, and several agents in one program, bring on a GPU?

    python scripts/study_cuda_graphs.py

A gradient step of PPO (loss, gradient, clipping, Adam) on one minibatch that stays on the GPU:
as it is, replayed as a CUDA graph, and of K agents of equal shapes at once with `torch.func.vmap`,
replayed too. Printed are milliseconds for an agent's step: the median of `TURNS` turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmark_gpu import CASES, Case
from benchmark_learners import filled
from rltune.agents.algorithms.on_policy import Rollout
from rltune.agents.algorithms.ppo import PPO, Scalars, ppo_loss
from rltune.agents.config import make_config
from rltune.agents.spaces import Spaces
from torch import Tensor, nn

AGENTS = (1, 4, 8, 16, 32)
TURNS, STEPS = 5, 50
RATE, CLIP = 3e-4, 0.5
NAMES = ("PPO, 64-64, 64", "PPO, 256-256, 256", "PPO, images, 256")


def agent_and_batch(case: Case, device: str) -> tuple[PPO, Rollout, Scalars]:
    """Return an agent with a minibatch of random steps."""
    config: Any = make_config(PPO.Config, case.config)
    agent = PPO(config, Spaces(case.observation, case.action, config.n_envs), seed=0, device=device)
    rollout = agent.policy.look_back(filled(agent, config.n_steps))
    batch = agent._prepared(rollout.rows(torch.arange(config.batch_size, device=device)))
    return agent, batch, Scalars.of(agent._limits(0.0), agent.device)


class Answers:
    """A network with other parameters, as `ppo_loss` asks it."""

    def __init__(self, nets: nn.Module, parameters: dict[str, Tensor]) -> None:
        self.nets, self.parameters = nets, parameters
        self.distribution = nets.distribution

    def __call__(self, obs: Tensor) -> Any:
        return torch.func.functional_call(self.nets, self.parameters, (obs,))


class Several:
    """Gradient steps of ``n`` agents of equal shapes in one program."""

    def __init__(self, agent: PPO, batch: Rollout, scalars: Scalars, n: int) -> None:
        self.nets, self.scalars, self.n = agent.nets, scalars, n
        self.names = {name: p.shape for name, p in agent.nets.named_parameters()}
        rows = [p.detach().reshape(-1) for p in agent.nets.parameters()]
        self.flat = torch.cat(rows).repeat(n, 1)
        self.batch = Rollout(*(part.expand(n, *part.shape).clone() for part in batch))
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.count = torch.zeros((), device=self.flat.device)
        self.gradient = torch.func.vmap(torch.func.grad(self._loss))

    def _loss(self, parameters: dict[str, Tensor], batch: Rollout) -> Tensor:
        return ppo_loss(Answers(self.nets, parameters), batch, self.scalars)[0]  # type: ignore[arg-type]

    def step(self) -> None:
        parameters, at = {}, 0
        for name, shape in self.names.items():
            parameters[name] = self.flat[:, at : at + shape.numel()].view(self.n, *shape)
            at += shape.numel()
        found = self.gradient(parameters, self.batch)
        gradient = torch.cat([found[name].reshape(self.n, -1) for name in self.names], 1)
        size = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        gradient = gradient * (CLIP / (size + 1e-6)).clamp(max=1.0)
        self.count += 1
        torch._fused_adam_(
            [self.flat], [gradient], [self.mean], [self.square], [], [self.count],
            lr=RATE, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-5,
            amsgrad=False, maximize=False,
        )  # fmt: skip


def graph_of(step: Callable[[], object]) -> Callable[[], object]:
    """Return a replay of a step, captured as a CUDA graph."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def milliseconds(step: Callable[[], object]) -> float:
    """Return the median milliseconds of a step."""
    found = []
    for _ in range(TURNS):
        step()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        found.append(1000 * (time.perf_counter() - began) / STEPS)
    return statistics.median(found)


def study(case: Case) -> None:
    agent, batch, scalars = agent_and_batch(case, "cuda")

    def step() -> None:
        agent.learner.step(ppo_loss(agent.nets, batch, scalars)[0], RATE)

    def told(what: str, n: int, make: Callable[[], Callable[[], object]]) -> None:
        try:
            print(f"{case.name}: {what}: {milliseconds(make()) / n:.4f} ms", flush=True)
        except RuntimeError as error:  # what can't be captured, or does not fit
            print(f"{case.name}: {what}: {str(error).splitlines()[0]}", flush=True)

    told("as it is", 1, lambda: step)
    told("a graph", 1, partial(graph_of, step))
    for n in AGENTS:
        many = Several(agent, batch, scalars, n)
        told(f"{n} agents", n, lambda many=many: many.step)  # type: ignore[misc]
        told(f"{n} agents, a graph", n, partial(graph_of, many.step))


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    for case in CASES:
        if case.name in NAMES:
            study(case)


if __name__ == "__main__":
    main()
