"""Secrets stand nowhere: not in a command line, a run directory or a traceback."""

from __future__ import annotations

import os

import pytest
from rltune.common.provenance import command_line
from rltune.common.redaction import masked_text
from rltune.runs.directory import RunDir
from rltune.tracking.to_mlflow import without_password

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
