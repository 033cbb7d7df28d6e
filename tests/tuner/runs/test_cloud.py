"""Runs that are copied to cloud storage: a real S3 server on loopback, and a folder."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import rltune
from pyarrow.fs import FileSystem
from rltune.agents.errors import StorageError, UserError
from rltune.cli import main
from rltune.runs import cloud
from rltune.runs.cloud import Mirror, Remote, below, fetch, is_uri
from searching import check_history, search


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start moto's S3 and return the URI of a bucket without the query, which holds the address."""
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"127.0.0.1%3A{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A storage of each kind."""
    monkeypatch.setattr(cloud, "EVERY", 0.0)
    if request.param == "folder":
        return (tmp_path / "far").as_uri()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    address = request.getfixturevalue("server")
    where = f"s3://bucket-{os.getpid()}-{abs(hash(tmp_path)) % 10**6}/runs"
    uri = f"{where}?scheme=http&endpoint_override={address}&allow_bucket_creation=true"
    system, path = FileSystem.from_uri(uri)
    system.create_dir(path)
    return uri


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a run that don't differ between a database and its copy."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {n: b for n, b in names.items() if "study.db" not in n and "/." not in f"/{n}"}


@pytest.mark.usefixtures("no_ray")
def test_a_search_lies_on_the_storage_and_can_be_fetched(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "STORAGE", str(tmp_path / "runs"))
    result = search(storage, trials=4, test_seeds=1)
    assert result.path == tmp_path / "runs" / "run"
    assert not list(result.path.glob(".mirror*"))
    copy = fetch(below(storage, "run"), tmp_path / "fetched")
    assert contents(copy) == contents(result.path)
    pd.testing.assert_frame_equal(rltune.open(copy).trials(), result.trials())
    check_history(rltune.open(copy).history())
    with pytest.raises(UserError, match="is here already"):
        fetch(below(storage, "run"), tmp_path / "fetched")
    assert main(["show", below(storage, "run")]) == 2


@pytest.mark.usefixtures("no_ray")
def test_a_search_whose_machine_is_lost_goes_on_elsewhere(
    tmp_path: Path,
    storage: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every state that was ever copied gives, resumed, the decisions of the undisturbed search."""
    options: dict[str, Any] = {"trials": 6, "test_seeds": 1}
    whole = search(tmp_path / "whole", **options)
    monkeypatch.setattr(cloud, "STORAGE", str(tmp_path / "runs"))
    copies = tmp_path / "copies"
    take = Mirror._try
    taken: list[Path] = []

    def watched(self: Mirror, snapshot: Path) -> None:
        take(self, snapshot)
        if len(taken) < 40:
            taken.append(fetch(below(storage, "run"), copies / str(len(taken))))

    monkeypatch.setattr(Mirror, "_try", watched)
    search(storage, **options)
    assert len(taken) >= 2
    columns = ["trial", "state", "hash", "objective", "budget_reached", "rung"]
    for copy in (taken[0], taken[len(taken) // 2], taken[-1]):
        with open(copy / "run.yaml") as file:  # it is driven from here now
            text = file.read()
        (copy / "run.yaml").write_text(text.replace("\nmirror:", "\nonce:"))
        found = rltune.resume(copy, screen="none")
        pd.testing.assert_frame_equal(found.trials()[columns], whole.trials()[columns])
        check_history(found.history())


def test_a_storage_that_is_away_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "EVERY", 0.0)
    monkeypatch.setattr(cloud, "PATIENCE", 20.0)
    run, far, warnings = tmp_path / "run", tmp_path / "far", []
    run.mkdir()
    (run / "run.yaml").write_text("format_version: 1")
    put, away = Remote.put, [True]

    def flaky(self: Remote, file: Path, name: str) -> None:
        if away[0]:
            raise StorageError("the storage is away")
        put(self, file, name)

    monkeypatch.setattr(Remote, "put", flaky)
    with Mirror(run, far.as_uri(), warnings.append) as copied:
        start = time.monotonic()
        copied.tick()
        assert time.monotonic() - start < 0.5
        time.sleep(0.3)
        (run / "later").write_text("more")
        away[0] = False
    assert (far / "later").read_text() == "more"
    assert [line.split(";")[0] for line in warnings] == [
        "the storage is away",
        f"{far.as_uri()} is back",
    ]


def test_what_has_gone_goes_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "EVERY", 0.0)
    run, far = tmp_path / "run", tmp_path / "far"
    run.mkdir()
    (run / "part").write_text("1")
    (run / ".hidden").write_text("1")
    with Mirror(run, far.as_uri(), print) as copied:
        copied.tick()
        deadline = time.monotonic() + 20
        while not (far / "part").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        (run / "part").unlink()
        (run / "whole").write_text("2")
    assert {path.name for path in far.iterdir()} == {"whole"}


def test_a_run_that_is_driven_elsewhere_is_not_taken(tmp_path: Path) -> None:
    far = tmp_path / "far" / "run"
    far.mkdir(parents=True)
    (far / "run.yaml").write_text("format_version: 1")
    (far / ".owner").write_text("process 1 on elsewhere")
    with pytest.raises(UserError, match="driven from another machine"):
        fetch(far.as_uri(), tmp_path, to_drive=True)
    os.utime(far / ".owner", (1, 1))
    assert fetch(far.as_uri(), tmp_path / "here", to_drive=True).name == "run"


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("nonsense://bucket/x", "can't be used"),
        ("s3://key:secret@bucket/x", "must not hold a key"),
        ("file:///proc/nowhere", "did not"),
        ("s3://", "names no bucket or folder; write s3://BUCKET/FOLDER"),
        ("gs://", "names no bucket or folder; write s3://BUCKET/FOLDER"),
        ("file:///", "names no bucket or folder"),
        ("s3:/bucket/x", "write 's3://bucket/x'"),
        ("gs:bucket", "write 'gs://bucket'"),
        pytest.param(
            "s3://bucket/x?scheme=http&endpoint_override=127.0.0.1%3A9",
            "can't be listed|did not",
            marks=pytest.mark.slow,  # S3's own client tries for ten seconds
        ),
    ],
)
def test_mistakes_get_a_sentence(
    tmp_path: Path,
    uri: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    run = ["run", "ppo", "--env", "CartPole-v1", "--trials", "1", "--storage-path", uri]
    start = time.monotonic()
    assert main(run) == 2
    assert time.monotonic() - start < 30
    said = capsys.readouterr().err
    assert re.search(words, said)
    assert "secret@" not in said
    if is_uri(uri):
        assert main(["fetch", uri, "--storage-path", str(tmp_path)]) == 2


def test_a_train_is_copied_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "train ppo --env CartPole-v1 -n 600 --name one --plain --wandb off"
    assert main([*line.split(), "--storage-path", (tmp_path / "far").as_uri()]) == 0
    assert contents(tmp_path / "far" / "one") == contents(tmp_path / "runs" / "one")
