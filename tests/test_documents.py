"""The commands and snippets of the documents, run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rltune
from rltune.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith("rltune ")
]
# Files of the user's own that the commands name.
OWN = {
    "ppo.py": "import argparse\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--learning-rate', type=float)\n",
    "my_module.py": "def my_train(config, trial):\n    trial.report(trial.budget, 1.0)\n",
    "my.yaml": "budget: 1000\nspace: {learning_rate: {log: [1e-5, 1e-2]}}\n",
}


def run(argv: list[str], folder: Path) -> str:
    """Run a program as a user would, and return what it printed."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("argv", [c for c in COMMANDS if c[0] == "run"], ids=shlex.join)
def test_searches_of_the_readme_resolve(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "LunarLander-v3" in argv:
        pytest.importorskip("Box2D")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in OWN.items():
        (tmp_path / name).write_text(text)
    assert main([*argv, "--dry-run"]) == 0


def test_every_other_command_of_the_readme_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    names = {command[0] for command in COMMANDS}
    assert {"run", "resume", "show", "train", "eval", "play"} <= names
    for name in names:
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them, and its own."""
    text = document.read_text()
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    made = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_the_documents_name_exist(document: Path) -> None:
    text = document.read_text()
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        target = document.parent / path if path else document
        assert target.exists(), f"{document.name} names {path}"
        if anchor:
            assert anchor in anchors(target), f"{document.name} names {path}#{anchor}"
    for path in re.findall(
        r"`((?:agents|tuner|scripts|docs|examples|tests|search_spaces)/[\w/.-]+)`", text
    ):
        if not Path(path).stem.endswith("mine"):  # the newcomer's own
            assert (ROOT / path).exists(), f"{document.name} names {path}"


def test_the_map_has_a_line_for_every_package_in_the_order_of_the_floors() -> None:
    rows = re.findall(r"^\| `(\w+)/(\w+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    floors = (ROOT / ".importlinter").read_text().split("[importlinter:contract:circles]")[0]
    tuner, agents = (re.findall(r"\w+", part) for part in floors.split("layers =")[1:])
    for top, names in {"tuner": tuner, "agents": agents}.items():
        packages = [name for name in names if (ROOT / top / name / "__init__.py").exists()]
        assert [name for folder, name in rows if folder == top] == packages
        assert {init.parent.name for init in (ROOT / top).glob("*/__init__.py")} == {*packages}


def test_the_python_of_the_readme(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = code.replace("20_000", "1_800").replace(
        "trials=10", 'trials=3, wandb="off", report=False, test_seeds=2'
    )
    code = code.replace("**result.best", 'wandb="off", plain=True, **result.best')
    (tmp_path / "script.py").write_text(code)
    output = run([sys.executable, "script.py"], tmp_path)
    assert "learning_rate" in output
    search, training = sorted((tmp_path / "runs").iterdir(), key=lambda run: run.stat().st_mtime)
    assert len(rltune.open(search).trials()) == 3
    assert rltune.open(training).spec["total_timesteps"] == 1_800


@pytest.mark.slow
def test_the_custom_example(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "examples" / "custom", tmp_path / "custom")
    assert (folder / "agents" / "__init__.py").exists()  # it must not shadow rltune's own
    search = "run my_agent:MyAgent --space my.yaml --env my_env:MyEnv --trials 3 --budget 2000"
    small = "--no-tournament --wandb off --plain --name mine"
    output = run([sys.executable, "-m", "rltune", *search.split(), *small.split()], folder)
    assert "rltune train my_agent:MyAgent --env my_env:MyEnv" in output
    assert set(rltune.open(folder / "runs" / "mine").trials()["state"]) <= {"COMPLETE", "PRUNED"}
    output = run([sys.executable, "search_custom.py"], folder)
    assert "COMPLETE" in output
