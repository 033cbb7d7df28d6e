"""Pushing and pulling, against a local stand-in of the hub's HTTP API."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pytest
import rltune
import yaml
from rltune.agents.errors import UserError
from rltune.cli import main

pytest.importorskip("huggingface_hub")
constants = importlib.import_module("huggingface_hub.constants")
COMMIT = "c" * 40


def digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as `huggingface_hub` asks for: repositories of files in a dict."""

    protocol_version = "HTTP/1.1"
    files: ClassVar[dict[str, dict[str, bytes]]] = {}

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def answer(self, code: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            given = json.loads(body)
            known = "/".join(filter(None, [given.get("organization"), given["name"]]))
            if self.headers.get("Authorization") != "Bearer hf_" + "a" * 30:
                return self.answer(401, {"error": "Invalid token"})
            self.files.setdefault(known, {})
            url = f"http://{self.headers['Host']}/{known}"
            return self.answer(200, {"url": url, "name": known, "id": "1"})
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        repo = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            asked = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": asked, "commitOid": COMMIT})
        for line in body.decode().splitlines():
            row = json.loads(line)
            if row["key"] == "file":
                content = base64.b64decode(row["value"]["content"])
                self.files[repo][row["value"]["path"]] = content
        url = f"http://{self.headers['Host']}/{repo}/commit/{COMMIT}"
        return self.answer(200, {"commitUrl": url, "commitOid": COMMIT, "pullRequestUrl": None})

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[0] == "api":
            repo = "/".join(parts[2:4])
            if repo not in self.files:
                return self.answer(
                    404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound"
                )
            if "tree" in parts:
                tree = [
                    {"type": "file", "path": name, "size": len(content), "oid": digest(content)}
                    for name, content in self.files[repo].items()
                ]
                return self.answer(200, tree)
            siblings = [{"rfilename": n, "size": len(c)} for n, c in self.files[repo].items()]
            about = {
                "id": repo,
                "modelId": repo,
                "sha": COMMIT,
                "siblings": siblings,
                "private": False,
            }
            return self.answer(200, about)
        content = self.files["/".join(parts[:2])]["/".join(parts[4:])]
        return self.answer(200, content, ETag=f'"{digest(content)}"', X_Repo_Commit=COMMIT)

    do_HEAD = do_GET


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        f"http://127.0.0.1:{server.server_port}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
    )
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 30)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    Hub.files.clear()
    yield Hub
    server.shutdown()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    result = rltune.train(
        "ppo", "CartPole-v1", total_timesteps=600, n_envs=2, n_steps=32, eval_freq=300,
        name="trained", storage_path=folder, wandb="off", plain=True,
    )  # fmt: skip
    return result.path


def test_a_policy_goes_there_and_back(
    hub: type[Hub],
    training: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["push", str(training), "--to", "me/ppo-CartPole-v1", "--episodes", "3"]) == 0
    assert "/me/ppo-CartPole-v1" in capsys.readouterr().out
    files = hub.files["me/ppo-CartPole-v1"]
    assert set(files) >= {"README.md", "policy.pt", "config.yaml", "results.json", "curves.png"}
    _, metadata, text = files["README.md"].decode().split("---\n", 2)
    card = yaml.safe_load(metadata)
    assert card["library_name"] == "rltune"
    assert "CartPole-v1" in card["tags"]
    results = json.loads(files["results.json"])
    assert f"Mean return {results['mean_reward']:.6g}" in text
    assert "| n_steps | 32 |" in text
    assert str(training) not in text

    monkeypatch.chdir(tmp_path)
    assert main(["pull", "me/ppo-CartPole-v1"]) == 0
    pulled = tmp_path / "ppo-CartPole-v1"
    assert (pulled / "policy.pt").read_bytes() == files["policy.pt"]
    there = rltune.evaluate(pulled / "policy.pt", 3)
    assert there.returns == rltune.evaluate(training, 3).returns
    assert there.mean == results["mean_reward"]


def test_what_can_go_wrong_is_one_sentence_without_a_token(
    hub: type[Hub],
    training: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pull", "me/nothing"]) == 2
    assert "the hub did not do it for me/nothing" in capsys.readouterr().err
    hub.files["me/other"] = {"model.zip": b"x", "evil.py": b"raise SystemExit"}
    assert main(["pull", "me/other"]) == 2
    assert "has no policy.pt" in capsys.readouterr().err
    assert main(["pull", "me/not a name/at all"]) == 2
    assert "write USER/NAME" in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "hf_" + "b" * 30)
    assert main(["push", str(training), "--to", "me/mine", "--episodes", "1"]) == 2
    said = capsys.readouterr().err
    assert "the hub did not do it for me/mine" in said
    assert "hf_bbb" not in said


def test_only_what_push_writes_is_fetched(hub: type[Hub], tmp_path: Path) -> None:
    from rltune.hub.pull import pull

    hub.files["me/odd"] = {"policy.pt": b"x", "setup.py": b"boom", "folder/__init__.py": b"boom"}
    folder = pull("me/odd", tmp_path / "odd")
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["policy.pt"]
    with pytest.raises(UserError, match="checkpoint"):
        rltune.load(folder / "policy.pt")
