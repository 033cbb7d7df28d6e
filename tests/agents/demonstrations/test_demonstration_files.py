"""Files of demonstrations: what is written is read back, and nothing else is taken for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from random_demonstrations import SPACES, demonstrations
from rltune.agents.demonstrations.files import KEY, read, write
from rltune.agents.errors import StorageError, UserError


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("shape", [(4,), (1, 6, 5)])
def test_what_is_written_is_read_back(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    given, file = demonstrations(kind, shape), tmp_path / "demos.parquet"
    write(given, file, "--record")
    found = read(file)
    assert replace(found, episodes=()) == replace(given, episodes=())
    assert found.steps == 11
    for ours, theirs in zip(found.episodes, given.episodes, strict=True):
        for name in ("obs", "actions", "rewards"):
            a, b = getattr(ours, name), getattr(theirs, name)
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        assert ours.terminated == theirs.terminated
        assert ours.episode_return == pytest.approx(theirs.rewards.sum())


def test_nothing_is_left_of_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file")
    with pytest.raises(StorageError, match=r"cannot write .*; choose another --record"):
        write(demonstrations(), tmp_path / "there" / "demos.parquet", "--record")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_foreign_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(UserError, match="there is no file"):
        read(tmp_path)
    (tmp_path / "text").write_text("episode,step")
    with pytest.raises(UserError, match=r"text has no demonstrations, or is damaged: "):
        read(tmp_path / "text")
    pq.write_table(pa.table({"episode": [0]}), tmp_path / "foreign.parquet")
    with pytest.raises(UserError, match=r"foreign.parquet has no demonstrations as rltune writes"):
        read(tmp_path / "foreign.parquet")


def change(file: Path, about: dict[str, Any] | None = None, **columns: Any) -> None:
    table = pq.read_table(file)
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    known = json.loads(table.schema.metadata[KEY])
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(known | (about or {}))}), file)


def test_damaged_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "demos.parquet"
    write(demonstrations(), file, "--record")
    table = pq.read_table(file)
    step, reward = table["step"].to_pylist(), table["reward"].to_pylist()
    action = table["action"].to_pylist()
    for message, changes in {
        "rows of episode 1 are missing": {"step": [0, 1, 0, 2, 2, *step[5:]]},
        "rows of episode 0 are missing": {"episode": [4] * len(step)},
        "episode 0 has numbers that are not finite": {"reward": [np.inf, *reward[1:]]},
        "actions that the environment does not have": {"action": [[3], *action[1:]]},
        "newer rltune": {"about": {"version": 2}},
        "observations of object": {"about": {"obs": {"shape": [4], "dtype": "object"}}},
        "damaged": {"about": {"obs": {"shape": [5], "dtype": "float32"}}},
        "more numbers than": {"about": {"obs": {"shape": [10**9], "dtype": "float32"}}},
        "or is damaged": {"about": {"actions": None}},
    }.items():
        write(demonstrations(), file, "--record")
        change(file, **changes)
        with pytest.raises(UserError, match=message):
            read(file)
    write(demonstrations(), file, "--record")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="damaged"):
        read(file)
