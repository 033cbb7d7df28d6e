"""The search: from its request over its checks to its driver and its end."""
