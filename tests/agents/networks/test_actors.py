from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from rltune.agents.config import OffPolicyConfig
from rltune.agents.networks.actor_critic import LOG_STD_RANGE
from rltune.agents.networks.actors import SquashedGaussian
from rltune.agents.spaces import Spaces


def test_log_densities_are_those_of_the_squashed_normal_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    box = spaces.Box(-1, 1, (4,), np.float32)
    config = OffPolicyConfig(net_arch=(16, 16))
    actor = SquashedGaussian(Spaces(box, box, 1), 2, config, None, generator)
    obs = torch.randn(64, 4, generator=generator)
    noise = torch.randn(64, 2, generator=generator)
    noise = noise.clamp(-1.5, 1.5)  # beyond, tanh is 1 to rounding
    action, log_prob = actor.sample(obs, noise)
    mean, log_std = actor.head(actor.torso(obs)).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(*LOG_STD_RANGE).exp())
    squashed = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform()]
    )
    torch.testing.assert_close(log_prob, squashed.log_prob(action).sum(1), atol=1e-3, rtol=1e-3)
