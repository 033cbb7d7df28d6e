"""The dashboard server: the report and optuna-dashboard, on the loopback address alone."""

from __future__ import annotations

import mimetypes
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from rltune.agents.errors import UserError
from rltune.analysis.summary import Summary
from rltune.reporting.page import REFRESH
from rltune.reporting.report import report
from rltune.runs.reader import read_run

HOST = "127.0.0.1"
OPTUNAS = ("/dashboard", "/static", "/api", "/favicon.ico", "/jupyterlab-extension")
App = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Dashboard:
    """Serves the report of a run at / and Optuna's page of its study at /dashboard.

    Args:
        path: the run directory, its name, or "latest"
        port: 0 for a free one

    Raises:
        UserError: there is no such run, or the port is taken.
    """

    def __init__(self, path: str | os.PathLike[str], port: int = 8080) -> None:
        self.run = read_run(path)
        self.page = report(self.run.path, pictures=False)
        self.optuna = _optuna_app(self.run.path / "study.db")
        try:
            self.server = make_server(HOST, port, self._app, _Threads, _Quiet)
        except OSError as error:
            raise UserError(
                f"port {port} can't be used: {error.strerror}; give another --port."
            ) from error
        self._closing = threading.Event()

    @property
    def url(self) -> str:
        """The address of the report."""
        return f"http://{HOST}:{self.server.server_port}/"

    def serve(self) -> None:
        """Serve until `close` is called; the report is made anew while the search runs."""
        threading.Thread(target=self._keep_fresh, daemon=True).start()
        self.server.serve_forever()

    def close(self) -> None:
        """Stop serving."""
        self._closing.set()
        self.server.shutdown()
        self.server.server_close()

    def _keep_fresh(self) -> None:
        """Write the page while there are news, and once more after the end."""
        running = True
        while running and not self._closing.wait(REFRESH):
            running = Summary(self.run).running
            report(self.run.path, pictures=False)

    def _app(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        # Another site's name may be made to lead here: only our own is answered.
        if environ.get("HTTP_HOST", "").rpartition(":")[0] not in (HOST, "localhost"):
            return _answer(start, "403 Forbidden", b"ask for 127.0.0.1")
        path = environ.get("PATH_INFO", "/")
        if path.startswith(OPTUNAS) and self.optuna is not None:
            return self.optuna(environ, start)
        folder = self.page.parent
        name = path.removeprefix("/") or self.page.name
        # By the names that are there: nothing outside of the folder can be meant.
        file = next(
            (known for known in folder.iterdir() if known.name == name and known.is_file()), None
        )
        if file is None:
            return _answer(start, "404 Not Found", b"there is no such page")
        kind = mimetypes.guess_type(file.name)[0] or "text/plain"
        return _answer(start, "200 OK", file.read_bytes(), f"{kind}; charset=utf-8")


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal stays clear."""


def _answer(start: Any, status: str, body: bytes, kind: str = "text/plain") -> list[bytes]:
    start(status, [("Content-Type", kind), ("Cache-Control", "no-store")])
    return [body]


def _optuna_app(study: Path) -> App | None:
    """Return optuna-dashboard's application; None where it isn't installed, or there's no study."""
    try:
        from optuna_dashboard import wsgi
    except ImportError:
        return None
    if not study.exists():
        return None
    app: App = wsgi(f"sqlite:///{study}")
    return app
