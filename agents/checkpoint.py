"""Checkpoint files: one dictionary of tensors and plain Python, written atomically."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch
from rltune.agents.errors import UserError, storage_error

FORMAT = "rltune-agent"
VERSION = 1


def write(path: str | Path, state: dict[str, Any]) -> None:
    """Write ``state`` to ``path``: a reader sees the old file or the new one, never a part.

    Raises:
        StorageError: the folder can't be written to, or the disk is full.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save({"format": FORMAT, "version": VERSION, **state}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise storage_error(error, path) from error
    except RuntimeError as error:  # PyTorch hides the system's error behind one of its own
        if isinstance(error.__context__, OSError):
            raise storage_error(error.__context__, path) from error
        raise


def read(path: str | Path, *, env: str | None = None, agent: str | None = None) -> dict[str, Any]:
    """Return the state in a checkpoint.

    Args:
        path: the file
        env, agent: refuse it if it is of another one

    Raises:
        UserError: there is no such file, or it is no checkpoint, or one of a newer version, or of
            another environment or agent.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"checkpoint {path} does not exist")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise UserError(f"{path} is not a checkpoint of rltune") from error
    except OSError as error:
        raise UserError(f"checkpoint {path} can't be read: {error.strerror}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of rltune")
    if state["version"] > VERSION:
        raise UserError(
            f"checkpoint {path} is of format {state['version']}, newer than this rltune reads "
            f"({VERSION}); upgrade rltune"
        )
    for kind, wanted in (("env", env), ("agent", agent)):
        if wanted is not None and wanted != state[kind]:
            raise UserError(f"checkpoint {path} is of {kind} {state[kind]!r}, not of {wanted!r}")
    return dict(state)
