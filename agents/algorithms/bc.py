"""Behavioural cloning (Pomerleau 1991, doi:10.1162/neco.1991.3.1.88) by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rltune.agents.algorithm import Algorithm, means
from rltune.agents.algorithms.on_policy import RecurrentConfig, RolloutPolicy
from rltune.agents.config import fixed, hp
from rltune.agents.demonstrations.memory import DemonstrationMemory
from rltune.agents.demonstrations.steps import SEQUENCE, DemonstratedSteps, read_fitting
from rltune.agents.errors import UserError
from rltune.agents.learner import Learner
from rltune.agents.spaces import Spaces, with_states
from torch import Tensor

VALIDATION_ROWS = 1024  # of a pass through the network
VALIDATIONS = 20  # of a training, at least: as many as it has evaluations by default


@dataclass(frozen=True, kw_only=True)
class BCConfig(RecurrentConfig):
    """The hyperparameters of behavioural cloning."""

    demonstrations: str = hp(
        "", mutable=False, help="file of demonstrations to learn from: rltune play RUN --record"
    )
    # The last policy counts, and where little stands between it and a fall it has to be exact.
    learning_rate: float | str = hp(
        "lin_3e-3",
        low=1e-4,
        high=1e-2,
        scale="log",
        schedule=True,
        help="step size of the optimizer",
    )
    # Off: an expert stays where it is good, and of a spread so small the first steps of its
    # episodes are too far away.
    normalize_observations: bool = hp(
        False, mutable=False, help="normalise by the demonstrated observations (vectors only)"
    )
    batch_size: int = hp(
        64, low=32, high=512, scale="pow2", minimum=1, help="demonstrated steps in a minibatch"
    )
    weight_decay: float = hp(
        0.0,
        low=1e-5,
        high=1.0,
        scale="log",
        help="how fast the weights shrink, times learning_rate",
    )
    validation_fraction: float = hp(
        0.1,
        minimum=0,
        maximum=0.9,
        mutable=False,
        help="episodes that are held out for validation_loss, rounded down",
    )
    sequence_length: int = hp(
        SEQUENCE, low=8, high=128, scale="pow2", minimum=1, help="steps an LSTM is trained through"
    )
    log_std_init: float = hp(
        0.0,
        low=-3.0,
        high=1.0,
        minimum=-20,
        maximum=5,
        mutable=False,
        help="log std of actions that are not greedy: it is not learned (Box actions)",
    )
    model: str = hp(
        "",
        outputs=("",),
        mutable=False,
        help="file that describes the network, with one output layer",
    )

    # Without a meaning here: no environment is stepped, and no value is learned.
    n_envs: int = fixed(1)
    vectorization: str = fixed("sync")
    num_actors: int = fixed(0)
    max_policy_lag: int = fixed(0)
    evaluation_actor: bool = fixed(False)
    gamma: float = fixed(0.99)
    normalize_rewards: bool = fixed(False)
    n_steps: int = fixed(1)
    gae_lambda: float = fixed(0.95)
    ent_coef: float = fixed(0.0)
    vf_coef: float = fixed(0.0)
    state_dependent_std: bool = fixed(False)
    use_sde: bool = fixed(False)
    sde_sample_freq: int = fixed(0)
    shared_torso: bool = fixed(False)
    shared_value: bool = fixed(True)
    extrinsic_strength: float = fixed(1.0)
    curiosity_strength: float = fixed(0.0)
    curiosity_gamma: float = fixed(0.0)
    curiosity_learning_rate: float = fixed(3e-4)
    curiosity_size: int = fixed(128)
    rnd_strength: float = fixed(0.0)
    rnd_gamma: float = fixed(0.0)
    rnd_learning_rate: float = fixed(3e-4)
    rnd_size: int = fixed(128)
    custom_signal: str = fixed("")
    custom_strength: float = fixed(0.0)
    custom_gamma: float = fixed(0.0)
    custom_learning_rate: float = fixed(3e-4)
    custom_size: int = fixed(128)
    gail_strength: float = fixed(0.0)
    gail_gamma: float = fixed(0.0)
    gail_learning_rate: float = fixed(3e-4)
    gail_size: int = fixed(128)
    gail_use_actions: bool = fixed(False)
    gail_use_vail: bool = fixed(False)
    gail_gradient_penalty: float = fixed(10.0)
    reward_signal_updates: int = fixed(0)
    reward_signal_batch_size: int = fixed(256)
    cloning: float = fixed(0.0)
    cloning_steps: int = fixed(0)
    cloning_batch_size: int = fixed(1)
    cloning_updates: int = fixed(1)


class BC(Algorithm[BCConfig]):
    """A policy that learns what was demonstrated, and nothing else.

    Its networks are those of PPO and A2C, so that a training of theirs can begin with them; the
    critic stays as it was initialised. An env step is a demonstrated step that was learned from.
    """

    Config = BCConfig
    offline = True

    def __init__(self, config: BCConfig, spaces: Spaces, *, seed: int, device: str = "cpu") -> None:
        self._shown, self._seed = spaces, seed
        spaces = with_states(spaces, config.lstm_size)
        super().__init__(config, spaces, seed=seed, device=device)
        self.state_size = 2 * config.lstm_size
        length = config.sequence_length if self.state_size else 1
        self.n_starts = max(1, config.batch_size // length)  # of a minibatch: steps, or sequences
        self.update_every = self.n_starts * length
        self.policy = RolloutPolicy(config, spaces, seed, self.generator)
        self.nets = self.policy.nets
        self.nets.critic.requires_grad_(False)
        if isinstance(log_std := getattr(self.nets.actor, "log_std", None), Tensor):
            log_std.requires_grad_(False)
        self.learner = Learner(self.nets, config)
        self.learned = 0  # demonstrated steps since the last look at those that are held out
        self.progress = 0.0  # at the last update

    def make_memory(self) -> DemonstrationMemory:
        """Return the demonstrations.

        Raises:
            UserError: none are named, or they can't be read, or are of other spaces.
        """
        file, fraction = self.config.demonstrations, self.config.validation_fraction
        if not file:
            raise UserError("agent bc needs demonstrations; name a file: --demonstrations FILE")
        return DemonstrationMemory(read_fitting(file, self._shown), fraction, self._seed)

    def act(self, obs: NDArray[Any], *, explore: bool) -> NDArray[Any]:
        """Return the raw (unclipped) actions for ``obs`` (n, ...); greedy unless ``explore``."""
        return self.policy.act(obs, explore=explore)

    def next_state(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the LSTM's states after ``obs``: (n, state_size)."""
        return self.policy.next_state(obs)

    def greedy(self, inputs: Tensor) -> Tensor:
        """Return the greedy actions, see `Algorithm.greedy`."""
        return self.policy.greedy(inputs)

    def greedy_state(self, inputs: Tensor) -> Tensor:
        """Return the LSTM's states after ``inputs``: (n, state_size)."""
        return self.nets.next_state(inputs)

    def imitation(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Return the loss of a policy that imitates actions."""
        return self.policy.imitation(inputs, action)

    def update(self, memory: DemonstrationMemory, progress: float) -> dict[str, float]:
        """Take one gradient step; now and then, look at what is held out."""
        steps, learning_rate = memory.steps, self.learning_rate_at(progress)
        starts = torch.randint(
            len(steps), (self.n_starts,), generator=self.generator, device=self.device
        )
        loss = self._loss(steps, starts.cpu())
        norm = self.learner.step(loss, learning_rate)
        if self.config.weight_decay > 0:  # decoupled (Loshchilov and Hutter 2019, arXiv:1711.05101)
            self.learner.flat.mul_(1.0 - learning_rate * self.config.weight_decay)
        found = means([{"loss": loss.detach(), "grad_norm": norm}])
        found["learning_rate"] = learning_rate
        if self._is_due(len(steps), progress) and memory.held_out is not None:
            found["validation_loss"] = self._validation_loss(memory.held_out)
        return found

    def _is_due(self, epoch: int, progress: float) -> bool:
        """Tell whether an epoch has ended, or a twentieth of the training."""
        self.learned += self.update_every
        part, last = int(VALIDATIONS * progress), int(VALIDATIONS * self.progress)
        self.progress = progress
        if self.learned < epoch and part <= last:
            return False
        self.learned = 0
        return True

    def _loss(self, steps: DemonstratedSteps, starts: Tensor) -> Tensor:
        inputs, action = steps.minibatch(starts, self.state_size, self.config.sequence_length)
        return self.imitation(inputs.to(self.device), action.to(self.device))

    @torch.no_grad()
    def _validation_loss(self, held_out: DemonstratedSteps) -> float:
        """Return the mean loss of all steps that are held out."""
        every = self.config.sequence_length if self.state_size else 1
        starts = torch.split(torch.arange(0, len(held_out), every), VALIDATION_ROWS // every or 1)
        losses = torch.stack([self._loss(held_out, some) * len(some) for some in starts])
        return float(losses.sum()) / sum(map(len, starts))

    def state_dict(self) -> dict[str, Any]:
        """Return policy and optimizer."""
        learner = self.learner.state_dict()
        counters = {"learned": self.learned, "progress": self.progress}
        return {**self.policy.state_dict(), "learner": learner, **counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.policy.load_state_dict(state)
        self.learner.load_state_dict(state["learner"])
        self.learned, self.progress = state["learned"], state["progress"]
