"""On-policy learning: the policy of A2C, PPO and TRPO, and rollouts with their advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithms.returns import generalised_advantages
from rltune.agents.config import OnPolicyConfig, hp
from rltune.agents.errors import UserError
from rltune.agents.generators import restore_generator, weight_generator
from rltune.agents.kernels.actor_critic import ActorCriticKernel
from rltune.agents.kernels.standard import check_actor_critic
from rltune.agents.kernels.trpo import TRPOKernel
from rltune.agents.learner import Learner
from rltune.agents.memory.rollout import RolloutMemory
from rltune.agents.memory.streams import Stream
from rltune.agents.networks.actor_critic import ActorCritic
from rltune.agents.networks.distributions import make_distribution
from rltune.agents.shares import Shares
from rltune.agents.spaces import Spaces
from torch import Tensor

# Of targets that are all alike: how far apart they may be, as a part of themselves, in float32.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(OnPolicyConfig):
    """The hyperparameters of A2C and PPO on the form of the network: an LSTM, a shared torso."""

    lstm_size: int = hp(
        0,
        low=32,
        high=256,
        scale="pow2",
        mutable=False,
        help="an LSTM between encoder and net_arch; 0: none",
    )
    sequence_length: int = hp(
        0, low=8, high=128, scale="pow2", help="steps it is trained through; 0: the whole rollout"
    )
    shared_torso: bool = hp(
        False, mutable=False, help="actor and critic share the hidden layers of net_arch"
    )
    model: str = hp(
        "",
        outputs=("", ""),
        mutable=False,
        help="file that describes the network, with two output layers",
    )


class Rollout(NamedTuple):
    """Transitions with their advantages and targets; the first axis of every tensor is rows."""

    obs: Tensor
    action: Tensor  # (rows, size)
    log_prob: Tensor  # of the policy that acted
    value: Tensor  # before the update; with a value for each reward signal (rows, streams)
    advantage: Tensor
    target: Tensor  # what the value should have been

    def rows(self, index: Tensor) -> Rollout:
        """Return some of the rows, or of the sequences."""
        return Rollout(*(tensor.index_select(0, index) for tensor in self))

    def sequences(self, n_envs: int, length: int) -> Rollout:
        """Return sequences of consecutive steps of one environment: (sequences, length, ...).

        What is left of a rollout that was cut, and is no whole sequence, is left out; of one that
        is shorter than a sequence, all is one.
        """
        steps_each = len(self.advantage) // n_envs
        length = min(length, steps_each)
        n_rows = steps_each // length * length * n_envs

        def cut(rows: Tensor) -> Tensor:
            steps = rows[:n_rows].view(-1, length, n_envs, *rows.shape[1:])
            return steps.transpose(1, 2).flatten(0, 1)

        return Rollout(*(cut(tensor) for tensor in self))

    def flat(self) -> Rollout:
        """Return sequences of observations with all else in rows, as the networks answer them."""
        return Rollout(self.obs, *(tensor.flatten(0, 1) for tensor in self[1:]))

    def normalised(self, eps: float = 1e-8) -> Rollout:
        """Return the rows with advantages of mean 0 and standard deviation 1, but for ``eps``."""
        advantage = self.advantage
        if len(advantage) < 2:
            return self
        return self._replace(advantage=(advantage - advantage.mean()) / (advantage.std() + eps))

    @np.errstate(all="ignore")  # of a policy that has come to nothing
    def explained_variance(self) -> float:
        """Return the fraction of the targets' variance that the values explained: at most 1.

        It is 0 where the targets are all alike: what differs then is rounding.
        """
        target, value = self.target.cpu().numpy(), self.value.cpu().numpy()
        if target.ndim > 1:  # of the environment's reward
            target, value = target[:, 0], value[:, 0]
        variance = _variance(target)
        rounding = (ROUNDING * float(target[0])) ** 2
        return 1 - _variance(target - value) / variance if variance > rounding else 0.0


def _variance(values: NDArray[np.float32]) -> float:
    # Several times as fast as ndarray.var for a short rollout.
    centred = values - np.add.reduce(values) / np.float32(len(values))
    return float(centred.dot(centred)) / len(values)


class RolloutPolicy:
    """An actor-critic network that acts, and looks back on what it did.

    Acting needs the actor alone; values, log-probabilities and advantages come from one batched
    forward per rollout.

    Args:
        config: of the agent
        spaces: of one environment, and how many there are
        seed: of the initial weights: the same on every device
        generator: where the noise comes from; it decides the device too

    Attributes:
        shares: divides rollouts among several learners
    """

    shares = Shares()

    def __init__(
        self, config: OnPolicyConfig, spaces: Spaces, seed: int, generator: torch.Generator
    ) -> None:
        self.config = config
        self.spaces = spaces
        self.generator = generator
        self.device = generator.device
        self.distribution = make_distribution(spaces.action)
        init = weight_generator(seed)
        self.nets = ActorCritic(spaces, self.distribution, config, init).to(self.device)
        self.exploration: Tensor | None = None  # gSDE's noise functions, one an environment
        self.steps_explored = 0
        self.kernel: ActorCriticKernel | TRPOKernel | None = None  # computes in place of ``nets``
        # Where an earlier policy acted: whether the loss has no ratio of probabilities of its own.
        self.weighs_advantages = False

    def make_kernel(self, learner: Learner) -> ActorCriticKernel:
        """Return what computes with these networks in NumPy.

        Raises:
            NotStandardError: nothing does.
        """
        check_actor_critic(self.nets, self.config)
        return ActorCriticKernel(self.nets, learner, self.config.activation)

    def make_memory(self) -> RolloutMemory:
        """Return an empty rollout memory."""
        assert self.spaces.action.shape is not None
        return RolloutMemory(
            self.config.n_steps, self.spaces, self.spaces.action.shape, self.distribution.dtype
        )

    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the raw (unclipped) actions for ``obs`` (n, ...); greedy unless ``explore``."""
        if self.kernel is None:
            return self._shaped(self._act(self.tensor(obs), explore).cpu().numpy())
        rows = obs.reshape(len(obs), -1)
        return self._shaped(self.kernel.act(rows, self.generator if explore else None))

    @torch.no_grad()
    def _act(self, inputs: Tensor, explore: bool) -> Tensor:
        """Return the actions by PyTorch: (n, size)."""
        latent = self.nets.actor.torso(self.nets.read(inputs))
        params = self.nets.parts.allow(self.nets.actor.params(latent), inputs)
        if not explore:
            return self.distribution.mode(params)
        if self.config.use_sde and self.nets.actor.std == "sde":
            noise = torch.bmm(latent.unsqueeze(1), self._exploration(len(inputs))).squeeze(1)
            return self.distribution.mode(params) + noise
        noise = self.distribution.noise(len(inputs), self.generator)
        return self.distribution.sample(params, noise)

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the most likely actions, see `Algorithm.greedy`."""
        action = self.distribution.mode(self.nets.params(inputs))
        return action.reshape(-1, *self.spaces.action.shape)  # type: ignore[misc]

    def _shaped(self, action: NDArray[Any]) -> NDArray[Any]:
        """Return actions (n, size) in the type and shape of the space's."""
        shape = (len(action), *self.spaces.action.shape)  # type: ignore[misc]
        return action.astype(self.distribution.dtype, copy=False).reshape(shape)

    @torch.no_grad()
    def next_state(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the LSTM's states after ``obs``: (n, state_size)."""
        state: NDArray[np.float32] = self.nets.next_state(self.tensor(obs)).cpu().numpy()
        return state

    def _exploration(self, n_envs: int) -> Tensor:
        """Return gSDE's noise functions, new ones when it is time for them."""
        every = self.config.sde_sample_freq
        if self.exploration is None or (every > 0 and self.steps_explored % every == 0):
            self.exploration = self.nets.actor.exploration_matrices(n_envs, self.generator)
        self.steps_explored += 1
        return self.exploration

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of imitating actions, see `Algorithm.imitation`."""
        return self.distribution.imitation(self.nets.params(inputs), action)

    @torch.no_grad()
    def look_back(self, memory: RolloutMemory) -> Rollout:
        """Return the valid rows of a full rollout with values and advantages."""
        n = memory.reward.size
        obs = memory.obs.reshape(n, *memory.obs.shape[2:])
        action = memory.action.reshape(n, -1)
        log_prob, values = self._evaluate(np.concatenate([obs, memory.final_obs]), action)

        streams = [Stream(memory.reward, self.config.gamma, memory.terminated)]
        if memory.signals is not None:
            streams = memory.signals.streams(
                obs=memory.obs,
                action=memory.action,
                next_obs=memory.successors(),
                reward=memory.reward,
                terminated=memory.terminated,
                valid=memory.valid,
            )
        ratio = None
        if memory.log_prob is not None:
            acted = memory.log_prob[: len(memory.reward)].reshape(-1)
            ratio = np.exp(np.minimum(log_prob - acted, 0.0)).reshape(memory.reward.shape)
            log_prob = acted
        by_stream = values.reshape(len(values), -1).T
        found = [
            self._advantages(memory, stream, value, ratio)
            for stream, value in zip(streams, by_stream, strict=True)
        ]
        advantage, target = found[0]
        for more, _ in found[1:]:
            advantage = advantage + more
        if values.ndim > 1:
            target = np.stack([own for _, own in found], -1)
        valid = np.flatnonzero(memory.valid)
        rows = (obs, action, log_prob, values[:n], advantage, target)
        # The memory's arrays are used again; these are copies.
        return Rollout(*(self.tensor(part.take(valid, axis=0)) for part in rows))

    def _advantages(
        self,
        memory: RolloutMemory,
        stream: Stream,
        values: NDArray[np.float32],
        ratio: NDArray[np.float32] | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the advantages of one stream of rewards, and its values' targets: (rows,).

        Args:
            memory: the rollout
            stream: its rewards
            values: of all rows, and of the successors that are kept
            ratio: pi / mu where an earlier policy mu acted, at most 1; None: this one did
        """
        n = memory.reward.size
        value = values[:n].reshape(memory.reward.shape)
        next_value = np.empty_like(value)
        next_value[:-1] = value[1:]
        for (step, env), final_value in zip(memory.final_index, values[n:], strict=True):
            next_value[step, env] = final_value
        advantage = generalised_advantages(
            stream.reward,
            value,
            next_value,
            stream.terminated,
            memory.terminated | memory.truncated,
            stream.gamma,
            self.config.gae_lambda,
            ratio,
        )
        error = advantage if ratio is None else advantage * ratio
        if self.weighs_advantages:
            advantage = error
        return advantage.reshape(-1), (error + value).reshape(-1)

    def rated(self, obs: NDArray[Any], action: NDArray[Any]) -> NDArray[np.float32]:
        """Return the log-probabilities of actions: (rows, n_envs), as the arguments' first axes."""
        n = obs.shape[0] * obs.shape[1]
        rows = obs.reshape(n, *obs.shape[2:])
        with torch.no_grad():
            return self._evaluate(rows, action.reshape(n, -1))[0].reshape(obs.shape[:2])

    def _evaluate(
        self, obs: NDArray[Any], action: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the log-probabilities of the actions and the values of all observations.

        Args:
            obs: (rows, ...), of which the last have no action
            action: (rows, size)
        """
        if self.shares.n == 1:
            return self._answers(obs, action)
        own = self.shares.block(len(obs))
        log_prob, values = self._answers(obs[own], action[own])
        return (
            self.shares.joined(log_prob, min(own.start, len(action)), len(action)),
            self.shares.joined(values, own.start, len(obs)),
        )

    def _answers(
        self, obs: NDArray[Any], action: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return what `_evaluate` does, without others."""
        if self.kernel is not None:
            return self.kernel.evaluate(obs.reshape(len(obs), -1).T, action.T)
        params, values = self.nets(self.tensor(obs))
        log_prob, _ = self.distribution.evaluate(params[: len(action)], self.tensor(action))
        return log_prob.cpu().numpy(), values.cpu().numpy()

    def take_rollout(self, memory: RolloutMemory) -> Rollout | None:
        """Return the valid rows of a full rollout, and begin the next one; None: it has none."""
        rollout = self.look_back(memory)
        memory.clear()
        self.begin_rollout()
        return rollout if len(rollout.advantage) else None  # so short a rollout may hold none

    def begin_rollout(self) -> None:
        """Draw gSDE's noise anew for the steps to come."""
        self.exploration, self.steps_explored = None, 0

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """Return the array on the device, without a copy where that is possible."""
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        return torch.from_numpy(array).to(self.device)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, generator and exploration noise."""
        return {
            "nets": self.nets.state_dict(),
            "generator": self.generator.get_state(),
            "exploration": self.exploration,
            "steps_explored": self.steps_explored,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.nets.load_state_dict(state["nets"])
        restore_generator(self.generator, state["generator"])
        exploration = state["exploration"]
        self.exploration = None if exploration is None else exploration.to(self.device)
        self.steps_explored = state["steps_explored"]


def whole_sequences(config: RecurrentConfig) -> int:
    """Return the length of the sequences that a rollout is cut into.

    Raises:
        UserError: the rollout is no multiple of it.
    """
    length = config.sequence_length or config.n_steps
    if config.lstm_size and config.n_steps % length:
        raise UserError(
            f"n_steps is {config.n_steps}, but must be a multiple of sequence_length {length}; "
            "sequence_length 0 takes the whole rollout"
        )
    return length
