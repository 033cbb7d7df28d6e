"""The hyperparameters of SAC, beside `rltune.agents.algorithms.sac`."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.agents.algorithms.off_policy import ActorCriticConfig
from rltune.agents.config import hp


@dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """The hyperparameters of SAC."""

    learning_starts: int = hp(
        100,
        low=0,
        high=10_000,
        mutable=False,
        help="env steps of random actions before the first update",
    )
    n_step: int = hp(1, low=1, high=10, minimum=1, help="rewards summed before a value is asked")
    shared_value: bool = hp(
        False, mutable=False, help="one value for all rewards, none for each reward signal"
    )
    ent_coef: str = hp(
        "auto",
        help="temperature of each choice: a number, auto (learned from 1 on) or auto_0.1 "
        "(from 0.1 on)",
    )
    temperature_learning_rate: float | str = hp(
        0.0,
        low=1e-5,
        high=1e-2,
        scale="log",
        schedule=True,
        help="a learned temperature's; 0: learning_rate",
    )
    target_entropy: str = hp(
        "auto",
        help="what learned temperatures aim at: a number, of all choices together; auto: -size, or "
        "0.89 of each choice's largest",
    )
    target_update_interval: int = hp(
        1, low=1, high=8, minimum=1, help="updates to each movement of the targets"
    )
    use_sde: bool = hp(
        False, mutable=False, help="generalised state-dependent exploration, gSDE (Box actions)"
    )
    sde_sample_freq: int = hp(
        0, low=0, high=256, help="new gSDE noise every so many steps; 0: after each update"
    )
    log_std_init: float = hp(
        -3.0,
        low=-5.0,
        high=0.0,
        minimum=-20,
        maximum=5,
        mutable=False,
        help="initial log std of gSDE",
    )
    lstm_size: int = hp(
        0,
        low=32,
        high=256,
        scale="pow2",
        mutable=False,
        help="LSTMs of actor and of critics, before net_arch; 0: none",
    )
    sequence_length: int = hp(
        16, low=8, high=64, scale="pow2", minimum=1, help="steps they learn in a row, of batch_size"
    )
    burn_in: int = hp(
        4, low=0, high=40, help="steps before them that only bring stored states up to date"
    )
    actor_model: str = hp(
        "", outputs=("",), mutable=False, help="file that describes the actor's network"
    )
    critic_model: str = hp(
        "",
        outputs=("",),
        mutable=False,
        help="the same for the critics, each with weights of its own",
    )
