"""Distributed collection: actors step environments elsewhere, one learner updates here.

Nothing in here knows of processes: `fleet.Fleet` is what runs actors and the replay server, and
`rltune.actors` has one on Ray.
"""
