"""Channels: how the training process and another learner tell each other what to learn from."""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor


class LostError(OSError):
    """The other side has ended."""


class Channel:
    """One end of a connection between the training process and one learner.

    Args:
        connection: carries the messages
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, message: object) -> None:
        """Send what can be pickled; tensors as arrays, see `arrays`.

        Raises:
            LostError: nobody listens any more.
        """
        self.send_bytes(packed(message))

    def send_bytes(self, message: bytes) -> None:
        """Send what `packed` gave.

        Raises:
            LostError: nobody listens any more.
        """
        try:
            self.connection.send_bytes(message)
        except OSError as error:
            raise LostError(str(error)) from error

    def receive(self) -> Any:
        """Wait for a message and return it.

        Raises:
            LostError: none will come any more.
        """
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise LostError(str(error)) from error

    def close(self) -> None:
        """Close the connection; the other side is told."""
        self.connection.close()


def packed(message: object) -> bytes:
    """Return a message as bytes."""
    return pickle.dumps(message, 5)


def arrays(content: Any) -> Any:
    """Return nested tuples, lists and dicts with NumPy arrays in place of tensors.

    Pickling a tensor takes fifty times as long.
    """
    if isinstance(content, Tensor):
        return content.cpu().numpy()
    if isinstance(content, dict):
        return {key: arrays(value) for key, value in content.items()}
    if isinstance(content, tuple) and hasattr(content, "_fields"):
        return type(content)(*map(arrays, content))
    return content


def tensors(content: Any, device: torch.device | None = None) -> Any:
    """Return what `arrays` got, with tensors on a device."""
    if isinstance(content, dict):
        return {key: tensors(value, device) for key, value in content.items()}
    if isinstance(content, tuple) and hasattr(content, "_fields"):
        return type(content)(*(tensors(value, device) for value in content))
    return torch.from_numpy(content).to(device) if hasattr(content, "dtype") else content
