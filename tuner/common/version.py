"""The version of rltune; setup.cfg has the same."""

__version__ = "0.1.0"
