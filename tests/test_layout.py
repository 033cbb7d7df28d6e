"""The packages: where they stand, and that importing them is light."""

from __future__ import annotations

import configparser
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
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
EACH = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    found = {heavy!r} & set(sys.modules)
    if found:
        sys.exit(f"importing {{name}} imports {{', '.join(sorted(found))}}")
"""


def modules() -> list[str]:
    found = pkgutil.walk_packages(rltune.__path__, "rltune.")
    return [module.name for module in found if not module.name.endswith("__main__")]


def importing(names: list[str]) -> subprocess.CompletedProcess[str]:
    code = EACH.format(heavy=HEAVY)
    return subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)


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


@pytest.mark.parametrize("package", ABOVE_BACKENDS)
def test_importing_it_is_light(package: str) -> None:
    names = [name for name in modules() if f"{name}.".startswith(f"rltune.{package}.")]
    assert names
    light = [name for name in names if not name.startswith(tuple(HEAVY_ITSELF))]
    done = importing(light)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "imports"), HEAVY_ITSELF.items())
def test_the_list_of_heavy_ones_is_true(name: str, imports: str) -> None:
    below = [module for module in modules() if f"{module}.".startswith(f"{name}.")]
    assert imports in importing(below).stderr


def test_files_of_tests_have_names_of_their_own() -> None:
    files = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) == len(set(files)), "pytest imports each by its name alone"
