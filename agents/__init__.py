"""The learners: configurations, environments, memory, networks, losses and algorithms."""
