"""A stand-in for wandb's server on loopback: it takes what clients send, and keeps it."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Sent:
    """The data that has arrived of a run."""

    display_name: str = ""
    group: str = ""
    job_type: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)  # by line
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    files: dict[str, bytes] = field(default_factory=dict)


class Server(ThreadingHTTPServer):
    """Keeps ``runs`` by their id and ``artifacts`` by their name; ``committed`` are complete."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.runs: dict[str, Sent] = defaultdict(Sent)
        self.artifacts: dict[str, dict[str, bytes]] = defaultdict(dict)
        self.committed: set[str] = set()
        self.keys: set[str] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients come and go."""

    def by_name(self) -> dict[str, Sent]:
        """Return the runs by the names that people see."""
        return {run.display_name: run for run in self.runs.values()}

    def answer(self, operation: str, told: dict[str, Any]) -> Any:
        """Return the answer to a query of wandb's client."""
        return getattr(self, f"_{operation}", lambda told: {})(told)

    def _Viewer(self, told: dict[str, Any]) -> Any:
        teams = {"edges": [{"node": {"id": "me", "name": "me"}}]}
        return {
            "viewer": {"id": "me", "entity": "me", "username": "me", "flags": "{}", "teams": teams}
        }

    def _ServerFeaturesQuery(self, told: dict[str, Any]) -> Any:
        return {"serverInfo": {"features": []}}

    def _ArtifactType(self, told: dict[str, Any]) -> Any:
        return {"project": None}

    def _UpsertBucket(self, told: dict[str, Any]) -> Any:
        run = self.runs[told["name"]]
        run.display_name = told["displayName"] or run.display_name
        run.group, run.job_type = told["groupName"] or run.group, told["jobType"] or run.job_type
        config = json.loads(told["config"] or "{}")
        run.config |= {name: value["value"] for name, value in config.items()}
        bucket = {
            "id": told["name"], "name": told["name"], "displayName": run.display_name,
            "project": {"name": told["project"], "entity": {"name": "me"}},
            "historyLineCount": len(run.history),
        }  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": not run.history}}

    def _CreateRunFiles(self, told: dict[str, Any]) -> Any:
        url = f"{self.url}/runs/{told['run']}"
        files = [{"name": name, "uploadUrl": f"{url}/{name}"} for name in told["files"]]
        return {"createRunFiles": {"runID": told["run"], "uploadHeaders": [], "files": files}}

    def _CreateArtifact(self, told: dict[str, Any]) -> Any:
        made = {"id": told["input"]["artifactCollectionName"], "state": "PENDING"}
        return {
            "createArtifact": {"artifact": {**made, "artifactSequence": {"latestArtifact": None}}}
        }

    def _CreateArtifactManifest(self, told: dict[str, Any]) -> Any:
        file = {"id": "file", "uploadUrl": f"{self.url}/ignored", "uploadHeaders": []}
        return {"createArtifactManifest": {"artifactManifest": {"id": "manifest", "file": file}}}

    def _CreateArtifactFiles(self, told: dict[str, Any]) -> Any:
        nodes = [
            {
                "id": file["name"], "name": file["name"], "displayName": file["name"],
                "uploadUrl": f"{self.url}/artifacts/{file['artifactID']}/{file['name']}",
                "uploadHeaders": [], "storagePath": file["name"], "uploadMultipartUrls": None,
                "artifact": {"id": file["artifactID"]},
            }
            for file in told["input"]["artifactFiles"]
        ]  # fmt: skip
        return {"createArtifactFiles": {"files": {"edges": [{"node": node} for node in nodes]}}}

    def _CommitArtifact(self, told: dict[str, Any]) -> Any:
        self.committed.add(told["artifactID"])
        return {"commitArtifact": {"artifact": {"id": told["artifactID"], "digest": ""}}}

    def stream(self, identity: str, sent: dict[str, Any]) -> None:
        """Take lines of a run's history and summary."""
        run = self.runs[identity]
        files = sent.get("files") or {}
        if lines := files.get("wandb-history.jsonl"):
            for number, line in enumerate(lines["content"], lines["offset"]):
                run.history[number] = json.loads(line)
        if lines := files.get("wandb-summary.json"):
            run.summary = json.loads(lines["content"][-1])
        if sent.get("complete"):
            run.exit_code = sent["exitcode"]

    def put(self, path: str, content: bytes) -> None:
        """Take a file."""
        kind, _, rest = path.lstrip("/").partition("/")
        owner, _, name = rest.partition("/")
        if kind == "runs":
            self.runs[owner].files[name] = content
        elif kind == "artifacts":
            self.artifacts[owner][name] = content


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        zipped = self.headers.get("Content-Encoding") == "gzip"
        return gzip.decompress(body) if zipped else body

    def _reply(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._reply({})

    def do_PUT(self) -> None:
        self.server.put(self.path, self._body())
        self._reply({})

    def do_POST(self) -> None:
        body = self._body()
        self.server.keys.add(self.headers.get("Authorization") or "")
        if self.path == "/graphql":
            asked = json.loads(body)
            named = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
            assert named is not None
            self._reply({"data": self.server.answer(named[1], asked.get("variables") or {})})
            return
        if self.path.endswith("/file_stream"):
            self.server.stream(self.path.split("/")[-2], json.loads(body))
        self._reply({})


@contextmanager
def wandb_server() -> Iterator[Server]:
    """Run the server in a thread."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
