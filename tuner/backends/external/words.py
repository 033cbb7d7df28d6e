"""The command of a script: its configuration as flags, key=value, a file, or variables."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.agents.user_code import run_directory_of
from rltune.backends.names import SCRIPT
from rltune.space.script import FILES, ScriptSection

_UNDERSCORED = re.compile(r"""['"]--\w+_\w+['"]""")


@dataclass
class Command:
    """A command to run.

    Attributes:
        words: of the command line
        variables: of its environment, beside those there are
        files: to be written before, by path
    """

    words: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)


def script_of(agent: str) -> Path:
    """Return the file of ``script:FILE``, here or in the user's folder.

    Raises:
        UserError: there is none, or it came with a run, from where nothing is run.
    """
    name = Path(agent.removeprefix(SCRIPT)).expanduser()
    places = [Path.cwd(), *map(Path, sys.path)]
    found = next((place / name for place in places if (place / name).is_file()), None)
    if found is None:
        raise UserError(f"{name}: there is no such script in {Path.cwd()}.")
    found = found.resolve()
    if run_directory_of(found):
        raise UserError(
            f"{name} lies in a run directory, from where nothing is run; copy it elsewhere if you "
            "trust it."
        )
    return found


def recognised(section: ScriptSection, script: Path) -> ScriptSection:
    """Return the section with what the script's text says about its flags, where it is silent."""
    text = script.read_text(encoding="utf-8", errors="replace")
    tyro = "tyro" in text
    style, booleans = section.style, section.booleans
    if style is None:
        if re.search(r"^\s*(import|from) hydra\b", text, re.MULTILINE):
            style = "hydra"
        else:
            style = "underscores" if _UNDERSCORED.search(text) and not tyro else "dashes"
    if booleans is None:
        switches = "store_true" in text and "strtobool" not in text
        booleans = "pair" if tyro else "switch" if switches else "value"
    return replace(section, style=style, booleans=booleans)


def make_command(
    section: ScriptSection,
    script: Path,
    values: Mapping[str, Any],
    *,
    seed: int,
    budget: int,
    env: str | None,
    folder: Path,
) -> Command:
    """Return the command that trains with these hyperparameters.

    Args:
        section: how the script is told
        script: the file
        values: hyperparameters, by the names of the space
        seed, budget, env: of the trial
        folder: of the trial; a configuration's file is written there
    """
    section = recognised(section, script)
    command = Command([section.python or sys.executable, str(script), *section.args])
    told = {section.names.get(name, name): value for name, value in values.items()}
    others = {section.seed: seed, section.budget: budget, section.env: env}
    others[section.folder] = str(folder)
    told |= {
        name: value for name, value in others.items() if name is not None and value is not None
    }
    in_file: dict[str, Any] = {}
    for name, value in told.items():
        if name.startswith("-"):
            command.words += _flag(name, value, section)
        elif section.style in FILES:
            _nest(in_file, name, value)
        elif section.style == "env":
            variable = name if name in section.names.values() else name.upper()
            command.variables[variable] = _word(value)
        elif section.style == "hydra":
            command.words.append(f"{name}={_hydra(value)}")
        else:
            spelled = name.replace("_", "-") if section.style == "dashes" else name
            command.words += _flag(f"--{spelled}", value, section)
    if section.style in FILES:
        path = folder / f"config.{section.style}"
        command.files[path] = json.dumps(in_file, indent=1)  # which is YAML, too
        command.words += [section.config, str(path)]
    return command


def _flag(flag: str, value: Any, section: ScriptSection) -> list[str]:
    if isinstance(value, bool) and section.booleans == "switch":
        return [flag] if value else []
    if isinstance(value, bool) and section.booleans == "pair":
        return [flag if value else f"--no-{flag.lstrip('-')}"]
    if isinstance(value, list):
        return [flag, *map(_word, value)]
    return [flag, _word(value)]


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)


def _hydra(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nest(found: dict[str, Any], name: str, value: Any) -> None:
    """Put a value where its name says: ``optimizer.lr`` is lr in optimizer."""
    *parents, last = name.split(".")
    for parent in parents:
        found = found.setdefault(parent, {})
    found[last] = value
