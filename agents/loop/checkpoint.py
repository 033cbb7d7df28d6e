"""Checkpoint files: one dictionary of tensors and plain Python, written atomically."""

from __future__ import annotations

import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rltune.agents.config import config_dict
from rltune.agents.errors import UserError, storage_error
from rltune.agents.loop.controls import Controls
from rltune.agents.registry import canonical

FORMAT = "rltune-agent"
POLICY_FORMAT = "rltune-policy"  # of `rltune.agents.loop.saved_policy`
VERSION = 1
HEAD = {"version": int, "agent": str, "env": str, "extra": dict}


_flush_by: list[Callable[[Callable[[], None]], None]] = []  # the last one counts


@contextmanager
def flushed_by(run: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Hand the slow half of `write` to ``run`` meanwhile: to wait for the disk, and to rename.

    Until that is done, a reader sees the old file. It may raise what `write` raises.
    """
    _flush_by.append(run)
    try:
        yield
    finally:
        _flush_by.pop()


def write(path: str | Path, state: dict[str, Any]) -> None:
    """Write ``state`` to ``path``: a reader sees the old file or the new one, never a part.

    Raises:
        StorageError: the folder can't be written to, or the disk is full.
    """
    path = Path(path)
    with _storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # A writer that was killed is told by its process (`rltune.common.files`).
        ending = f".{os.getpid()}.tmp"
        handle, temporary = tempfile.mkstemp(ending, f".{path.name}.", path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save({"format": FORMAT, "version": VERSION, **state}, file)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    if _flush_by:
        _flush_by[-1](lambda: _flush(temporary, path))
    else:
        _flush(temporary, path)


def _flush(temporary: str, path: Path) -> None:
    """Wait until the disk has the file, then put it in place."""
    with _storage_errors(path):
        try:
            handle = os.open(temporary, os.O_RDWR)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
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
    return checked(plain(path), path, env=env, agent=agent)


def checked(
    state: Any, path: Path, *, env: str | None = None, agent: str | None = None
) -> dict[str, Any]:
    """Return the content of a file, if it is a checkpoint's; see `read`."""
    if isinstance(state, dict) and state.get("format") == POLICY_FORMAT:
        raise UserError(
            f"{path} is a saved policy, which can only act; name the run or the checkpoint that it "
            "comes from"
        )
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of rltune")
    for name, of_type in HEAD.items():
        if not isinstance(state.get(name), of_type):
            raise UserError(f"checkpoint {path} is damaged: {name} can't be what it says")
    if state["version"] > VERSION:
        raise UserError(
            f"checkpoint {path} is of format {state['version']}, newer than this rltune reads "
            f"({VERSION}); upgrade rltune"
        )
    found: dict[str, Any] = {**state, "agent": canonical(state["agent"])}
    for kind, wanted in (("env", env), ("agent", agent)):
        if wanted is not None and wanted != found[kind]:
            raise UserError(f"checkpoint {path} is of {kind} {found[kind]!r}, not of {wanted!r}")
    return found


def about(agent: Any) -> dict[str, Any]:
    """Return the arguments that an agent was made from, ours or RLlib's, for its state."""
    return {
        "agent": agent.algorithm_spec,
        "env": agent.env,
        "env_kwargs": agent.env_kwargs,
        "config": config_dict(agent.config),
        "total_timesteps": agent.total_timesteps,
        "seed": agent.seed,
        "controls": vars(agent.controls),
        "extra": agent.extra,
    }


def setting(state: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Return the arguments of a state for an agent's constructor, but agent, env and config.

    Raises:
        UserError: it is not there, or of another type.
    """
    for name in ("config", "controls", "env_kwargs"):
        if not (
            isinstance(state.get(name), dict) and all(isinstance(key, str) for key in state[name])
        ):
            raise UserError(f"checkpoint {path} is damaged: {name} has no names with values")
    with fitting(path, state["agent"], state["env"]):
        controls = Controls(**state["controls"])
    return {
        "total_timesteps": whole(state, "total_timesteps", path),
        "seed": whole(state, "seed", path),
        "controls": controls,
        "env_kwargs": state["env_kwargs"],
    }


def members(state: dict[str, Any], path: str | Path) -> list[dict[str, Any]]:
    """Return the states of agents on several environments; nothing where it is a single agent's.

    Raises:
        UserError: they are no states.
    """
    parts = state.get("members", [])
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UserError(f"checkpoint {path} is damaged: it has not an agent of each environment")
    return parts


def whole(state: dict[str, Any], name: str, path: str | Path) -> int:
    """Return a number of a state that is 0 or more; UserError: it is none."""
    value = state.get(name)
    if not isinstance(value, int) or value < 0:
        raise UserError(f"checkpoint {path} is damaged: {name} can't be {value!r:.60}")
    return value


@contextmanager
def fitting(path: str | Path, agent: object, env: object) -> Iterator[None]:
    """Turn whatever goes wrong in taking over a state into a UserError: it is not of this agent."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0][:200]
        raise UserError(
            f"checkpoint {path} does not fit agent {agent!r} on {env!r}: "
            f"{said or type(error).__name__}"
        ) from error


def plain(path: Path) -> Any:
    """Return the content of the file: tensors and plain Python, whatever its pickle asks for.

    Raises:
        UserError: it can't be read, or is not of that kind.
    """
    if not path.is_file():
        raise UserError(f"checkpoint {path} does not exist")
    try:
        with zipfile.ZipFile(path) as file:
            # PyTorch stores without compression; a few compressed bytes could fill the memory.
            size = sum(part.file_size for part in file.infolist())
        if size > path.stat().st_size:
            raise UserError(f"{path} is not a checkpoint of rltune: its parts are too large")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd pickles
            return torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"checkpoint {path} can't be read: {error.strerror or error}") from error
    except Exception as error:  # whatever a damaged pickle leads to
        raise UserError(f"{path} is not a checkpoint of rltune") from error
