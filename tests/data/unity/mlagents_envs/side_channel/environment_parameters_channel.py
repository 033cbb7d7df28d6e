"""Numbers that a scene can ask for by name."""


class EnvironmentParametersChannel:
    """Keeps what is set until the build takes it."""

    def __init__(self):
        self._queue = {}

    def set_float_parameter(self, key, value):
        """Set one of them."""
        self._queue[key] = value

    def taken(self):
        """Return what has been set since the last message."""
        taken, self._queue = self._queue, {}
        return taken
