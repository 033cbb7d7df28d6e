"""The hyperparameters of ACER, beside `rltune.agents.algorithms.acer`."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.agents.config import AgentConfig, hp


@dataclass(frozen=True, kw_only=True)
class ACERConfig(AgentConfig):
    """The hyperparameters of ACER.

    The defaults are those of OpenAI's baselines, which were found on Atari games, but the learning
    rate does not fall to 0 (theirs is ``lin_7e-4``, over 80 million steps), and observations and
    rewards are normalised: small tasks are learned faster so, and more surely.
    """

    normalize_observations: bool = hp(
        True, mutable=False, help="running normalisation of the observations (vectors only)"
    )
    normalize_rewards: bool = hp(True, mutable=False, help="running scaling of the rewards")

    learning_rate: float | str = hp(
        7e-4, low=1e-4, high=5e-3, scale="log", schedule=True, help="step size"
    )
    max_grad_norm: float = hp(
        10.0, low=0.3, high=20.0, scale="log", help="largest global gradient norm; 0: no clipping"
    )
    optimizer: str = hp("rmsprop", choices=("adam", "rmsprop"), mutable=False, help="optimizer")
    n_steps: int = hp(
        20,
        low=8,
        high=128,
        scale="pow2",
        minimum=1,
        mutable=False,
        help="steps of each environment a rollout",
    )
    ent_coef: float = hp(0.01, low=1e-5, high=0.1, scale="log", help="weight of the entropy bonus")
    importance_eps: float = hp(
        1e-6, low=1e-8, high=1e-3, scale="log", help="added to probabilities that divide"
    )
    q_coef: float = hp(0.5, low=0.1, high=1.0, help="weight of the loss of the action values")
    buffer_size: int = hp(
        50_000,
        low=5_000,
        high=500_000,
        scale="log",
        minimum=1,
        mutable=False,
        help="transitions that are kept, whatever the number of environments",
    )
    replay_start: int = hp(
        10_000,
        low=0,
        high=20_000,
        mutable=False,
        help="transitions in the memory before any is replayed",
    )
    replay_ratio: float = hp(
        4.0, low=0.0, high=8.0, help="replayed updates a rollout, on average (Poisson)"
    )
    importance_c: float = hp(
        10.0, low=1.0, high=20.0, help="importance weights are truncated here (c)"
    )
    trust_region: bool = hp(
        True, mutable=False, help="bound how far an update moves from the average policy"
    )
    trust_region_delta: float = hp(
        1.0, low=0.001, high=2.0, scale="log", help="how far that is, in linearised KL divergence"
    )
    average_decay: float = hp(
        0.99, low=0.9, high=0.999, scale="one_minus_log", maximum=1, help="of the average policy"
    )
    shared_torso: bool = hp(
        False, mutable=False, help="actor and critic share the hidden layers of net_arch"
    )
    model: str = hp(
        "",
        outputs=("softmax", ""),
        mutable=False,
        help="file that describes the network, with two output layers",
    )
