"""The section ``script:`` of a search space: how a script is told its configuration, and read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rltune.agents.errors import unknown
from rltune.space.dimensions import INVALID, is_whole, plain, show
from rltune.space.yaml_lines import KeyPath, SourceText

STYLES = ("dashes", "underscores", "hydra", "json", "yaml", "env")
FILES = ("json", "yaml")
BOOLEANS = ("value", "switch", "pair")
FOLDERS = ("trial", "script")
KINDS = ("tensorboard", "csv", "json", "regex")
STDOUT = "stdout"


@dataclass(frozen=True)
class ScriptSection:
    """The declarations on a script. What is left out, is recognised or has the values below.

    Attributes:
        style: how hyperparameters are passed: flags with "dashes" or "underscores", "hydra"'s
            key=value, a file ("json", "yaml"), or variables of the environment ("env")
        names: the script's own name for a hyperparameter, or its flag
        booleans: a flag takes a "value" (True), is a "switch" that is there or not, or one of a
            "pair" (--flag, --no-flag)
        args: words that every trial has
        config: the flag of the file, where hyperparameters are passed in one
        seed, budget, env, folder: the script's names for these; None: it is not told
        results: "tensorboard", "csv", "json" or "regex"
        pattern: of the files, below the folder of the trial; "stdout"; or the expression
        step: the column, or key, of the env steps
        average: the mean of so many last values counts
        resume: the flag for going on from a file
        checkpoint: the pattern of such files; the newest one is taken
        cwd: where it runs: in the folder of the "trial", or in that of the "script"
        python: the interpreter; None: rltune's own
        stop_seconds: from asking it to end to ending it
    """

    style: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    booleans: str | None = None
    args: list[str] = field(default_factory=list)
    config: str = "--config"
    seed: str | None = "seed"
    budget: str | None = "total_timesteps"
    env: str | None = None
    folder: str | None = None
    results: str = "tensorboard"
    pattern: str = ""
    step: str = ""
    average: int = 1
    resume: str | None = None
    checkpoint: str = ""
    cwd: str = "trial"
    python: str | None = None
    stop_seconds: float = 10.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain types in the language of the space files; `read_script` reads them back."""
        found = {name: value for name, value in asdict(self).items() if value != _DEFAULTS[name]}
        kind, pattern = found.pop("results", self.results), found.pop("pattern", "")
        step = found.pop("step", "")
        results = {kind: pattern or True, **({"step": step} if step else {})}
        return {**found, **({} if results == {"tensorboard": True} else {"results": results})}


_DEFAULTS = asdict(ScriptSection())


def read_script(value: object, source: SourceText) -> ScriptSection | None:
    """Return the section; UserError: a sentence with file, line and key."""
    if value is None:
        return None
    data = _mapping(value, source, ("script",), "keys such as style, seed and results")
    keys = [name for name in _DEFAULTS if name not in ("pattern", "step")]
    for key in data:
        if key not in keys:
            raise source.error(("script", str(key)), str(unknown("key", str(key), keys)))
    found: dict[str, Any] = {}
    for key, choices in (("style", STYLES), ("booleans", BOOLEANS), ("cwd", FOLDERS)):
        if key in data:
            found[key] = _choice(data[key], choices, source, ("script", key))
    for key in ("config", "seed", "budget", "env", "folder", "resume", "checkpoint", "python"):
        if key in data:
            nothing = data[key] is None or data[key] is False
            may_lack = _DEFAULTS[key] is None or key in ("seed", "budget")
            word = None if nothing and may_lack else _text(data[key], source, ("script", key))
            found[key] = word
    if "names" in data:
        names = _mapping(data["names"], source, ("script", "names"), "names such as {lr: --lr}")
        found["names"] = {
            str(name): _text(item, source, ("script", "names", str(name)))
            for name, item in names.items()
        }
    if "args" in data:
        found["args"] = _words(data["args"], source)
    if "results" in data:
        found |= _results(data["results"], source)
    for key, least in (("average", 1), ("stop_seconds", 0)):
        if key in data:
            found[key] = _number(data[key], least, source, ("script", key))
    section = ScriptSection(**found)
    if bool(section.resume) != bool(section.checkpoint):
        there, missing = ("resume", "checkpoint") if section.resume else ("checkpoint", "resume")
        raise source.error(
            ("script", there),
            f"goes with {missing}: (resume: --resume and checkpoint: '*.pt' pass the newest file)",
        )
    return section


def _results(value: object, source: SourceText) -> dict[str, Any]:
    path: KeyPath = ("script", "results")
    if isinstance(value, str):
        value = {value: True}
    data = _mapping(value, source, path, f"one of {', '.join(KINDS)}")
    kinds = [key for key in data if key != "step"]
    if len(kinds) != 1:
        raise source.error(path, f"needs one of {', '.join(KINDS)} (and step); got {show(value)}")
    kind = _choice(kinds[0], KINDS, source, path)
    place: KeyPath = (*path, kind)
    pattern = "" if data[kind] is True else _text(data[kind], source, place)
    step = _text(data["step"], source, (*path, "step")) if "step" in data else ""
    if kind == "csv" and not pattern:
        raise source.error(place, "needs the pattern of its files, such as {csv: progress.csv}")
    if kind == "json" and not step:
        raise source.error(place, "needs the key of the env steps, such as step: global_step")
    if kind in ("regex", "tensorboard") and "step" in data:
        raise source.error((*path, "step"), f"does not go with {kind}: remove it")
    if kind == "regex":
        _check_expression(pattern, source, place)
    return {"results": kind, "pattern": pattern, "step": step}


def _check_expression(pattern: str, source: SourceText, path: KeyPath) -> None:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise source.error(path, f"is no regular expression: {error}") from None
    for name in ("step", "value"):
        if name not in groups:
            raise source.error(
                path, rf"needs a group (?P<{name}>...), as in 'step=(?P<step>\d+) R=(?P<value>\S+)'"
            )


def _mapping(value: object, source: SourceText, path: KeyPath, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise source.error(path, f"needs {what}; got {show(value)}")
    return value


def _choice(value: object, choices: tuple[str, ...], source: SourceText, path: KeyPath) -> str:
    if value not in choices:
        raise source.error(path, f"needs one of {', '.join(choices)}; got {show(value)}")
    return str(value)


def _text(value: object, source: SourceText, path: KeyPath) -> str:
    if not isinstance(value, str) or not value.strip():
        raise source.error(path, f"needs a text; got {show(value)}")
    return value


def _number(value: Any, least: int, source: SourceText, path: KeyPath) -> int:
    if not is_whole(value) or value < least:
        raise source.error(path, f"needs a whole number from {least} on; got {show(value)}")
    return int(value)


def _words(value: object, source: SourceText) -> list[str]:
    words = plain(value)
    if not isinstance(words, list) or words is INVALID or any(w is None for w in words):
        raise source.error(
            ("script", "args"), f"needs words such as [--no-track]; got {show(value)}"
        )
    return [word if isinstance(word, str) else str(word) for word in words]
