"""rltune tunes reinforcement-learning agents with Ray Tune and Optuna."""

__version__ = "0.1.0"
