"""The report and optuna-dashboard in a browser: who may ask, and what they get."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from rltune.cli import main
from rltune.reporting import dashboard
from rltune.reporting.dashboard import Dashboard
from rltune.runs.directory import RunDir
from rltune.samplers.proposer import open_study
from rltune.space.space import Space
from test_report import SPACE, make_run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = make_run(tmp_path, trials=6)
    open_study(made.study_path, Space.from_dict({"space": SPACE})).close()
    return made


@pytest.fixture
def served(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(dashboard, "REFRESH", 0.2)
    found = Dashboard(run.path, port=0)
    thread = threading.Thread(target=found.serve)
    thread.start()
    yield found
    found.close()
    thread.join(10)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_both_pages_are_served(served: Dashboard) -> None:
    status, page = get(served.url)
    assert status == 200
    assert "ppo on CartPole-v1" in page
    assert get(served.url + "summary.md")[0] == 200
    status, page = get(served.url + "dashboard")
    assert status == 200
    assert "Optuna" in page
    status, studies = get(served.url + "api/studies")
    assert status == 200
    assert '"search"' in studies


def test_nothing_else_is_reached(served: Dashboard) -> None:
    for path in ("../run.yaml", "..%2frun.yaml", "%2e%2e/run.yaml", "/etc/passwd", "nothing"):
        assert get(served.url + path)[0] == 404
    assert served.server.server_address[0] == "127.0.0.1"
    # A page of another site whose name was made to lead here.
    connection = http.client.HTTPConnection("127.0.0.1", served.server.server_port, timeout=20)
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example:80"):
        connection.request("GET", "/api/studies", headers={"Host": host})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 403


def test_the_report_follows_the_search(served: Dashboard, run: RunDir) -> None:
    page = run.path / "report" / "index.html"
    page.write_text("old")
    for _ in range(200):
        if get(served.url)[1] != "old":
            break
        threading.Event().wait(0.1)
    assert "ppo on CartPole-v1" in get(served.url)[1]


def test_the_command(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["dashboard", str(run.path), "--port", str(port)]) == 2
        assert "--port" in capsys.readouterr().err
    assert main(["dashboard", str(run.path), "--port", "70000"]) == 2
    command = [sys.executable, "-m", "rltune", "dashboard", str(run.path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ})  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    assert get(url)[0] == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert "Traceback" not in (process.stderr.read() if process.stderr else "")
