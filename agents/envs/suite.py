"""Environment suites: several environments as one name, with normalised scores.

A name looks like ``CartPole-v1=9:475,Acrobot-v1=-500:-100``.

Behind each environment stand the return that counts as 0 and the one that counts as 1: returns of
different environments can only be averaged as normalised scores. `completed` fills in those that
are left out.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError

if TYPE_CHECKING:
    import gymnasium

HELP = (
    "gymnasium id, module:Class of your own, or unity:FILE; several at once: ENV,ENV or "
    "ENV=LOW:HIGH,..."
)
# Stands for the environment of a training that makes one by itself, where a search names none.
NO_ENV = "its own"
RANDOM_EPISODES = 20
RANDOM_STEPS = 20_000  # at most


@dataclass(frozen=True)
class Scale:
    """An environment, and its returns that count as 0 and as 1."""

    env: str
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.env}={self.low:.6g}:{self.high:.6g}"

    def score(self, value: float) -> float:
        """Return the normalised score of a return; it may lie outside of 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def is_suite(env: str) -> bool:
    """Tell whether a name means a suite, rather than one environment."""
    return "," in env or "=" in env


def environments(env: str) -> list[str]:
    """Return the environments that a name means, one or several."""
    return [part.partition("=")[0].strip() for part in env.split(",")]


def parse_suite(env: str, flag: str = "--env") -> list[Scale]:
    """Return the environments with their scales; ``flag`` is named in errors.

    Raises:
        UserError: a scale is missing or wrong, or an environment comes twice.
    """
    scales = []
    for part in env.split(","):
        name, _, bounds = part.strip().partition("=")
        low, _, high = bounds.partition(":")
        try:
            scale = Scale(name, float(low), float(high))
        except ValueError:
            scale = Scale(name, math.nan, math.nan)
        if not (math.isfinite(scale.low) and math.isfinite(scale.high)) or scale.low == scale.high:
            raise UserError(
                f"{flag} {part}: write ENV=LOW:HIGH, the return of a bad policy and that of a good "
                "one, such as Pendulum-v1=-1200:-200."
            )
        scales.append(scale)
    names = [scale.env for scale in scales]
    if len(set(names)) < len(names):
        raise UserError(f"{flag} {env}: an environment comes twice.")
    return scales


def shares(total: int, parts: int) -> list[int]:
    """Return the share of ``total`` env steps of each of so many environments."""
    ends = [total * k // parts for k in range(parts + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]


def completed(env: str) -> str:
    """Return the name with all scales: 0 is what random actions get, 1 is the solving return.

    Raises:
        UserError: an unknown environment, or one that gymnasium knows no solving return of.
    """
    from rltune.agents.envs.make import check_env_name

    if not is_suite(env):
        return env
    full = []
    for part in env.split(","):
        name, equals, _ = part.strip().partition("=")
        if equals:
            check_env_name(name)
            full.append(part.strip())
        else:
            full.append(str(_known_scale(name)))
    return ",".join(str(scale) for scale in parse_suite(",".join(full)))


def known_scale(env: str) -> Scale | None:
    """Return the scale of gymnasium's own environment, or None where it knows no solving return.

    Plain gymnasium: nothing of the environment's name is imported, and no learner.
    """
    import gymnasium

    spec = None if ":" in env else gymnasium.registry.get(env)
    if spec is None or spec.reward_threshold is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the environment's age
            low = _random_return(gymnasium.make(env))
    except Exception:  # a simulator that isn't installed, or doesn't run here
        return None
    return Scale(env, float(f"{low:.3g}"), float(spec.reward_threshold))


def _known_scale(env: str) -> Scale:
    import gymnasium
    from rltune.agents.envs.make import is_own, make_env

    low = _random_return(make_env(env))
    high = None if is_own(env) else gymnasium.spec(env).reward_threshold
    if high is None:
        raise UserError(
            f"which return solves {env}? Write --env {env}={low:.6g}:HIGH; {low:.6g} is what "
            "random actions get."
        )
    return Scale(env, float(f"{low:.3g}"), float(high))


def _random_return(env: gymnasium.Env[Any, Any]) -> float:
    """Return the mean return of random actions."""
    env.action_space.seed(0)
    returns: list[float] = []
    steps = 0
    for seed in range(RANDOM_EPISODES):
        env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, steps = total + float(reward), steps + 1
            ended = terminated or truncated or steps >= RANDOM_STEPS
        returns.append(total)
        if steps >= RANDOM_STEPS:
            break
    env.close()  # type: ignore[no-untyped-call]
    return math.fsum(returns) / len(returns)
