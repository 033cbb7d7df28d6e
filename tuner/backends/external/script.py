"""Scripts that train: run as they are, in a folder of the trial, and read as they write."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from rltune.agents.envs.suite import NO_ENV
from rltune.backends.external import guard
from rltune.backends.external.agent import ExternalAgent
from rltune.backends.external.readers import READERS
from rltune.backends.external.source import Nothing, Source
from rltune.backends.external.trial import Report, Trial
from rltune.backends.external.words import Command, make_command, script_of
from rltune.backends.names import SCRIPT, SECTION
from rltune.space.script import ScriptSection, read_script
from rltune.space.yaml_lines import SourceText

OUTPUT = "output.txt"  # in the folder of a trial
POLL = 0.1  # seconds
LAST_LINES, LONGEST = 3, 300  # of the output, in the reason of a failure


def section_of(env_kwargs: Mapping[str, Any]) -> ScriptSection:
    """Return the section that a search has put among the environment's arguments."""
    return read_script(env_kwargs.get(SECTION), SourceText("script")) or ScriptSection()


class ScriptSource(Source):
    """A script in a process of its own, which never waits: its reports are read behind it.

    Args:
        name: of the script, for messages
        command: that runs it
        section: how it is read
        metric: the name of the value
        folder: of the trial
        budget: at which it may end by itself
    """

    def __init__(
        self,
        name: str,
        command: Command,
        section: ScriptSection,
        metric: str,
        folder: Path,
        budget: int,
    ) -> None:
        self.name, self.section, self.budget = name, section, budget
        self._output = folder / OUTPUT
        self._reader = READERS[section.results](section, metric, folder, self._output)
        self._came: deque[Report] = deque()
        self._reached = 0  # env steps
        for path, text in command.files.items():
            path.write_text(text)
        in_folder = folder if section.cwd == "trial" else Path(command.words[1]).parent
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", guard.__file__, str(section.stop_seconds), *command.words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=in_folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **command.variables},
                start_new_session=True,
            )

    @property
    def cpu_seconds(self) -> float:  # type: ignore[override]
        """The CPU time of all its processes that are there now."""
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._process.pid).children(recursive=True)
            times = [child.cpu_times() for child in children]
            self._cpu = max(self._cpu, sum(t.user + t.system for t in times))
        return self._cpu

    _cpu = 0.0

    def next(self, deadline: float | None) -> Report | Nothing:
        """Wait until the script has written another report, or has ended."""
        while True:
            code = self._process.poll()  # before what it has written is read
            self._came.extend(self._reader.poll())
            if self._came:
                report = self._came.popleft()
                self._reached = max(self._reached, report.env_steps)
                return report
            if code == 0:
                return Nothing.MORE
            if code is not None:
                raise RuntimeError(f"{self.name} ended with exit code {code}{self._said()}")
            if deadline is not None and time.time() >= deadline:
                return Nothing.YET
            time.sleep(POLL)

    def missing(self) -> str:
        """Return the words on why it gave no value."""
        return self._reader.missing()

    def _said(self) -> str:
        """Return the last lines of its output, as the rest of a sentence."""
        with contextlib.suppress(OSError):
            lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
            last = [line.strip() for line in lines if line.strip()][-LAST_LINES:]
            return ": " + " | ".join(last)[-LONGEST:] if last else ""
        return ""

    def stop(self) -> None:
        """Let it end after its budget, else end it: SIGTERM, then SIGKILL after seconds."""
        if self._reached >= self.budget:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self.section.stop_seconds)
        assert self._process.stdin is not None
        self._process.stdin.close()  # see `guard`
        self._process.wait()


class ScriptAgent(ExternalAgent):
    """A script that trains: ``script:FILE``, with the section ``script:`` of the search space."""

    kind = SCRIPT

    def _make_source(self, values: dict[str, Any]) -> Source:
        section = section_of(self.env_kwargs)
        script = script_of(self.algorithm_spec)
        folder = (self.folder or Trial().checkpoint()).absolute()
        resumed = self._prepare(folder, section)
        command = make_command(
            section,
            script,
            values,
            seed=self.seed,
            budget=self.total_timesteps,
            env=None if self.env == NO_ENV else self.env,
            folder=folder,
        )
        if resumed is not None and section.resume is not None:
            command.words += [section.resume, str(resumed)]
        return ScriptSource(self.name, command, section, self.metric, folder, self.total_timesteps)

    def _prepare(self, folder: Path, section: ScriptSection) -> Path | None:
        """Return the newest checkpoint of the script's own; where there is none, empty the folder.

        What lies there is of the same trial, which was interrupted and starts over.
        """
        if section.checkpoint and folder.exists():
            found = [path for path in folder.rglob(section.checkpoint) if path.is_file()]
            if found:
                return max(found, key=lambda path: path.stat().st_mtime)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        return None

    def _how_to_report(self) -> str:
        source = self._source
        return source.missing() if isinstance(source, ScriptSource) else "it wrote none"
