"""Plug-ins of installed packages: found, refused and loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rltune.agents import plugins
from rltune.agents.errors import UserError
from rltune.agents.plugins import PluginGroup

BROKEN = {
    "rltune.agents": "ppo = theirs:Agent\nbroken = theirs:missing_there",
    "rltune.backends": "crash = crashing:Backend\nours = theirs:Agent",
    "rltune.samplers": "odd = theirs:Agent",
}


def install(folder: Path, package: str, points: dict[str, str]) -> None:
    """Put an installed package without files of its own into a folder."""
    about = folder / f"{package}-2.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n")
    text = "\n".join(f"[{group}]\n{lines}\n" for group, lines in points.items())
    (about / "entry_points.txt").write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    (tmp_path / "theirs.py").write_text("class Agent: pass\n")
    (tmp_path / "crashing.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for cached in (plugins.installed, plugins.tell):
        cached.cache_clear()
        monkeypatch.setattr(plugins, cached.__name__, cached)
    yield tmp_path
    plugins.installed.cache_clear()


def test_a_name_is_loaded_and_one_of_ours_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(folder, "theirs", {"rltune.things": "one = theirs:Agent\nOurs = theirs:Agent"})
    install(folder, "zother", {"rltune.things": "one = theirs:Other"})
    group = PluginGroup("things", "thing", ["ours"])
    assert group.load("one").__name__ == group.load("ONE").__name__ == "Agent"
    assert group.load("theirs:Agent").__name__ == "Agent"
    assert list(group.usable) == ["one"]
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "rltune: the thing 'Ours' of theirs 2.0 is not used: rltune has one of that name.",
        "rltune: the thing 'one' of zother 2.0 is not used: theirs has one of that name.",
    ]
    with pytest.raises(UserError, match="unknown thing 'two'; choose one of: one, ours"):
        group.load("two")
    assert capsys.readouterr().err == ""


def test_one_that_fails_is_named_once_and_hurts_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = "bad = crashing:Thing\ngood = theirs:Agent\nlost = theirs:Nothing"
    install(folder, "theirs", {"rltune.things": points})
    group = PluginGroup("things", "thing", [])
    for _ in range(2):
        assert list(group.working(group.load)) == ["good"]
    first, second = capsys.readouterr().err.splitlines()
    said = "rltune: the thing 'bad' of theirs 2.0 can't be loaded: ZeroDivisionError: division by"
    assert first.startswith(said)
    assert "'lost' of theirs 2.0 can't be loaded: AttributeError" in second
    with pytest.raises(UserError, match=r"the thing 'bad' of theirs 2\.0 can't be loaded"):
        group.load("bad")


def rltune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_rltune_says_what_can_not_be_used(folder: Path) -> None:
    install(folder, "theirs", BROKEN)
    done = rltune(folder, "-m", "rltune", "plugins", "--json")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "rltune: the agent 'ppo' of theirs 2.0 is not used: rltune has one of that name."
    ]
    states = {(row["group"], row["name"]): row["state"] for row in json.loads(done.stdout)}
    assert list(states) == [
        *[("agents", "broken"), ("agents", "ppo"), ("backends", "crash"), ("backends", "ours")],
        ("samplers", "odd"),
    ]
    assert "can't be loaded: AttributeError" in states["agents", "broken"]
    assert states["agents", "ppo"].endswith("is not used: rltune has one of that name")
    assert "can't be loaded: ZeroDivisionError" in states["backends", "crash"]
    assert "is not a subclass of rltune.backends.base.Backend" in states["backends", "ours"]
    assert "sampler 'odd' is no class below optuna" in states["samplers", "odd"]
    code = (
        "from rltune.backends.single import backends\n"
        "print([b.name for b in backends()] == [b.name for b in backends()])\n"
        "print([b.name for b in backends() if b.name in ('rltune', 'RLlib', 'odd', 'crash')])\n"
        "from rltune.agents.registry import agent_class\n"
        "print(agent_class('ppo').__module__)\n"
    )
    done = rltune(folder, "-c", code)
    assert "True\n['rltune', 'RLlib']" in done.stdout
    assert "rltune.agents.algorithms.ppo" in done.stdout
    assert len(done.stderr.splitlines()) == 2, done.stderr
