"""Files of demonstrations: Parquet with a row for each observation.

Columns: ``episode`` and ``step`` count from 0; ``obs`` has the numbers of the observation;
``action`` and ``reward`` of the step that begins there, none in an episode's last row;
``terminated`` is true in that row if the episode ended by itself. What holds for all rows stands
as JSON in the schema's metadata.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rltune.agents.demonstrations.episodes import Array, Demonstration, Demonstrations
from rltune.agents.errors import UserError
from rltune.agents.user_files import file_of_user

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b"rltune_demonstrations"
VERSION = 1
DTYPES = ("float32", "uint8")
MOST_NUMBERS = 2_000_000_000  # of the observations of a file


def write(demonstrations: Demonstrations, path: str | os.PathLike[str], flag: str) -> None:
    """Write the file, wholly or not at all.

    Args:
        demonstrations: at least one episode
        path: what the user named
        flag: where they named it

    Raises:
        StorageError: it can't be written.
    """
    import pyarrow.parquet as pq

    table = _table(demonstrations)
    with file_of_user(path, flag) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _table(demonstrations: Demonstrations) -> pa.Table:
    import pyarrow as pa

    episodes = demonstrations.episodes
    obs = np.concatenate([episode.obs for episode in episodes])
    rows = [len(episode) + 1 for episode in episodes]
    actions: list[Any] = []
    rewards: list[float | None] = []
    ends: list[bool] = []
    for episode in episodes:
        actions += [*episode.actions.reshape(len(episode), -1).tolist(), None]
        rewards += [*episode.rewards.tolist(), None]
        ends += [*[False] * len(episode), episode.terminated]
    whole = "choices" in demonstrations.actions
    about = {
        "version": VERSION,
        "env": demonstrations.env,
        "env_kwargs": demonstrations.env_kwargs,
        "view": demonstrations.view,
        "actions": demonstrations.actions,
        "source": demonstrations.source,
        "obs": {"shape": list(obs.shape[1:]), "dtype": obs.dtype.name},
    }
    size = math.prod(obs.shape[1:])
    flat = pa.array(obs.reshape(-1))
    columns = {
        "episode": np.repeat(np.arange(len(rows), dtype=np.int32), rows),
        "step": np.concatenate([np.arange(n, dtype=np.int32) for n in rows]),
        "obs": pa.FixedSizeListArray.from_arrays(flat, size),
        "action": pa.array(actions, pa.list_(pa.int64() if whole else pa.float32())),
        "reward": pa.array(rewards, pa.float64()),
        "terminated": ends,
    }
    return pa.table(columns).replace_schema_metadata({KEY: json.dumps(about).encode()})


def read(path: str | os.PathLike[str]) -> Demonstrations:
    """Return what the file has; nothing of it is executed.

    Raises:
        UserError: there is no such file, it is none of rltune's, or it is damaged.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"there is no file {file}; rltune play RUN --record FILE makes one")
    try:
        table, about = _read(file)
        return _demonstrations(table, about)
    except (UserError, PermissionError):
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0][:200]
        raise UserError(f"{file} has no demonstrations, or is damaged: {said}") from error


def _read(file: Path) -> tuple[pa.Table, dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        found = (parquet.schema_arrow.metadata or {}).get(KEY)
        if found is None:
            raise UserError(
                f"{file} has no demonstrations as rltune writes them; make some with "
                "rltune play RUN --record FILE"
            )
        about = json.loads(found)
        if about["version"] > VERSION:
            raise UserError(f"{file} is of a newer rltune; update this one")
        if parquet.metadata.num_rows * math.prod(about["obs"]["shape"]) > MOST_NUMBERS:
            raise ValueError("more numbers than a file of demonstrations may have")
        return parquet.read(
            columns=["episode", "step", "obs", "action", "reward", "terminated"]
        ), about


def _demonstrations(table: pa.Table, about: dict[str, Any]) -> Demonstrations:
    episodes = tuple(_episodes(table, about))
    if not episodes:
        raise ValueError("it has no episode")
    return Demonstrations(
        env=str(about["env"]),
        env_kwargs=dict(about["env_kwargs"]),
        view=dict(about["view"]),
        actions=dict(about["actions"]),
        episodes=episodes,
        source=str(about["source"]),
    )


def _episodes(table: pa.Table, about: dict[str, Any]) -> Iterator[Demonstration]:
    if about["obs"]["dtype"] not in DTYPES:
        raise ValueError(f"observations of {about['obs']['dtype']}")
    shape, whole = tuple(about["obs"]["shape"]), "choices" in about["actions"]
    obs = table["obs"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    obs = obs.astype(about["obs"]["dtype"], copy=False).reshape(table.num_rows, *shape)
    number, step = (table[name].to_numpy() for name in ("episode", "step"))
    actions, rewards = table["action"].to_pylist(), table["reward"].to_numpy()
    terminated = table["terminated"].to_numpy()
    starts = np.flatnonzero(step == 0).tolist()
    for k, (first, after) in enumerate(zip(starts, [*starts[1:], len(step)], strict=True)):
        rows = after - first
        last = after - 1
        in_order = (number[first:after] == k).all() and (step[first:after] == np.arange(rows)).all()
        if not in_order or rows < 2 or actions[last] is not None:
            raise ValueError(f"rows of episode {k} are missing")
        taken = _actions(actions[first:last], about["actions"], whole)
        gained = np.asarray(rewards[first:last], np.float64)
        if not (np.isfinite(gained).all() and np.isfinite(obs[first:after]).all()):
            raise ValueError(f"episode {k} has numbers that are not finite")
        yield Demonstration(obs[first:after], taken, gained, bool(terminated[last]))


def _actions(rows: list[Any], about: dict[str, Any], whole: bool) -> Array:
    """Return the actions (T, ...) in their type; ValueError: some are none of the space's."""
    if not whole:
        found = np.array(rows, np.float32).reshape(len(rows), *about["shape"])
        if not np.isfinite(found).all():
            raise ValueError("actions that are not finite")
        return found
    chosen = np.array(rows, np.int64).reshape(len(rows), len(about["choices"]))
    if (chosen < 0).any() or (chosen >= np.array(about["choices"])).any():
        raise ValueError("actions that the environment does not have")
    return chosen[:, 0] if about["kind"] == "Discrete" else chosen
