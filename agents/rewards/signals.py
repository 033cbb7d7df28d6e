"""The reward signals of a training: they reward what a memory holds, and learn from it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.config import AgentConfig
from rltune.agents.errors import UserError
from rltune.agents.generators import restore_generator
from rltune.agents.memory.batch import Batch
from rltune.agents.memory.streams import Stream
from rltune.agents.reward_signals import CUSTOM, PLUGINS, signals_of, value_streams
from rltune.agents.rewards.curiosity import Curiosity
from rltune.agents.rewards.demonstrated import DrawnSteps
from rltune.agents.rewards.gail import GAIL
from rltune.agents.rewards.networks import Steps
from rltune.agents.rewards.rnd import RND
from rltune.agents.rewards.signal import RewardSignal
from rltune.agents.spaces import Spaces
from torch import Tensor

Array = NDArray[Any]
LARGEST = 10.0  # reward of a signal that is divided by its standard deviation


class RewardSignals:
    """Adds the rewards of signals to the environment's, and lets the signals learn.

    They learn from the steps that the agent learned from since they did so last.

    Args:
        config: of the agent
        spaces: of one environment
        inputs: the same, with the states of the agent's LSTMs
        normalize: observations (n, ...) as the training normalises them
        seed: of the networks and of what they draw
        device: of the networks
    """

    def __init__(
        self,
        config: AgentConfig,
        spaces: Spaces,
        inputs: Spaces,
        normalize: Callable[[Array], Array],
        *,
        seed: int,
        device: str,
    ) -> None:
        self.config, self.device = config, torch.device(device)
        state = np.random.SeedSequence((seed, 2)).generate_state(2)
        weights = torch.Generator().manual_seed(int(state[0]))
        self.generator = torch.Generator(device=self.device).manual_seed(int(state[1]))
        self.names = signals_of(config)
        self.signals: dict[str, RewardSignal] = {}
        for name in self.names:
            size: int = getattr(config, f"{name}_size")
            common = (inputs, config.encoder, size, weights, self.device)
            if name == "gail":
                self.signals[name] = GAIL(
                    *common,
                    demonstrated=DrawnSteps(config.demonstrations, spaces, normalize, device),
                    use_actions=config.gail_use_actions,
                    use_vail=config.gail_use_vail,
                    gradient_penalty=config.gail_gradient_penalty,
                )
            elif name == CUSTOM:
                self.signals[name] = made_signal(config.custom_signal, *common)
            else:
                self.signals[name] = {"curiosity": Curiosity, "rnd": RND}[name](*common)
        self.strengths = [getattr(config, f"{name}_strength") for name in self.names]
        self.gammas = [getattr(config, f"{name}_gamma") or config.gamma for name in self.names]
        self.shares_value = value_streams(config) == 1
        self.reads_successors = bool(self.names)
        self.optimizers = {
            name: torch.optim.Adam([p for p in signal.parameters() if p.requires_grad])
            for name, signal in self.signals.items()
        }
        self._seen: list[Steps] = []
        self._rewards: dict[str, list[float]] = {name: [] for name in self.names}

    def streams(
        self,
        *,
        obs: Array,
        action: Array,
        next_obs: Array,
        reward: Array,
        terminated: Array,
        valid: Array,
    ) -> list[Stream]:
        """Return the rewards of a rollout, see `Rewarding.streams`."""
        steps = self._steps(obs, action, next_obs, terminated)
        index = torch.from_numpy(np.flatnonzero(valid)).to(self.device)
        found = self._reward(steps, steps.rows(index)).cpu().numpy()
        own = [part.reshape(reward.shape) for part in found]
        gamma, extrinsic = self.config.gamma, reward * np.float32(self.config.extrinsic_strength)
        if self.shares_value:
            return [Stream(sum(own, extrinsic), gamma, terminated)]
        never = np.zeros_like(terminated)
        signals = zip(self.signals.values(), own, self.gammas, strict=True)
        return [
            Stream(extrinsic, gamma, terminated),
            *(Stream(r, g, terminated if s.episodic else never) for s, r, g in signals),
        ]

    def _steps(self, obs: Array, action: Array, next_obs: Array, terminated: Array) -> Steps:
        """Return the steps row by row."""
        n = terminated.size
        parts = (
            obs.reshape(n, *obs.shape[2:]),
            action.reshape(n, -1),
            next_obs.reshape(n, *next_obs.shape[2:]),
            terminated.reshape(n),
        )
        return Steps(*(torch.from_numpy(part.copy()).to(self.device) for part in parts))

    def relabelled(self, batch: Batch) -> Batch:
        """Return sampled transitions with all rewards, see `Rewarding.relabelled`."""
        ended = batch.discount == 0
        action = batch.action.reshape(len(batch.action), -1)
        steps = Steps(batch.obs, action, batch.next_obs, ended)
        found = self._reward(steps, steps)
        extrinsic = batch.reward * self.config.extrinsic_strength
        if self.shares_value:
            return batch._replace(reward=extrinsic + found.sum(0))
        never = torch.zeros_like(ended)
        discounts = [
            gamma * ~(ended if signal.episodic else never)
            for signal, gamma in zip(self.signals.values(), self.gammas, strict=True)
        ]
        return batch._replace(
            reward=torch.cat([extrinsic.unsqueeze(0), found]),
            discount=torch.stack([batch.discount, *discounts]).float(),
        )

    @torch.no_grad()
    def _reward(self, steps: Steps, valid: Steps) -> Tensor:
        """Return the weighted rewards of all steps (signals, rows); learn from those to come.

        Args:
            steps: all of them
            valid: those of them that count
        """
        if not len(valid.action):
            return torch.zeros(len(self.names), len(steps.action), device=self.device)
        self._seen.append(valid)
        found = [steps.terminated.new_zeros(0, len(steps.action), dtype=torch.float32)]
        for name, strength in zip(self.names, self.strengths, strict=True):
            signal = self.signals[name]
            signal.learn_scale(valid)
            reward = signal.rewards(steps)
            if signal.scale is not None:
                counts = reward if valid is steps else signal.rewards(valid)
                signal.scale.learn(counts.unsqueeze(1))
                reward = (reward / (signal.scale.var + 1e-8).sqrt()).clamp(max=LARGEST)
            self._rewards[name].append(float(reward.mean()))
            found.append((strength * reward).unsqueeze(0))
        return torch.cat(found)

    def update(self, env_steps: int, progress: float) -> dict[str, float]:
        """Take the gradient steps that follow an update of the algorithm.

        Args:
            env_steps: of the training so far
            progress: the fraction of them that is done

        Returns:
            mean reward of each signal before its strength, and its losses
        """
        if not self._seen or not self.names:
            self._seen.clear()
            return {}
        seen = Steps(*(torch.cat(parts) for parts in zip(*self._seen, strict=True)))
        self._seen.clear()
        history: dict[str, list[Tensor]] = {}
        for rows in self._minibatches(len(seen.action)):
            batch = seen.rows(rows)
            for name, signal in self.signals.items():
                loss, metrics = signal.loss(batch, self.generator)
                self._descend(name, loss)
                for metric, value in metrics.items():
                    history.setdefault(metric, []).append(value)
        rewards = {
            f"{name}_reward": math.fsum(found) / len(found) for name, found in self._rewards.items()
        }
        self._rewards = {name: [] for name in self.names}
        return {**rewards, **{k: float(torch.stack(v).mean()) for k, v in history.items()}}

    def _minibatches(self, n: int) -> list[Tensor]:
        size, wanted = self.config.reward_signal_batch_size, self.config.reward_signal_updates
        found: list[Tensor] = []
        while not found or len(found) < wanted:
            order = torch.randperm(n, generator=self.generator, device=self.device)
            found += torch.split(order, size)
        return found[:wanted] if wanted else found

    def _descend(self, name: str, loss: Tensor) -> None:
        optimizer = self.optimizers[name]
        for group in optimizer.param_groups:
            group["lr"] = getattr(self.config, f"{name}_learning_rate")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimizers and generator."""
        return {
            "signals": {name: signal.state_dict() for name, signal in self.signals.items()},
            "optimizers": {name: own.state_dict() for name, own in self.optimizers.items()},
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        for name, signal in self.signals.items():
            signal.load_state_dict(state["signals"][name])
            self.optimizers[name].load_state_dict(state["optimizers"][name])
        restore_generator(self.generator, state["generator"])


def signal_class(name: str) -> type[RewardSignal]:
    """Return the class of a reward signal: a plug-in's, or ``module:Class`` of the user's own.

    Raises:
        UserError: there is none of this name, or it is no reward signal, or a part is missing.
    """
    found = PLUGINS.load(name)
    if not (isinstance(found, type) and issubclass(found, RewardSignal)):
        raise UserError(
            f"reward signal {name!r} is not a subclass of rltune.agents.rewards.signal.RewardSignal"
        )
    if missing := ", ".join(sorted(found.__abstractmethods__)):
        raise UserError(f"reward signal {name!r} lacks {missing}")
    if not isinstance(getattr(found, "episodic", None), bool):
        raise UserError(f"reward signal {name!r} lacks episodic: write episodic = False, or True")
    return found


def made_signal(
    name: str,
    spaces: Spaces,
    encoder: str,
    size: int,
    generator: torch.Generator,
    device: torch.device,
) -> RewardSignal:
    """Return a new signal that is none of ours, with the arguments of `RND`.

    Raises:
        UserError: as `signal_class`, or it takes other arguments.
    """
    kind: Any = signal_class(name)
    arguments = (spaces, encoder, size, generator, device)
    try:
        inspect.signature(kind).bind(*arguments)
    except TypeError as error:
        raise UserError(
            f"reward signal {name!r}: __init__ must take (spaces, encoder, size, generator, "
            f"device): {error}"
        ) from None
    made: RewardSignal = kind(*arguments)
    return made.to(device)


def attach(signals: RewardSignals, memory: Any, agent: str) -> None:
    """Let signals reward the steps of an agent's memory.

    Raises:
        UserError: the memory is the agent's own, and knows no signals.
    """
    if not hasattr(memory, "signals"):
        raise UserError(
            f"the memory of agent {agent} has no place for reward signals; give it an attribute "
            "signals, or leave reward_signals out"
        )
    memory.signals = signals
