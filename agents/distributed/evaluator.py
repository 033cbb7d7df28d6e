"""The evaluation actor: runs greedy episodes of the newest policy beside the training."""

from __future__ import annotations

from typing import NamedTuple

from rltune.agents.distributed.actor import ActorSpec
from rltune.agents.distributed.policies import Policy, act_by
from rltune.agents.loop.agent import Agent

EPISODES = 10


class Found(NamedTuple):
    """The mean return of a policy, and the env steps after which it was taken."""

    mean_return: float
    env_steps: int


class Evaluator:
    """Evaluates policies, with the starts of the training's own evaluations.

    Args:
        spec: of any actor
    """

    def __init__(self, spec: ActorSpec) -> None:
        self.agent = Agent(
            spec.algorithm,
            spec.env,
            spec.config,
            total_timesteps=1,
            seed=spec.seed,
            device="cpu",
            env_kwargs=spec.env_kwargs,
            acts_only=True,
            engine=spec.engine,
        )

    def evaluate(self, policy: Policy) -> Found:
        """Return how good a policy is."""
        act_by(self.agent.algorithm, self.agent.normalizers, policy)
        return Found(self.agent.evaluate(EPISODES).mean, policy.acted)
