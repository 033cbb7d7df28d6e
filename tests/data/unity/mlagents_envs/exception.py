"""Exceptions of the names that mlagents_envs has."""


class UnityActionException(Exception):
    """An action does not fit."""


class UnityWorkerInUseException(Exception):
    """The port is taken."""

    def __init__(self, worker_id):
        super().__init__(f"worker number {worker_id} is still in use")
