"""The cluster: Ray's address, nodes, resources, sessions and jobs."""
