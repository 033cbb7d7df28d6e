"""The run directory: what is recorded, what is refused, and that nothing is left half-written."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rltune.agents.errors import StorageError, UserError
from rltune.runs.directory import FORMAT_VERSION, RunDir, default_name, find_run, run_path

SPEC = {"agent": "ppo", "env": "CartPole-v1", "budget": 100_000, "learning_rate": 1e-5}


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "runs" / "mine", SPEC)


def test_run_yaml_records_who_asked_for_what_with_what(run):
    content = yaml.safe_load((run.path / "run.yaml").read_text())
    assert content["format_version"] == FORMAT_VERSION
    assert content["kind"] == "search"
    assert content["name"] == "mine"
    assert content["spec"] == SPEC
    assert isinstance(content["spec"]["learning_rate"], float)
    assert {"python", "rltune", "torch", "ray", "optuna", "gymnasium"} <= set(content["versions"])
    assert content["machine"]["cores"] >= 1
    assert content["command"]


def test_opened_again_it_is_the_same(run):
    again = RunDir.open(run.path)
    assert (again.spec, again.kind, again.path) == (SPEC, "search", run.path)
    assert again.checkpoint(12) == run.path / "trials" / "12" / "checkpoint.pt"
    assert again.study_url == f"sqlite:///{run.path}/study.db"


def test_any_plain_value_can_stand_in_a_spec(tmp_path):
    numpy = pytest.importorskip("numpy")
    spec = {
        "a": (1, 2),
        "b": numpy.float64(0.5),
        "c": Path("x"),
        "d": numpy.arange(2),
        3: {4: None},
    }
    RunDir.create(tmp_path / "r", spec)
    assert RunDir.open(tmp_path / "r").spec == {
        **{"a": [1, 2], "b": 0.5, "c": "x", "d": [0, 1]},
        3: {4: None},
    }


def test_resumes_are_recorded_and_change_the_spec(run):
    run.resumed({"budget": 200_000})
    run.resumed({})
    again = RunDir.open(run.path)
    assert again.spec == {**SPEC, "budget": 200_000}
    assert [r["changes"] for r in again.content["resumes"]] == [{"budget": 200_000}, {}]


# ------------------------------------------------------------------------------------- refusals


def refused(match, action, *arguments, **keywords):
    with pytest.raises(UserError, match=match) as error:
        action(*arguments, **keywords)
    assert "\n" not in str(error.value)
    return error.value


def test_a_taken_name_is_refused_and_kept(run):
    before = (run.path / "run.yaml").read_text()
    refused(r"exists already .* `rltune resume .*mine`", RunDir.create, run.path, {"other": 1})
    assert (run.path / "run.yaml").read_text() == before
    assert RunDir.create(run.path, {"other": 1}, exist_error=False).spec == SPEC


def test_a_folder_of_something_else_is_not_taken_over(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("...")
    refused("is no run directory", RunDir.create, tmp_path / "thesis", SPEC)
    assert os.listdir(tmp_path / "thesis") == ["chapter.txt"]


def test_no_run_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("has no run.yaml", RunDir.open, tmp_path)
    (tmp_path / "file").write_text("")
    refused("has no run.yaml", RunDir.open, tmp_path / "file")
    refused("no run 'nothing'", RunDir.open, "nothing")
    (tmp_path / "run.yaml").write_text("just a text")
    refused("no format_version", RunDir.open, tmp_path)
    (tmp_path / "run.yaml").write_text("a: [1, ")
    refused("not readable as YAML", RunDir.open, tmp_path)
    (tmp_path / "run.yaml").write_text("format_version: 1")
    refused("damaged", RunDir.open, tmp_path)


def test_a_newer_format_is_refused(run):
    content = {**run.content, "format_version": FORMAT_VERSION + 1}
    content["versions"] = {"rltune": "9.1"}
    run.write_yaml("run.yaml", content)
    refused(r"newer rltune \(9\.1\).*update rltune", RunDir.open, run.path)


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".hidden", "", "latest", "a\nb", "x" * 129])
def test_names_stay_inside_the_storage_folder(tmp_path, name):
    refused("run name", run_path, tmp_path, name)


def test_storage_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    refused("is a file", run_path, tmp_path / "file", "x")
    refused("cloud storage", run_path, "s3://bucket/runs", "x")
    refused("cloud storage", RunDir.create, "gs://bucket/runs/x", SPEC)
    refused("cloud storage", RunDir.create, Path("gs://bucket/runs/x"), SPEC)
    refused("file stands where", RunDir.create, tmp_path / "file" / "deeper" / "x", SPEC)


AS_NOBODY = """
import os, sys
from rltune.agents.errors import StorageError
from rltune.common.provenance import versions
from rltune.runs.directory import RunDir
versions()  # imports what nobody may not read
if os.geteuid() == 0:
    os.seteuid(65534)  # permissions don't bind root
try:
    RunDir.create(sys.argv[1], {})
except StorageError as error:
    print(error)
"""


@pytest.mark.parametrize("mode", [0o555, 0o444], ids=["not to be written", "not to be entered"])
def test_no_permission(tmp_path, mode):
    storage = tmp_path / "storage"
    storage.mkdir(mode=mode)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith("pytest-of-"):
            break
        folder.chmod(0o755)
    folder.chmod(0o755)
    command = [sys.executable, "-c", AS_NOBODY, str(storage / "new" / "mine")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "no permission" in done.stdout, done.stderr
    assert os.listdir(storage) == []


def test_a_full_disk_leaves_nothing_half_written(small_disk):
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="space"):
        ballast.write_bytes(bytes(2**20))
    error = refused("disk is full", RunDir.create, small_disk / "runs" / "mine", SPEC)
    assert isinstance(error, StorageError)
    assert os.listdir(small_disk) == ["ballast"]
    ballast.unlink()
    run = RunDir.create(small_disk / "runs" / "mine", SPEC)
    refused("disk is full", run.write_text, "best/config.yaml", "x" * 2**20)
    assert os.listdir(run.path / "best") == []
    assert RunDir.open(run.path).spec == SPEC


def test_a_read_only_disk(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused("read-only", RunDir.create, small_disk / "mine", SPEC)


# ------------------------------------------------------------------------------------- one driver

HOLD = """
import sys, time
from rltune.runs.directory import RunDir
with RunDir.open(sys.argv[1]).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_driver_is_refused_until_the_first_is_dead(run):
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        lock = run.lock()
        error = refused("being driven by process", lock.__enter__)
        assert str(first.pid) in str(error)
        first.send_signal(signal.SIGKILL)
        first.wait()
        with run.lock():
            refused(f"process {os.getpid()}", run.lock().__enter__)
        with run.lock():
            pass


# --------------------------------------------------------------------------------------- finding


def test_runs_are_found_by_path_by_name_and_as_the_latest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("ppo-a", "ppo-b")):
        run = RunDir.create(f"runs/{name}", SPEC)
        os.utime(run.path / "run.yaml", (number, number))
    assert find_run("ppo-a") == Path("runs/ppo-a")
    assert find_run("runs/ppo-a") == Path("runs/ppo-a")
    assert find_run("latest") == Path("runs/ppo-b")
    Path("ppo-a").mkdir()  # not a run: the run of that name is meant
    assert find_run("ppo-a") == Path("runs/ppo-a")
    refused("did you mean 'ppo-b'", find_run, "ppo-bb")
    assert RunDir.open("ppo-b").name == "ppo-b"


def test_default_names(tmp_path):
    assert re.fullmatch(r"ppo-CartPole-v1-\d{8}-\d{4}", default_name("ppo", "CartPole-v1"))
    name = default_name("my_module:MyAgent", "ALE/Pong-v5", tmp_path)
    assert name.startswith("MyAgent-Pong-v5-")
    run_path(tmp_path, name).mkdir()
    assert default_name("my_module:MyAgent", "ALE/Pong-v5", tmp_path) == name + "-2"


def test_importing_it_is_light():
    heavy = "{'numpy', 'pandas', 'pyarrow', 'ray', 'torch'}"
    code = f"import rltune.runs.directory, sys; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_environment_names_another_folder_for_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "RLTUNE_STORAGE": "~/there"}
    command = [sys.executable, "-m", "rltune", "show", "latest"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"no run 'latest' here or in '{tmp_path}/there'" in done.stderr


def test_who_holds_the_lock_removes_what_a_killed_writer_has_left(tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    code = (
        "import os, sys\n"
        "from rltune.agents.loop import checkpoint\n"
        "from rltune.common.files import atomic_write\n"
        "die = lambda *_: os._exit(9)\n"
        "if sys.argv[2:]:\n"
        "    checkpoint.torch.save = die\n"
        "    checkpoint.write(sys.argv[1] + '/trials/0/checkpoint.pt', {})\n"
        "atomic_write(sys.argv[1] + '/trials.parquet', lambda path: [path.touch(), die()])\n"
    )
    for more in ([], ["checkpoint"]):
        subprocess.run([sys.executable, "-c", code, str(run.path), *more], check=False)
    left = [path.name for path in run.path.rglob("*.tmp")]
    assert len(left) == 2
    with run.lock():
        assert not list(run.path.rglob("*.tmp"))


def test_what_was_written_after_a_run_was_deleted_goes_too(tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    run.remove_remains()
    assert run.is_there
    shutil.rmtree(run.path)
    run.write_text("trials/3/checkpoint.pt", "a worker's")
    run.remove_remains()
    assert not run.path.exists()
    run.write_text("mine.txt", "a person's")
    run.remove_remains()
    assert run.path.exists()
