"""The packages: where they stand, and that importing them is light."""

from __future__ import annotations

import configparser
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import rltune

ROOT = Path(__file__).parents[1]

# What computes with tensors or with forests itself; others import it where they need it.
HEAVY_ITSELF = {
    "rltune.analysis.importance": "sklearn",
    "rltune.exporting.agreement": "torch",
    "rltune.exporting.to_cleanrl": "torch",
    "rltune.exporting.to_rllib": "torch",
    "rltune.exporting.to_sb3": "torch",
    "rltune.tracking.to_tensorboard": "torch",
    "rltune.training.env_facts": "torch",
    "rltune.training.keyboard": "torch",
    "rltune.training.minari_data": "torch",
    "rltune.training.policy": "torch",
    "rltune.training.views": "torch",
}
HEAVY = {"torch", "plotly", "matplotlib", "sklearn"}
# The floors above `backends`, but for `reporting`, which draws.
ABOVE_BACKENDS = (
    *("cli", "search", "comparing", "exporting", "importing", "training", "screen"),
    *("analysis", "planning", "installation", "answer", "tracking", "execution", "schedulers"),
)
# Imports its arguments, and prints which of them need what is heavy. That is not loaded itself,
# as it would take seconds each time.
EACH = """
import importlib, json, sys

class Needed(BaseException):
    pass

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in {heavy!r}:
            raise Needed(name)

sys.meta_path.insert(0, Watch())
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Needed as needed:
        print(json.dumps([name, str(needed)]))
"""


def modules() -> list[str]:
    found = pkgutil.walk_packages(rltune.__path__, "rltune.")
    return [module.name for module in found if not module.name.endswith("__main__")]


def heavy(names: list[str]) -> dict[str, str]:
    """Return which of these modules import something heavy, and what comes first."""
    command = [sys.executable, "-c", EACH.format(heavy=HEAVY), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_every_folder_is_installed() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    tops = {"tuner": "rltune", "agents": "rltune.agents", "search_spaces": "rltune.search_spaces"}
    folders = {
        ".".join([name, *init.parent.relative_to(ROOT / top).parts])
        for top, name in tops.items()
        for init in (ROOT / top).rglob("__init__.py")
    }
    assert set(config["options"]["packages"].split()) == folders


def test_the_top_folder_holds_three_modules() -> None:
    assert {path.stem for path in (ROOT / "tuner").glob("*.py")} == {
        "__init__",
        "__main__",
        "results",
    }


def test_importing_what_computes_nothing_itself_is_light() -> None:
    above = tuple(f"rltune.{package}." for package in ABOVE_BACKENDS)
    names = [name for name in modules() if f"{name}.".startswith(above)]
    assert {name.split(".")[1] for name in names} == {*ABOVE_BACKENDS}
    owners = {name: next((o for o in HEAVY_ITSELF if f"{name}.".startswith(f"{o}.")), None)
              for name in names}  # fmt: skip
    found = heavy(names)
    assert {name: found[name] for name in found if not owners[name]} == {}
    # And the list is true.
    assert {owners[name]: found[name] for name in found} == HEAVY_ITSELF


def test_files_of_tests_have_names_of_their_own() -> None:
    files = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) == len(set(files)), "pytest imports each by its name alone"
