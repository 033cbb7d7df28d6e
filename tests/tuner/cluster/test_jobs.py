"""Runs on a cluster that go on without us: a real Ray head on loopback, with a token."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rltune
from rltune.agents.errors import UserError
from rltune.cli import main
from rltune.cli.jobs import _checked, _replaced
from rltune.cluster.jobs import Jobs, unpack

HERE = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "submit what"),
        ("train ppo", "submit what"),
        ("run ppo --env CartPole-v1 --storage-path runs", "--storage-path has to be a path"),
        ("run ppo --env CartPole-v9 --storage-path /x", "write 'CartPole-v1'"),
        ("run ppo --env CartPole-v1 --storage-path /x --gama 1 2", "gama"),
        ("run ppo --env CartPole-v1 --storage-path /x --address auto", "--address stands before"),
        ("run ppo --space ../s.yaml --env toy:ToyEnv --storage-path /x", "lies outside of"),
        ("run ppo --env CartPole-v1 --storage-path s3://k:s@bucket/x", "must not hold a key"),
        ("resume runs/mine", "the run has to be a path on the cluster"),
    ],
)
def test_mistakes_get_a_sentence_before_anything_is_sent(
    words: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "s.yaml").write_text("space: {gamma: {uniform: [0.9, 0.99]}}\nbudget: 100\n")
    (tmp_path / "code").mkdir()
    shutil.copy(HERE / "toy.py", tmp_path / "code")
    monkeypatch.chdir(tmp_path / "code")
    assert main(["submit", *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_the_space_alone_says_what_to_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, run, folder = _checked("run --space search_spaces/sac.yaml --gamma 0.9 0.99".split())
    assert words[:6] == "run --space search_spaces/sac.yaml --gamma 0.9 0.99".split()
    assert "/sac-Pendulum-v1-" in run
    assert folder is None


def test_a_flag_gets_another_value() -> None:
    assert _replaced(["run", "--space", "a/b.yaml", "-x"], "--space", "b.yaml") == [
        "run", "--space", "b.yaml", "-x",
    ]  # fmt: skip
    assert _replaced(["run", "--space=a/b.yaml"], "--space", "b.yaml") == ["run", "--space=b.yaml"]


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """The address of a head's dashboard; its token is in the environment."""
    pytest.importorskip("aiohttp")
    folder = tempfile.mkdtemp(prefix="rl-", dir="/tmp")  # short: sockets lie in it
    ports = [unused_port() for _ in range(2)]
    words = ["--head", "--block", f"--port={ports[0]}", f"--dashboard-port={ports[1]}"]
    words += ["--dashboard-host=127.0.0.1", "--num-cpus=2", "--object-store-memory=100000000"]
    words += ["--disable-usage-stats", f"--temp-dir={folder}"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("HOME", f"{folder}/home")
        importlib.import_module("ray._raylet").AuthenticationTokenLoader.instance().reset_cache()
        process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", *words],
            env={**os.environ, "PATH": path},
            stdout=subprocess.DEVNULL,
        )
        address = f"http://127.0.0.1:{ports[1]}"
        patch.setenv("RAY_API_SERVER_ADDRESS", address)
        try:
            wait_until_up(address)
            yield address
        finally:
            process.terminate()
            process.wait(60)
            shutil.rmtree(folder, ignore_errors=True)
    importlib.import_module("ray._raylet").AuthenticationTokenLoader.instance().reset_cache()


def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_until_up(address: str) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            Jobs(address)
            return
        except rltune.UserError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


@pytest.mark.slow
def test_a_search_is_sent_asked_stopped_sent_again_and_fetched(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shared = tmp_path / "code", tmp_path / "shared"
    code.mkdir()
    shutil.copy(HERE / "toy.py", code)
    space = "budget: 900\nspace: {quality: {uniform: [0.0, 1.0]}}\nfixed: {sleep: 0.1}\n"
    (code / "s.yaml").write_text(space)
    monkeypatch.chdir(code)
    search = "run toy:ToyAgent --env toy:ToyEnv --space s.yaml --trials 12 --wandb off --no-report"
    search += f" --no-tournament --name mine --storage-path {shared}"

    def said(*words: str, code: int = 0) -> str:
        assert main(list(words)) == code, capsys.readouterr()
        return capsys.readouterr().out

    assert "Nothing was submitted" in said("status")
    assert f"its run will be {shared}/mine" in said("submit", *search.split())
    until = time.monotonic() + 120
    while "finished" not in said("logs", "mine") and "stopped at" not in said("logs", "mine"):
        assert time.monotonic() < until
        time.sleep(0.5)
    assert re.match(r"mine +running +\d+:\d\d +", said("status"))
    assert "running · " in said("status", "mine")
    fetched = tmp_path / "early"
    assert said("fetch", "mine", "--storage-path", str(fetched)).strip() == str(fetched / "mine")
    assert 0 < len(rltune.open(fetched / "mine").trials()) <= 12
    said("stop", "mine", "--address", head)
    said("logs", "mine", "--follow", code=130)
    assert len(rltune.open(shared / "mine").trials()) < 12

    resume = ["--own-code", "resume", "mine", "--no-report"]
    assert said("submit", *resume).startswith("mine-2 ")
    log = said("logs", "mine", "-f")
    assert "rltune  toy:ToyAgent on toy:ToyEnv  mine" in log
    states = [line.split()[:2] for line in said("status").splitlines() if line[0] != " "]
    assert states == [["mine", "failed"], ["mine-2", "succeeded"]]
    whole = tmp_path / "late"
    said("fetch", "mine", "--storage-path", str(whole))
    trials = rltune.open(whole / "mine").trials()
    assert len(trials) == 12
    assert set(trials["state"]) <= {"COMPLETE", "PRUNED"}


@pytest.mark.slow
def test_a_run_that_is_copied_to_a_storage_outlives_the_head(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = (tmp_path / "far").as_uri()
    search = "run a2c --env CartPole-v1 --trials 2 --budget 500 --wandb off --no-report"
    search += f" --no-tournament --name far --storage-path {storage}"
    assert main(["submit", *search.split()]) == 0
    assert "its run will be ~/runs/far" in capsys.readouterr().out
    assert main(["logs", "far", "--follow"]) == 0
    assert main(["status", "far"]) == 0
    assert "finished" in capsys.readouterr().out
    shutil.rmtree(Path.home() / "runs")  # with the head's disk
    assert main(["submit", "resume", f"{storage}/far", "--no-report"]) == 0
    assert main(["logs", "far-2", "--follow"]) == 0
    assert main(["fetch", "far"]) == 0
    assert len(rltune.open("far").trials()) == 2


def test_a_run_that_holds_a_file_twice_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_text("same")
    (tmp_path / "run" / "b").hardlink_to(tmp_path / "run" / "a")
    with tarfile.open(tmp_path / "sent.tar", "w") as files:
        files.add(tmp_path / "run", arcname=".")
    (tmp_path / "runs").mkdir()
    with tarfile.open(tmp_path / "sent.tar") as files:
        assert {member.type for member in files} >= {tarfile.LNKTYPE}
        unpack(files, tmp_path / "runs")
    assert [(tmp_path / "runs" / name).read_text() for name in "ab"] == ["same", "same"]


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize("sent", ["run/run.yaml", "../run.yaml", "/run.yaml", "link", "hard link"])
def test_a_fetched_run_stays_in_its_folder(
    sent: str, filters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not filters:  # as in Python 3.11.3
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    member = tarfile.TarInfo(sent)
    (tmp_path / "secret").touch()
    if sent == "link":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
    if sent == "hard link":
        member.type, member.linkname = tarfile.LNKTYPE, "../secret"
    with tarfile.open(tmp_path / "sent.tar", "w") as files:
        files.addfile(member)
    folder = tmp_path / "runs"
    folder.mkdir()
    with tarfile.open(tmp_path / "sent.tar") as files:
        if sent == "run/run.yaml":
            unpack(files, folder)
        else:
            with pytest.raises(UserError, match="which a run does not hold"):
                unpack(files, folder)
    assert [path.name for path in folder.rglob("*.yaml")] == ["run.yaml"] * (sent[0] == "r")
    assert not (tmp_path / "run.yaml").exists()


@pytest.mark.slow
def test_what_is_not_there_is_said(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["logs", "none"]) == 2
    assert "there is no job of a run 'none'" in capsys.readouterr().err
    assert main(["fetch", "/none", "--storage-path", str(tmp_path)]) == 2
    assert "the cluster can't give /none: no run '/none'" in capsys.readouterr().err
    assert main(["status", "--address", f"http://127.0.0.1:{unused_port()}"]) == 2
    assert "no Ray dashboard answers" in capsys.readouterr().err
    assert main(["status", "--address", "ray://somewhere"]) == 2
    assert "is no address of a Ray dashboard" in capsys.readouterr().err
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
    importlib.import_module("ray._raylet").AuthenticationTokenLoader.instance().reset_cache()
    assert main(["status"]) == 2
    assert "refuses this machine" in capsys.readouterr().err
