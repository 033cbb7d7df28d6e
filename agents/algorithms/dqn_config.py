"""DQN's hyperparameters, those of Rainbow's parts included; `dqn.py` has the algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.agents.config import HindsightConfig, hp


@dataclass(frozen=True, kw_only=True)
class DQNConfig(HindsightConfig):
    """The hyperparameters of DQN."""

    learning_rate: float | str = hp(
        1e-3, low=1e-5, high=1e-2, scale="log", schedule=True, help="step size of the optimizer"
    )
    max_grad_norm: float = hp(
        10.0, low=0.3, high=20.0, scale="log", help="largest global gradient norm; 0: no clipping"
    )
    batch_size: int = hp(64, low=32, high=512, scale="pow2", minimum=1, help="minibatch size")
    train_freq: int = hp(
        4, low=1, high=256, scale="pow2", minimum=1, help="env steps between updates"
    )
    gradient_steps: int = hp(
        -1, low=1, high=256, scale="pow2", minimum=-1, help="minibatches an update; -1: train_freq"
    )
    tau: float = hp(
        1.0, low=0.001, high=1.0, scale="log", maximum=1, help="how far the target moves; 1: all"
    )
    target_update_interval: int = hp(
        500, low=1, high=10_000, scale="log", minimum=1, help="env steps between its moves"
    )
    exploration_initial_eps: float = hp(
        1.0, low=0.1, high=1.0, maximum=1, help="fraction of random actions at first"
    )
    exploration_final_eps: float = hp(
        0.05, low=0.0, high=0.2, maximum=1, help="fraction of random actions in the end"
    )
    exploration_fraction: float = hp(
        0.1, low=0.05, high=0.5, maximum=1, help="part of the training after which that is reached"
    )
    exploration_schedule: str = hp(
        "linear",
        choices=("linear", "exponential"),
        help="how that falls; exponential: a part 1/e of it is left after the decay steps",
    )
    exploration_decay_steps: int = hp(
        0,
        low=1000,
        high=1_000_000,
        scale="log",
        help="env steps of the fall, instead of exploration_fraction; 0: as that says",
    )
    reward_scale: float = hp(
        1.0, low=0.01, high=100, scale="log", help="what rewards are multiplied with"
    )
    td_loss: str = hp(
        "huber", choices=("huber", "squared"), help="of the errors; not for distributions"
    )
    huber_delta: float = hp(
        1.0, low=0.1, high=10.0, scale="log", minimum=1e-6, help="errors beyond count linearly"
    )
    double: bool = hp(False, help="the online network chooses the action that the target values")
    dueling: bool = hp(
        False, mutable=False, help="a stream for the state's value and one for the advantages"
    )
    n_step: int = hp(1, low=1, high=10, minimum=1, help="rewards summed before a value is asked")
    prioritised: bool = hp(
        False, mutable=False, help="draw transitions by the size of their last error"
    )
    priority_alpha: float = hp(
        0.6, low=0.0, high=1.0, mutable=False, help="how much; 0: draw uniformly"
    )
    priority_beta: float = hp(
        0.4, low=0.0, high=1.0, maximum=1, help="how far weights make up for it at first; then 1"
    )
    noisy: bool = hp(False, mutable=False, help="noisy layers explore, instead of random actions")
    noisy_sigma: float = hp(0.5, low=0.1, high=1.0, mutable=False, help="their initial noise")
    distributional: str = hp(
        "none", choices=("none", "c51", "qr"), mutable=False, help="learn the return's distribution"
    )
    n_atoms: int = hp(51, low=11, high=101, minimum=2, mutable=False, help="returns that c51 knows")
    v_min: float = hp(
        -10.0, low=-500, high=0, minimum=-1e9, mutable=False, help="the smallest of them"
    )
    v_max: float = hp(
        10.0, low=0, high=500, minimum=-1e9, mutable=False, help="the largest of them"
    )
    n_quantiles: int = hp(
        50, low=10, high=200, minimum=1, mutable=False, help="quantiles that qr knows"
    )
    lstm_size: int = hp(
        0,
        low=32,
        high=256,
        scale="pow2",
        mutable=False,
        help="an LSTM between encoder and net_arch; 0: none",
    )
    sequence_length: int = hp(
        16, low=8, high=64, scale="pow2", minimum=1, help="steps it learns in a row, of batch_size"
    )
    burn_in: int = hp(
        4, low=0, high=40, help="steps before them that only bring its stored state up to date"
    )
    model: str = hp(
        "",
        outputs=("",),
        mutable=False,
        help="file that describes the network; the output layer alone is doubled"
        " by dueling, or noisy",
    )
