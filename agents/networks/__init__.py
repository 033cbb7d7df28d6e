"""Networks: encoders, actors, critics, and distributions of actions."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.agents.networks.actor_critic import ActorCritic as ActorCritic
    from rltune.agents.networks.distributions import make_distribution as make_distribution
    from rltune.agents.networks.layers import initialise as initialise
    from rltune.agents.networks.layers import mlp as mlp

_HOME = {
    "ActorCritic": "actor_critic",
    "initialise": "layers",
    "make_distribution": "distributions",
    "mlp": "layers",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
