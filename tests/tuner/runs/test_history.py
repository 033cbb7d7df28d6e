"""Histories: every acknowledged row once, whatever was killed when; few files; a growing schema."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from rltune.agents.errors import StorageError
from rltune.runs import history
from rltune.runs.history import HistoryWriter, read_episodes, read_history

from tests.parameters import quick


def row(trial, iteration, seed=0, **more):
    about = {"trial": trial, "seed": seed, "role": "tune", "iteration": iteration}
    return {**about, "env_steps": iteration * 100, "timestamp": 1.5, **more}


def episodes(count):
    return [
        {"env_steps": i, "episode_return": 1.0, "length": 9, "timestamp": 2.5} for i in range(count)
    ]


@pytest.fixture
def small(monkeypatch):
    """Parts of three rows, three of which become a larger one."""
    monkeypatch.setattr(history, "JOURNAL_ROWS", 3)
    monkeypatch.setattr(history, "MERGE", 3)
    monkeypatch.setattr(history, "LARGEST", 27)


def keys(frame):
    return list(zip(frame["trial"], frame["seed"], frame["iteration"], strict=True))


def test_rows_come_back_sorted_with_their_episodes(tmp_path, small):
    writer = HistoryWriter(tmp_path)
    for iteration in range(1, 8):
        for trial in (1, 0):
            writer.append(row(trial, iteration, loss=0.5), episodes(trial))
    frame = read_history(tmp_path)
    assert keys(frame) == [(trial, 0, i) for trial in (0, 1) for i in range(1, 8)]
    assert list(frame["step"]) == list(frame["env_steps"])
    assert set(frame["loss"]) == {0.5}
    found = read_episodes(tmp_path)
    assert keys(found) == [(1, 0, i) for i in range(1, 8)]
    assert set(found["role"]) == {"tune"}


def test_before_the_first_row(tmp_path):
    assert len(read_history(tmp_path)) == len(read_episodes(tmp_path)) == 0
    HistoryWriter(tmp_path).close()
    frame = read_history(tmp_path)
    assert {"trial", "mean_reward", "best_reward", "episode_reward", "step", "time"} <= set(frame)
    assert frame["trial"].dtype == np.int64
    assert frame["eval_return"].dtype == np.float64
    assert "episode_return" in read_episodes(tmp_path)


def test_a_row_is_there_as_soon_as_append_returns(tmp_path):
    writer = HistoryWriter(tmp_path)
    for iteration in (1, 2):
        writer.append(row(0, iteration), episodes(2))
        assert len(read_history(tmp_path)) == iteration
        assert len(read_episodes(tmp_path)) == 2 * iteration


def test_the_schema_grows_and_types_hold(tmp_path, small):
    writer = HistoryWriter(tmp_path)
    writer.append(row(0, 1, eval_return=None, loss=1))
    writer.append(row(0, 2, eval_return=3, loss=np.float32(0.5), mean_reward=np.int64(7)))
    writer.append(row(0, 3, loss=float("nan"), flag=True))
    writer.append(row(0, 4, new_metric=2, loss=float("inf")))
    with pytest.warns(UserWarning, match="'loss' is no number"):
        writer.append(row(0, 5, loss="bad", new_metric=None))
    for frame in (read_history(tmp_path), writer.close() or read_history(tmp_path)):
        assert frame["loss"].tolist()[:2] == [1.0, 0.5]
        assert frame["loss"].isna().tolist() == [False, False, True, False, True]
        assert frame["new_metric"].tolist()[3] == 2.0
        floats = ("eval_return", "loss", "new_metric", "flag", "mean_reward", "best_reward")
        assert {frame[name].dtype for name in floats} == {np.dtype(float)}
        assert {frame[n].dtype for n in ("trial", "iteration", "step")} == {np.dtype(int)}


def test_a_trial_that_starts_again_supersedes_its_later_rows(tmp_path, small):
    writer = HistoryWriter(tmp_path)
    for iteration in range(1, 9):
        for trial in (0, 1):
            writer.append(row(trial, iteration, version=1), episodes(1))
    writer.rewind(0, 0, 5)
    assert writer.last_iteration(0, 0) == 5
    writer.append(row(0, 6, version=2), episodes(3))
    for repeat in range(3):
        if repeat == 1:
            writer.close()
        if repeat == 2:
            writer = HistoryWriter(tmp_path)
            assert (writer.last_iteration(0, 0), writer.last_iteration(1, 0)) == (6, 8)
        frame = read_history(tmp_path)
        assert keys(frame) == [(0, 0, i) for i in range(1, 7)] + [(1, 0, i) for i in range(1, 9)]
        assert frame["version"].tolist() == [1.0] * 5 + [2.0] + [1.0] * 8
        assert Counter(keys(read_episodes(tmp_path)))[0, 0, 6] == 3
        assert len(read_episodes(tmp_path)) == 5 + 3 + 8


def test_repeated_iterations_need_no_rewind(tmp_path):
    """A new driver goes on from a checkpoint that is older than the last row."""
    writer = HistoryWriter(tmp_path)
    for iteration in (1, 2, 3):
        writer.append(row(0, iteration, version=1), episodes(1))
    del writer  # killed
    writer = HistoryWriter(tmp_path)
    writer.append(row(0, 2, version=2), episodes(1))
    assert read_history(tmp_path)["version"].tolist() == [1.0, 2.0]
    writer.append(row(0, 1, version=3), episodes(1))
    assert read_history(tmp_path)["version"].tolist() == [3.0]
    assert len(read_episodes(tmp_path)) == 1


def test_there_are_never_many_files(tmp_path, small):
    writer = HistoryWriter(tmp_path)
    most = 0
    for iteration in range(1, 251):
        writer.append(row(0, iteration), episodes(1))
        most = max(most, len(os.listdir(tmp_path / "history")))
    assert most <= 3 * 3 + 250 // 3 // 27 + 2
    assert len(read_history(tmp_path)) == len(read_episodes(tmp_path)) == 250
    writer.close()
    assert len(os.listdir(tmp_path / "history")) == len(os.listdir(tmp_path / "episodes")) == 1


def test_pandas_reads_the_folders_themselves(tmp_path, small):
    writer = HistoryWriter(tmp_path)
    for iteration in range(1, 8):
        writer.append(row(0, iteration), episodes(2))
    (tmp_path / "history" / ".part-00000009-00000009.parquet.1.tmp").write_bytes(b"half")
    assert pd.read_parquet(tmp_path / "history")["iteration"].tolist() == [1, 2, 3, 4, 5, 6]
    writer.close()
    assert pd.read_parquet(tmp_path / "history")["iteration"].tolist() == list(range(1, 8))
    assert len(pd.read_parquet(tmp_path / "episodes")) == 14


def test_leftovers_of_a_killed_compaction_double_nothing(tmp_path, small):
    writer = HistoryWriter(tmp_path)
    saved = {}
    for iteration in range(1, 31):
        writer.append(row(0, iteration), episodes(2))
        for folder in ("history", "episodes"):
            for file in (tmp_path / folder).iterdir():
                saved.setdefault(file, file.read_bytes())
    writer.close()
    for file, content in saved.items():  # whatever existed at some time is there again
        if not file.exists():
            file.write_bytes(content)
    for name in ("history", "episodes"):
        (tmp_path / name / ".part-00000000-00000002.parquet.99.tmp").write_bytes(b"half")
    assert len(os.listdir(tmp_path / "history")) > 12
    assert keys(read_history(tmp_path)) == [(0, 0, i) for i in range(1, 31)]
    assert len(read_episodes(tmp_path)) == 60
    writer = HistoryWriter(tmp_path)
    assert len(os.listdir(tmp_path / "history")) == 1
    writer.append(row(0, 31))
    assert len(read_history(tmp_path)) == 31


def test_episodes_of_a_torn_line_never_count(tmp_path):
    writer = HistoryWriter(tmp_path)
    writer.append(row(0, 1), episodes(2))
    journal = next((tmp_path / "history").glob("_journal-*"))
    line = journal.read_bytes()
    journal.write_bytes(line + line[: len(line) // 2])
    assert (len(read_history(tmp_path)), len(read_episodes(tmp_path))) == (1, 2)
    writer = HistoryWriter(tmp_path)
    writer.append(row(0, 2), episodes(3))
    assert (len(read_history(tmp_path)), len(read_episodes(tmp_path))) == (2, 5)


# -------------------------------------------------------------------------------- killed at will

# Forks a writer, kills it after a moment, prints what it had acknowledged, waits for the check.
KILLED = """
import json, os, random, signal, sys, time
import pandas, pyarrow.acero, pyarrow.dataset  # or every fork would import them
from rltune.runs import history
history.JOURNAL_ROWS, history.MERGE, history.LARGEST = 5, 3, 27
path, seed = sys.argv[1:]
rng = random.Random(int(seed))

def write(generation, pipe):
    rng = random.Random(f"{seed} {generation}")
    writer = history.HistoryWriter(path)
    trials = {t: writer.last_iteration(t, 0) for t in range(3)}
    for trial, last in trials.items():
        trials[trial] = max(0, last - rng.randrange(3))
        if rng.random() < 0.5:
            writer.rewind(trial, 0, trials[trial])
    while True:
        trial = rng.randrange(3)
        trials[trial] += 1
        about = {"trial": trial, "seed": 0, "iteration": trials[trial], "env_steps": 1}
        episode = {"env_steps": 1, "length": 2, "episode_return": float(generation)}
        writer.append({**about, "writer": generation}, [episode] * (trials[trial] % 4))
        os.write(pipe, json.dumps([trial, trials[trial], generation]).encode() + b"\\n")
        if rng.random() < 0.01:
            writer.compact()

for generation in range(30):
    read, pipe = os.pipe()
    child = os.fork()
    if not child:
        write(generation, pipe)
    os.close(pipe)
    with open(read) as acknowledged:
        wanted = rng.randrange(60) if generation % 3 else 0  # or killed while it recovers
        lines = [acknowledged.readline() for _ in range(wanted)]
        time.sleep(rng.uniform(0.0, 0.005 if wanted else 0.1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += acknowledged
    print(json.dumps([json.loads(line) for line in lines]), flush=True)
    input()
"""


def test_killed_at_any_moment_no_row_is_missing_or_doubled(tmp_path):
    seed = random.randrange(10**6)
    print("seed", seed)
    # trial -> iteration -> the writer whose row has to be there
    expected: dict[int, dict[int, int]] = defaultdict(dict)
    rows = 0
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(seed)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for generation, acknowledged in enumerate(map(json.loads, writer.stdout)):
            for trial, iteration, _ in acknowledged:
                put(expected[trial], iteration, generation)
            rows += len(acknowledged)
            check(tmp_path, expected, generation)
            writer.stdin.write("\n")
            writer.stdin.flush()
    assert writer.returncode == 0
    assert rows > 300


def put(of_trial, iteration, generation):
    of_trial[iteration] = generation
    for later in [i for i in of_trial if i > iteration]:
        del of_trial[later]


def check(path, expected, generation):
    frame, ended = read_history(path), read_episodes(path)
    frame["writer"] = frame.get("writer")
    assert not frame.duplicated(["trial", "seed", "iteration"]).any()
    unacknowledged = 0
    for trial in range(3):
        mine = frame[frame["trial"] == trial].set_index("iteration")["writer"].to_dict()
        if mine != expected[trial]:  # the row that was on its way is there too
            unacknowledged += 1
            put(expected[trial], max(mine), generation)
        assert mine == expected[trial]
        assert list(mine) == list(range(1, len(mine) + 1))
        found = ended[ended["trial"] == trial]
        assert Counter(found["iteration"]) == {i: i % 4 for i in mine if i % 4}
        assert found["episode_return"].tolist() == [mine[i] for i in found["iteration"]]
    assert unacknowledged <= 1
    if list((path / "history").glob("part-*")):
        assert set(pd.read_parquet(path / "history")["trial"]) <= set(frame["trial"])


WRITING = """
import sys, time
from rltune.runs import history
history.JOURNAL_ROWS, history.MERGE, history.LARGEST = 2, 3, 27
writer, iteration, end = history.HistoryWriter(sys.argv[1]), 0, time.time() + 1
while time.time() < end:
    iteration += 1
    about = {"trial": 0, "seed": 0, "iteration": iteration, "env_steps": 1}
    writer.append(about, [{"env_steps": 1, "length": 1}] * 2)
    if iteration % 50 == 0:
        writer.compact()
"""


def test_a_reader_beside_a_busy_writer_sees_no_gap(tmp_path):
    before, reads = 0, 0
    with subprocess.Popen([sys.executable, "-c", WRITING, str(tmp_path)]) as writer:
        while writer.poll() is None:
            frame = read_history(tmp_path)
            assert frame["iteration"].tolist() == list(range(1, len(frame) + 1))
            assert len(frame) >= before
            count = Counter(read_episodes(tmp_path)["iteration"])
            assert set(count.values()) <= {2}
            assert len(count) >= len(frame)
            before, reads = len(frame), reads + 1
    assert writer.returncode == 0
    assert before > 20
    assert reads > 5


# -------------------------------------------------------------------------------- full disk, speed


def fill(ballast):
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_said_and_survived(small_disk, small):
    writer = HistoryWriter(small_disk)
    for iteration in range(1, 6):
        writer.append(row(0, iteration), episodes(1))
    ballast = small_disk / "ballast"
    fill(ballast)
    acknowledged = 5
    with contextlib.suppress(StorageError):
        for iteration in range(6, 2000):
            writer.append(row(0, iteration), episodes(1))
            acknowledged = iteration
    for again in range(2):
        with pytest.raises(StorageError, match="disk is full"):
            writer.append(row(0, acknowledged + 1), episodes(500 + again))
    assert read_history(small_disk)["iteration"].tolist() == list(range(1, acknowledged + 1))
    writer.close()
    assert len(read_episodes(small_disk)) == acknowledged
    with pytest.raises(StorageError, match="disk is full"):
        HistoryWriter(small_disk).append(row(0, acknowledged + 1), episodes(500))
    ballast.unlink()
    writer = HistoryWriter(small_disk)
    for iteration in range(acknowledged + 1, acknowledged + 8):
        writer.append(row(0, iteration), episodes(1))
    writer.close()
    assert read_history(small_disk)["iteration"].tolist() == list(range(1, acknowledged + 8))
    assert len(read_episodes(small_disk)) == acknowledged + 7
    assert [name for name in os.listdir(small_disk / "history") if name.startswith(".")] == []


def test_appends_resume_in_the_same_writer(small_disk):
    writer = HistoryWriter(small_disk)
    writer.append(row(0, 1), episodes(1))
    with pytest.raises(StorageError):
        writer.append(row(0, 2), episodes(10_000))
    writer.append(row(0, 2), episodes(3))
    assert read_history(small_disk)["iteration"].tolist() == [1, 2]
    assert len(read_episodes(small_disk)) == 4


def test_a_row_costs_far_less_than_two_milliseconds(tmp_path):
    writer = HistoryWriter(tmp_path)
    metrics = {f"metric_{i}": 0.1 * i for i in range(12)}
    seconds = []
    for iteration in range(1, 601):
        start = time.perf_counter()
        writer.append(row(0, iteration, **metrics), episodes(3))
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 2e-3


def test_two_hundred_thousand_rows_are_read_in_about_a_second(tmp_path):
    count = 200_000
    index = np.arange(count)
    columns = {
        **{"trial": index // 100, "seed": index * 0, "iteration": index % 100 + 1},
        **{"env_steps": index, "step": index, "attempt": index * 0},
        **{f"metric_{i}": np.random.default_rng(i).random(count) for i in range(20)},
    }
    table = pd.DataFrame(columns)
    (tmp_path / "history").mkdir()
    for part in range(13):
        rows = table[part::13]
        name = f"part-{part * 256:08d}-{part * 256 + 255:08d}.parquet"
        pq.write_table(history.pa.Table.from_pandas(rows), tmp_path / "history" / name)
    writer = HistoryWriter(tmp_path)
    writer.append(row(1999, 50))  # one that supersedes: the slower way
    start = time.process_time()
    frame = read_history(tmp_path)
    assert len(frame) == count - 50
    assert time.process_time() - start < 3


@pytest.mark.parametrize("back", quick([0], [0, 2]))
def test_whatever_write_fails_no_row_and_no_episode_is_lost_or_doubled(
    tmp_path, small, monkeypatch, back
):
    """Every write fails once, with half of it on the disk; the search ends and is resumed."""
    write, replace, write_table = os.write, os.replace, pq.write_table
    calls, fails_at = 0, 0

    def fails():
        nonlocal calls
        calls += 1
        return calls == fails_at

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    def failing_write(handle, data):
        return full() if fails() and write(handle, data[:9]) else write(handle, data)

    def failing_table(table, path):
        return full() if fails() and path.write_bytes(b"PAR1") else write_table(table, path)

    monkeypatch.setattr(history.os, "write", failing_write)
    monkeypatch.setattr(history.pq, "write_table", failing_table)
    monkeypatch.setattr(os, "replace", lambda *a: full() if fails() else replace(*a))
    wanted = [(trial, 0, i) for trial in (0, 1) for i in range(1, 8)]
    while calls >= fails_at:
        calls, fails_at = 0, fails_at + 1
        run = tmp_path / str(fails_at)
        while True:
            with contextlib.suppress(StorageError):
                writer = HistoryWriter(run)
                for trial in (0, 1):  # from a checkpoint that may be older
                    writer.rewind(trial, 0, max(0, writer.last_iteration(trial, 0) - back))
                for iteration in range(1, 8):
                    for trial in (0, 1):
                        if iteration > writer.last_iteration(trial, 0):
                            writer.append(row(trial, iteration), episodes(2))
                writer.close()
                break
            writer.close()
        writer = HistoryWriter(run)
        writer.close()
        assert keys(read_history(run)) == wanted
        assert Counter(keys(read_episodes(run))) == dict.fromkeys(wanted, 2)
        assert len(pd.read_parquet(run / "episodes")) == 2 * len(wanted)
    assert fails_at > 20
