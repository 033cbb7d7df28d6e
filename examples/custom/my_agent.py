"""An agent: REINFORCE (Williams 1992) with a mean baseline, for any environment of rltune."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from agents.returns import rewards_to_go
from rltune.agents import (
    AgentConfig,
    Algorithm,
    Learner,
    RolloutMemory,
    hp,
    initialise,
    make_distribution,
    mlp,
)
from torch import nn


@dataclass(frozen=True, kw_only=True)
class MyConfig(AgentConfig):
    """A hyperparameter is declared once: flags, YAML files and searches know it from here."""

    n_steps: int = hp(
        100, low=50, high=400, minimum=1, help="steps of each environment between two updates"
    )
    ent_coef: float = hp(0.0, low=1e-4, high=0.1, scale="log", help="weight of the entropy bonus")


class MyAgent(Algorithm[MyConfig]):
    Config = MyConfig

    def __init__(self, config, spaces, *, seed, device="cpu"):
        super().__init__(config, spaces, seed=seed, device=device)
        self.update_every = config.n_steps * spaces.n_envs
        self.distribution = make_distribution(spaces.action)
        sizes = [spaces.observation.shape[0], *config.net_arch]
        head = nn.Linear(sizes[-1], self.distribution.n_params)
        self.policy = nn.Sequential(mlp(sizes, config.activation), head)
        initialise(self.policy, 1.0, config.weight_init, self.generator)
        self.learner = Learner(self.policy, config)

    def make_memory(self):
        space = self.spaces
        return RolloutMemory(
            self.config.n_steps, space, space.action.shape, self.distribution.dtype
        )

    @torch.no_grad()
    def act(self, obs, *, explore):
        params = self.policy(torch.from_numpy(obs))
        if explore:
            noise = self.distribution.noise(len(obs), self.generator)
            action = self.distribution.sample(params, noise)
        else:
            action = self.distribution.mode(params)
        return action.numpy().reshape(len(obs), *self.spaces.action.shape)

    def update(self, memory, progress):
        ended = memory.terminated | memory.truncated
        weight = torch.from_numpy(rewards_to_go(memory.reward, ended, self.config.gamma))
        weight = (weight - weight.mean()) / (weight.std() + 1e-6)
        obs = torch.from_numpy(memory.obs).flatten(0, 1)
        action = torch.from_numpy(memory.action).reshape(len(obs), -1)
        log_prob, entropy = self.distribution.evaluate(self.policy(obs), action)
        loss = -(weight.flatten() * log_prob).mean() - self.config.ent_coef * entropy.mean()
        self.learner.step(loss, self.learning_rate_at(progress))
        memory.clear()
        return {"policy_loss": loss.item(), "entropy": entropy.mean().item()}

    def state_dict(self):
        return {
            "policy": self.policy.state_dict(),
            "learner": self.learner.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state):
        self.policy.load_state_dict(state["policy"])
        self.learner.load_state_dict(state["learner"])
        self.generator.set_state(state["generator"])
