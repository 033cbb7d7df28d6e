"""PPO's update against Stable-Baselines3's: the same weights and steps give the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rltune.agents.algorithms.ppo import PPO
from rltune.agents.config import make_config
from rltune.agents.loop.agent import Agent
from rltune.agents.spaces import Spaces

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402

N_ENVS, N_STEPS = 4, 64
SETTINGS: dict[str, Any] = dict(
    n_steps=N_STEPS, batch_size=N_ENVS * N_STEPS, n_epochs=4, gamma=0.99, gae_lambda=0.9,
    ent_coef=0.01, learning_rate=1e-3, clip_range=0.2,
)  # fmt: skip
LAYERS = {
    "actor.torso.0": "mlp_extractor.policy_net.0",
    "actor.torso.2": "mlp_extractor.policy_net.2",
    "actor.head": "action_net",
    "critic.0.0": "mlp_extractor.value_net.0",
    "critic.0.2": "mlp_extractor.value_net.2",
    "critic.1": "value_net",
}


class Copy(BaseCallback):  # type: ignore[misc]
    """Hands every step that SB3 takes to our memory too."""

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self.memory = memory

    def _on_step(self) -> bool:
        seen = self.locals
        done, infos = seen["dones"], seen["infos"]
        cut = np.array([d and i["TimeLimit.truncated"] for d, i in zip(done, infos, strict=True)])
        successor = seen["new_obs"].copy()
        for env in np.flatnonzero(done):
            successor[env] = infos[env]["terminal_observation"]
        self.memory.add(
            obs=self.model._last_obs,
            action=seen["actions"],
            reward=seen["rewards"],
            terminated=done & ~cut,
            truncated=cut,
            next_obs=successor,
            valid=np.ones(N_ENVS, np.bool_),
        )
        return True


def pairs(ours: PPO, theirs: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    own, other = ours.nets.state_dict(), theirs.policy.state_dict()
    names = [(f"{a}.{p}", f"{b}.{p}") for a, b in LAYERS.items() for p in ("weight", "bias")]
    if "log_std" in other:
        names.append(("actor.log_std", "log_std"))
    assert len(names) == len(own) == len(other)
    return [(own[a], other[b]) for a, b in names]


SDE = {"use_sde": True, "sde_sample_freq": 4}


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"batch_size": 64}),
        ("Pendulum-v1", {"batch_size": 64}),
        ("Pendulum-v1", {"batch_size": 64, **SDE}),
    ],
)
def test_updates_are_those_of_sb3(
    env: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SETTINGS, **changes}
    # Short episodes: terminations and time limits both occur in every rollout.
    kwargs = {"max_episode_steps": 25}
    theirs = sb3.PPO(
        "MlpPolicy",
        make_vec_env(env, N_ENVS, seed=0, env_kwargs=kwargs),
        seed=0,
        device="cpu",
        **settings,
    )
    plain = {"normalize_observations": False, "normalize_rewards": False, "n_envs": N_ENVS}
    config = make_config(PPO.Config, {**settings, **plain})
    spaces = Spaces(theirs.observation_space, theirs.action_space, N_ENVS)
    ours = PPO(config, spaces, seed=0)
    with torch.no_grad():
        for own, other in pairs(ours, theirs):
            own.copy_(other)
    memory = ours.make_memory()
    callback = Copy(memory)
    theirs._setup_learn(10_000)
    callback.init_callback(theirs)
    for _ in range(5):
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, N_STEPS)
        assert memory.terminated.any() == (env == "CartPole-v1")
        assert memory.truncated.any()
        advantages = ours.policy.look_back(memory).advantage.reshape(N_STEPS, N_ENVS)
        np.testing.assert_allclose(advantages, theirs.rollout_buffer.advantages, atol=1e-4)
        # SB3 shall shuffle as ours is going to; its rows are sorted by environment, ours by step.
        generator = torch.Generator()
        generator.set_state(ours.generator.get_state())
        orders = [torch.randperm(N_ENVS * N_STEPS, generator=generator).numpy() for _ in range(4)]
        theirs_order = iter([o % N_ENVS * N_STEPS + o // N_ENVS for o in orders])
        with monkeypatch.context() as patch:
            patch.setattr(np.random, "permutation", lambda n, order=theirs_order: next(order))
            theirs.train()
        ours.update(memory, progress=0.0)
        for own, other in pairs(ours, theirs):
            torch.testing.assert_close(own, other, atol=1e-6, rtol=0)


class Twin:
    """SB3's PPO, which makes each update of our agent from the state that ours makes it from."""

    def __init__(self, agent: Agent, settings: dict[str, Any]) -> None:
        self.agent, self.ours = agent, agent.algorithm
        self.model = sb3.PPO("MlpPolicy", make_vec_env(agent.env, N_ENVS), device="cpu", **settings)
        self.model.set_logger(configure(None, []))
        self.begins = np.ones(N_ENVS, np.bool_)
        self.shifts: list[float] = []  # the largest difference of a weight, by update
        self.drawn = self.expected = self.variance = 0.0  # how often action 0 was
        self.time_limits = 0
        self.update, self.ours.update = self.ours.update, self.both  # type: ignore[method-assign]

    def both(self, memory: Any, progress: float) -> dict[str, float]:
        """Update theirs, then ours."""
        self.take_over()
        self.take_rollout(memory)
        self.model._current_progress_remaining = 1 - progress
        self.model.train()
        metrics = self.update(memory, progress)
        shifts = [(own - other).abs().max() for own, other in pairs(self.ours, self.model)]
        self.shifts.append(float(max(shifts)))
        return metrics

    def take_over(self) -> None:
        """Give theirs our weights and what our optimizer remembers."""
        learner, optimizer = self.ours.learner, self.model.policy.optimizer
        owner = {p.data_ptr(): name for name, p in self.ours.nets.named_parameters()}
        names = {f"{a}.{p}": f"{b}.{p}" for a, b in LAYERS.items() for p in ("weight", "bias")}
        theirs = dict(self.model.policy.named_parameters())
        start = 0
        for parameter in learner.parameters:
            other = theirs[names[owner[parameter.data_ptr()]]]
            part = slice(start, start := start + parameter.numel())
            other.data.copy_(parameter.data)
            optimizer.state[other] = {
                "step": learner.step_count.clone(),
                "exp_avg": learner.mean[part].view_as(other).clone(),
                "exp_avg_sq": learner.square[part].view_as(other).clone(),
            }

    @torch.no_grad()
    def take_rollout(self, memory: Any) -> None:
        """Fill their buffer with our steps, as their `collect_rollouts` would have done it."""
        policy, buffer = self.model.policy, self.model.rollout_buffer
        buffer.reset()
        policy.set_training_mode(False)
        finals = dict(zip(memory.final_index, memory.final_obs, strict=True))
        for t, (obs, action) in enumerate(zip(memory.obs, memory.action, strict=True)):
            seen, taken = torch.as_tensor(obs), torch.as_tensor(action).flatten()
            value, log_prob, _ = policy.evaluate_actions(seen, taken)
            chance = policy.get_distribution(seen).distribution.probs[:, 0]
            self.drawn += float((taken == 0).sum())
            self.expected += float(chance.sum())
            self.variance += float((chance * (1 - chance)).sum())
            reward = memory.reward[t].copy()
            for env in np.flatnonzero(memory.truncated[t] & ~memory.terminated[t]):
                final = policy.predict_values(torch.as_tensor(finals[t, env][None]))
                reward[env] += self.model.gamma * float(final)
                self.time_limits += 1
            buffer.add(obs, action, reward, self.begins, value, log_prob)
            self.begins = memory.terminated[t] | memory.truncated[t]
        last = np.stack([finals[len(memory.obs) - 1, env] for env in range(N_ENVS)])
        value = policy.predict_values(torch.as_tensor(last))
        buffer.compute_returns_and_advantage(value, self.begins)


@pytest.mark.slow
def test_every_update_of_a_training_is_that_of_sb3() -> None:
    settings = {**SETTINGS, "n_epochs": 10, "gamma": 0.98, "gae_lambda": 0.8, "ent_coef": 0.0}
    plain = {"normalize_observations": False, "normalize_rewards": False, "n_envs": N_ENVS}
    falling = {"learning_rate": "lin_1e-3", "clip_range": "lin_0.2"}
    total = 60 * N_ENVS * N_STEPS * 4
    agent = Agent("ppo", "CartPole-v1", {**settings, **plain, **falling}, total_timesteps=total)
    fall = {
        name: (lambda remaining, initial=initial: remaining * initial)
        for name, initial in (("learning_rate", 1e-3), ("clip_range", 0.2))
    }
    twin = Twin(agent, {**settings, **fall})
    returns = [episode.episode_return for episode in agent.learn(total).episodes]
    assert np.mean(returns[-20:]) > 400  # it has learned; what follows is about all of that
    assert twin.time_limits > 20
    # Rounding moves a sample over the edge of the clipping here and there: then they part.
    assert np.median(twin.shifts) < 1e-6
    assert np.quantile(twin.shifts, 0.9) < 1e-4
    assert abs(twin.drawn - twin.expected) < 4 * twin.variance**0.5
