"""Which networks are standard, so that kernels compute exactly what PyTorch does."""

from __future__ import annotations

from itertools import pairwise

from rltune.agents.config import OffPolicyConfig, OnPolicyConfig
from rltune.agents.errors import NotStandardError
from rltune.agents.networks.actor_critic import ActorCritic
from rltune.agents.networks.distributions import Categorical, Gaussian
from rltune.agents.networks.encoders import Flat
from rltune.agents.networks.recurrent import Reader
from rltune.agents.reward_signals import value_streams
from torch import nn


def linear_layers(module: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a multilayer perceptron, in their order.

    Raises:
        NotStandardError: there is something else in it than linear layers and activations.
    """
    leaves = [part for part in module.modules() if not list(part.children())]
    layers = [leaf for leaf in leaves if not isinstance(leaf, nn.Sequential)]  # an empty one
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    others = (nn.Tanh, nn.ReLU, nn.ELU, nn.SiLU)
    strange = [layer for layer in layers if not isinstance(layer, (nn.Linear, *others))]
    if strange:
        raise NotStandardError(f"a {type(strange[0]).__name__} in the network")
    if not linear:
        raise NotStandardError("networks without a hidden layer")
    if linear[0].in_features == 0:
        raise NotStandardError("observations without numbers")
    if any(a.out_features != b.in_features for a, b in pairwise(linear)):
        raise NotStandardError("layers that don't follow each other")
    return linear


def check_actor_critic(nets: ActorCritic, config: OnPolicyConfig) -> None:
    """Check that `ActorCriticKernel` computes what these networks do.

    Raises:
        NotStandardError: it doesn't.
    """
    if config.models():
        raise NotStandardError("a model file")
    if value_streams(config) > 1:
        raise NotStandardError("a value for each reward signal")
    if getattr(config, "shared_torso", False):
        raise NotStandardError("shared_torso")
    check_reader(nets)
    if nets.actor.std in ("sde", "network"):
        raise NotStandardError("use_sde" if nets.actor.std == "sde" else "state_dependent_std")
    if not isinstance(nets.distribution, (Categorical, Gaussian)):
        raise NotStandardError("actions that are several choices")


def check_off_policy(actor: Reader, critics: Reader, config: OffPolicyConfig) -> None:
    """Check that `CriticsKernel` and `ActorKernel` compute what these networks do.

    Args:
        actor: its hidden layers
        critics: the values
        config: of the agent

    Raises:
        NotStandardError: they don't.
    """
    if config.models():
        raise NotStandardError("a model file")
    if value_streams(config) > 1:
        raise NotStandardError("a value for each reward signal")
    if not config.net_arch:
        raise NotStandardError("networks without a hidden layer")
    check_reader(actor)
    check_reader(critics)


def check_reader(nets: Reader) -> None:
    """Check that a network reads vectors as they are, on a CPU.

    Raises:
        NotStandardError: it doesn't.
    """
    if next(nets.parameters()).device.type != "cpu":
        raise NotStandardError("a GPU")
    if nets.core is not None:
        raise NotStandardError("an LSTM")
    if nets.parts.n_mask:
        raise NotStandardError("action masks")
    if not isinstance(nets.encoder, Flat) or nets.encoder.scale is not None:
        raise NotStandardError("images")
