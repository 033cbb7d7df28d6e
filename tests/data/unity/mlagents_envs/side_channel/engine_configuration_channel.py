"""The settings of Unity's engine."""


class EngineConfigurationChannel:
    """Keeps what is set until the build takes it."""

    def __init__(self):
        self._queue = {}

    def set_configuration_parameters(
        self,
        width=None,
        height=None,
        quality_level=None,
        time_scale=None,
        target_frame_rate=None,
        capture_frame_rate=None,
    ):
        """Set those that are given."""
        given = {
            "width": width,
            "height": height,
            "quality_level": quality_level,
            "time_scale": time_scale,
            "target_frame_rate": target_frame_rate,
            "capture_frame_rate": capture_frame_rate,
        }
        self._queue.update({name: value for name, value in given.items() if value is not None})

    def taken(self):
        """Return what has been set since the last message."""
        taken, self._queue = self._queue, {}
        return taken
