"""Distributions of actions, where 0.1 had them; import them from `rltune.agents`."""

from rltune.agents.networks.distributions import make_distribution as make_distribution
