"""The run directory: what is recorded, what is refused, and that nothing is left half-written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rltune.agents.errors import StorageError, UserError
from rltune.rundir import (
    FORMAT_VERSION,
    RunDir,
    atomic_write,
    command_line,
    default_name,
    find_run,
    git_revision,
    masked_text,
    open_run,
    run_path,
)
from rltune.tracking.to_mlflow import without_password

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
from rltune.rundir import RunDir, versions
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


def test_a_failing_writer_leaves_the_old_file(tmp_path):
    file = tmp_path / "file"
    atomic_write(file, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        atomic_write(file, fail)
    assert os.listdir(tmp_path) == ["file"]
    assert file.read_text() == "old"


# ------------------------------------------------------------------------------------- one driver

HOLD = """
import sys, time
from rltune.rundir import RunDir
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


# --------------------------------------------------------------------------------------- secrets

KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "arguments",
    [
        [f"--wandb-key={KEY}"],
        ["--wandb-key", "short"],
        ["--api-key", "short"],
        ["WANDB_API_KEY=short"],
        ["--token=short"],
        ["--env-kwargs", '{"api_key": "short", "size": 5}'],
        ["--storage", "postgresql://me:short@host/db"],
        ["--anything", KEY],
        ["--anything", "in-the-environment"],
    ],
)
def test_a_command_line_keeps_no_secret(arguments, monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "in-the-environment")
    shown = command_line(["/usr/bin/rltune", "run", "ppo", *arguments, "--seed", "3"])
    assert shown.startswith("rltune run ppo ")
    assert shown.endswith(" --seed 3")
    assert "***" in shown
    for secret in ("short", KEY, "in-the-environment"):
        assert secret not in shown


def test_a_command_line_is_otherwise_kept_whole():
    line = ["rltune", "run", "a b:C", "-s", "n_tokens=1..5", "--keyboard", "x", "--tokenizer=bpe"]
    assert command_line(line) == "rltune run 'a b:C' -s n_tokens=1..5 --keyboard x --tokenizer=bpe"


def test_run_yaml_keeps_no_secret_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("DB_PASSWORD", "correct horse")
    spec = {
        "env_kwargs": {"url": f"http://{KEY}@host", "password": "p"},
        "note": ["correct horse!"],
    }
    run = RunDir.create(tmp_path / "r", spec)
    run.write_yaml("best/answer.yaml", {"key": KEY})
    for file in (p for p in run.path.rglob("*") if p.is_file()):
        assert KEY not in file.read_text()
        assert "correct horse" not in file.read_text()
    assert run.content["spec"]["env_kwargs"]["password"] == "***"


def test_a_traceback_keeps_no_secret(monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "in-the-environment")
    text = (
        "requests.get('https://me:short@host/x', token='short')\n"
        f"ValueError: key {KEY}, password=short, in-the-environment"
    )
    shown = masked_text(text)
    assert "ValueError" in shown
    for secret in ("short", KEY, "in-the-environment"):
        assert secret not in shown


def test_the_password_of_a_tracker_is_not_kept(tmp_path, monkeypatch):
    spec = {"mlflow": "https://me:short@host/mlflow", "env_kwargs": {"url": "redis://:short@h/0"}}
    run = RunDir.create(tmp_path / "r", spec)
    assert "short" not in (run.path / "run.yaml").read_text()
    assert run.spec["mlflow"] == "https://me:***@host/mlflow"
    # MLflow gets it where it is in no message of an error, and of a resumed run none at all.
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
    assert without_password(spec["mlflow"]) == "https://host/mlflow"
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "short"
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "set before")
    assert without_password(run.spec["mlflow"]) == "https://host/mlflow"
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "set before"
    assert without_password("sqlite:///a@b.db") == "sqlite:///a@b.db"


# ------------------------------------------------------------------------------- the environment


def test_git_revision(tmp_path):
    assert git_revision(tmp_path) is None
    commit = ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "x"]
    (tmp_path / "file").write_text("1")
    for arguments in (["init", "-q"], ["add", "file"], commit):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    revision = git_revision(tmp_path)
    assert revision is not None
    assert re.fullmatch("[0-9a-f]{40}", str(revision["revision"]))
    assert revision["dirty"] is False
    (tmp_path / "file").write_text("2")
    assert (git_revision(tmp_path) or {})["dirty"] is True


def test_a_reader_of_a_run_that_has_only_begun(run):
    reader = open_run(run.path)
    assert repr(reader).startswith("<search 'mine': ppo on CartPole-v1, ")
    assert (len(reader.trials()), len(reader.history()), len(reader.episodes())) == (0, 0, 0)
    assert reader.best is None
    assert reader.answer is None
    run.write_yaml("best/config.yaml", {"learning_rate": 0.1})
    assert reader.best == {"learning_rate": 0.1}


def test_importing_it_is_light():
    heavy = "{'numpy', 'pandas', 'pyarrow', 'ray', 'torch'}"
    code = f"import rltune.rundir, sys; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_environment_names_another_folder_for_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "RLTUNE_STORAGE": "~/there"}
    command = [sys.executable, "-m", "rltune", "show", "latest"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"no run 'latest' here or in '{tmp_path}/there'" in done.stderr
