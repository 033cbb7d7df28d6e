"""The rows of the table: what is trained, which part of it is timed, and against whom."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Row:
    """One training, compared with another library's.

    The clock runs from ``first`` to ``last`` env steps of a training of ``total``, between two
    updates. Where ``learning_starts`` is a good part of the training, it is in the middle.

    Attributes:
        at_least: what rltune has to reach, in words; empty: nothing was named
        own: rl-zoo3's settings where the search spaces have no preset of them
    """

    agent: str
    env: str
    total: int
    first: int
    last: int
    at_least: str = ""
    against: str = "sb3"
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.agent} {self.env}" + (f" {self.against}" if self.against != "sb3" else "")

    @property
    def reference(self) -> str:
        """The library's name for readers."""
        if self.against == "rllib":
            return "RLlib"
        return "sb3-contrib" if self.agent == "trpo" else "SB3"

    def settings(self) -> dict[str, Any]:
        """Return the hyperparameters of both sides."""
        import rltune

        return dict(self.own) or rltune.preset(self.agent, self.env, "zoo")

    def shrunk(self, env_steps: int) -> Row:
        """Return the row with a shorter window; a middle that counts stays the middle."""
        middle = (self.first + self.last) // 2
        if self.agent in ("td3", "ddpg") and self.first > env_steps:
            return replace(self, first=middle - env_steps // 2, last=middle + env_steps // 2)
        return replace(self, last=min(self.last, self.first + env_steps))


ROWS = (
    Row("ppo", "CartPole-v1", 100_000, 0, 25_600, "5"),
    Row("ppo", "LunarLander-v3", 1_000_000, 0, 32_768, "3"),
    Row("a2c", "CartPole-v1", 500_000, 0, 40_000, "3.5"),
    Row("dqn", "CartPole-v1", 50_000, 1_024, 8_192, "2.5 on equal BLAS, 3.3 with NumPy's faster"),
    Row("sac", "Pendulum-v1", 20_000, 150, 650, "2 on equal BLAS, 3 with NumPy's faster"),
    Row("td3", "Pendulum-v1", 20_000, 9_600, 10_400, "1.5 on equal BLAS, 2.3 with NumPy's faster"),
    Row("ddpg", "Pendulum-v1", 20_000, 9_600, 10_400, "1.5 on equal BLAS, 2.3 with NumPy's faster"),
    Row("trpo", "CartPole-v1", 100_000, 0, 20_480, "3"),
    Row("ppo", "CartPole-v1", 100_000, 2_560, 12_800, "10", against="rllib"),
)

# Named in docs/benchmarks/held-out.md before the engine was written; measured once, at the end.
# rl-zoo3's use_expln is left out of SAC on both sides: rltune has no such hyperparameter.
HELD_OUT = (
    Row("ppo", "Acrobot-v1", 1_000_000, 0, 32_768),
    Row("a2c", "LunarLander-v3", 200_000, 0, 40_000),
    Row(
        "dqn", "MountainCar-v0", 120_000, 1_008, 9_008,
        own=dict(
            learning_rate=4e-3, batch_size=128, buffer_size=10_000, learning_starts=1000,
            gamma=0.98, target_update_interval=600, train_freq=16, gradient_steps=8,
            exploration_fraction=0.2, exploration_final_eps=0.07, net_arch=[256, 256],
        ),
    ),
    Row(
        "sac", "MountainCarContinuous-v0", 50_000, 512, 2_048,
        own=dict(
            learning_rate=3e-4, batch_size=512, buffer_size=50_000, learning_starts=0,
            gamma=0.9999, tau=0.01, train_freq=32, gradient_steps=32, ent_coef="0.1",
            use_sde=True, log_std_init=-3.67, net_arch=[64, 64],
        ),
    ),
    Row(
        "td3", "MountainCarContinuous-v0", 300_000, 200, 700,
        own=dict(
            learning_rate=1e-3, batch_size=256, buffer_size=1_000_000, learning_starts=100,
            gamma=0.99, tau=0.005, train_freq=1, gradient_steps=1,
            noise_type="ornstein-uhlenbeck", noise_std=0.5, net_arch=[400, 300],
        ),
    ),
    Row("trpo", "Pendulum-v1", 100_000, 0, 16_384),
)  # fmt: skip


def row_named(name: str) -> Row:
    return next(row for row in (*ROWS, *HELD_OUT) if row.name == name)
