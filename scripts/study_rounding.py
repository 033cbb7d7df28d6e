"""How far does rounding carry an update of DQN?

    python scripts/study_rounding.py --updates 40 --seeds 3

From the same state and with the same minibatches, an update of DQN (rl-zoo3's settings of
CartPole-v1: 128 gradient steps, ReLU, Adam) is computed by PyTorch and by

* ``numpy``: our kernel;
* ``reversed``: PyTorch with the rows of every minibatch in reversed order, which means the same;
* ``float64``: PyTorch in double precision.

They differ from the first by rounding alone. The table says how far the parameters are apart after
an update, and how many gradient steps before that distance passed 1e-5 had a flip: a hidden unit
that is 0 for a row in one computation and more than 0 in the other, so that its whole gradient is
there or not.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import rltune
import torch
from rltune.agents.algorithms.dqn import DQN, Scalars, dqn_loss
from rltune.agents.algorithms.dqn_targets import TDBatch
from rltune.agents.kernels.dqn import Minibatch
from rltune.agents.learner import Learner, flatten
from rltune.agents.loop.agent import Agent
from rltune.agents.memory.batch import Batch
from torch import Tensor

ENV = "CartPole-v1"
KINDS = ("numpy", "reversed", "float64")
FAR = 1e-5  # what rounding alone does not reach


class Computation:
    """An update of a copy of ``agent``, one gradient step after the other."""

    def __init__(self, agent: Agent, kind: str) -> None:
        dqn = agent.algorithm
        assert isinstance(dqn, DQN)
        self.kind = kind
        self.dqn = DQN(dqn.config, agent._spaces, seed=0)
        self.dqn.use_engine("numpy" if kind == "numpy" else "torch")
        self.dqn.load_state_dict(dqn.state_dict())
        self.dqn._count_steps(dqn.config.train_freq)
        if kind == "float64":
            self._double()

    def _double(self) -> None:
        learner, target = self.dqn.learner, self.dqn.target
        self.dqn.nets.double()
        self.dqn.learner = Learner(self.dqn.nets, self.dqn.config)
        self.dqn.learner.load_state_dict(learner.state_dict())
        target.module.double()
        target.flat = flatten(list(target.module.parameters()))
        self.dqn.scalars = Scalars(self.dqn.scalars.huber_delta.double())

    def steps(self, batch: Batch) -> Iterator[Tensor]:
        """Yield before each step which hidden units are more than 0: (units, rows)."""
        config, learner = self.dqn.config, self.dqn.learner
        rate = float(config.learning_rate)
        kernel = self.dqn.kernel
        if kernel is not None:
            for minibatch in kernel._minibatches([batch]):
                kernel.set_gradient(minibatch)
                yield self._live_in_kernel(minibatch)
                learner.descend(kernel.gradient, rate)
            yield torch.empty(0)
            return
        targets = self.dqn.td_targets.of(self._in_its_precision(batch))
        for first in range(0, len(batch.reward), config.batch_size):
            part = targets.rows(slice(first, first + config.batch_size))
            yield self._live(part)
            if self.kind == "reversed":
                part = TDBatch(part.obs.flip(0), part.action.flip(0), part.target.flip(0))
            learner.step(dqn_loss(self.dqn.nets, part, self.dqn.scalars)[0], rate)
        yield torch.empty(0)

    def _in_its_precision(self, batch: Batch) -> Batch:
        if self.kind != "float64":
            return batch
        parts = [part.double() if torch.is_floating_point(part) else part for part in batch[:5]]
        return Batch(*parts)

    @torch.no_grad()
    def _live(self, part: TDBatch) -> Tensor:
        nets = self.dqn.nets
        hidden = nets.torso(part.obs)
        last = nets.advantage.activation(nets.advantage.layers[0](hidden))
        return torch.cat([hidden, last], 1).T > 0

    def _live_in_kernel(self, minibatch: Minibatch) -> Tensor:
        (stream,) = self.dqn.kernel.nets._streams
        rows = stream.rows(len(minibatch.target))
        return torch.cat([cells.tensor[0] for cells in rows.outputs[:-1]]) > 0


@dataclass
class Found:
    """Of one update: the distance of the parameters in the end, and what was before it was far."""

    distance: float = 0.0
    near_steps: int = 0
    flips: int = 0  # near steps with one


def study(agent: Agent, seed: int) -> dict[str, Found]:
    """Return what an update of each kind shows.

    Args:
        agent: whose next env step brings an update; it stays as it is
        seed: of the minibatches
    """
    config: Any = agent.config
    rows = config.batch_size * config.gradient_steps
    batch = agent.memory.sample(rows, torch.Generator().manual_seed(seed))
    base = Computation(agent, "torch")
    others = {kind: Computation(agent, kind) for kind in KINDS}
    found = {kind: Found() for kind in KINDS}
    walks = {kind: other.steps(batch) for kind, other in others.items()}
    for live in base.steps(batch):
        for kind, walk in walks.items():
            own = next(walk)
            distance = (others[kind].dqn.learner.flat - base.dqn.learner.flat).abs().max()
            found[kind].distance = float(distance)
            if distance <= FAR and len(live):
                found[kind].near_steps += 1
                found[kind].flips += not torch.equal(live, own)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    found: dict[str, list[Found]] = {kind: [] for kind in KINDS}
    preset = rltune.preset("dqn", ENV, "zoo")
    for seed in range(args.seeds):
        agent = Agent("dqn", ENV, preset, total_timesteps=50_000, seed=seed, device="cpu")
        every = agent.algorithm.update_every
        starts = agent.config.learning_starts  # type: ignore[attr-defined]
        for number in range(starts // every + 1, starts // every + 1 + args.updates):
            agent.learn(number * every - 1)
            for kind, result in study(agent, number).items():
                found[kind].append(result)
    print("| against PyTorch | updates | median | 90 % | largest | beyond 1e-5 |", end="")
    print(" of these after a flip | steps with a flip |\n|---|---|---|---|---|---|---|---|")
    for kind, results in found.items():
        distances = sorted(result.distance for result in results)
        far = [result for result in results if result.distance > FAR]
        share = sum(r.flips for r in results) / sum(r.near_steps for r in results)
        print(
            f"| {kind} | {len(results)} | {statistics.median(distances):.1e} | "
            f"{distances[int(0.9 * len(distances))]:.1e} | {distances[-1]:.1e} | {len(far)} | "
            f"{sum(result.flips > 0 for result in far)} | {100 * share:.2f} % |"
        )


if __name__ == "__main__":
    main()
