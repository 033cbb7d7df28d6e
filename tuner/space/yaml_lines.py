"""YAML with line numbers, so that every mistake can be reported where it stands.

Scalars follow YAML 1.2, not PyYAML's 1.1: ``1e6`` is a number, ``on`` and ``no`` are text. A key
that is written twice is an error.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rltune.agents.errors import UserError
from yaml.composer import Composer
from yaml.resolver import Resolver

KeyPath = tuple[str | int, ...]

MAX_NODES = 20_000  # far above any real file; stops nested aliases from filling the memory
MAX_CHARACTERS = 400_000  # PyYAML without libyaml reads about 50,000 a second


@dataclass(frozen=True)
class SourceText:
    """The origin of a piece of data: a file's name and the line of each key, or just a name."""

    name: str = ""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def error(self, path: KeyPath, message: str) -> UserError:
        """Return the error ``file:line: key: message``; without a file there is no line."""
        prefix = self.name
        line = self._line(path)
        if line is not None:
            prefix += f":{line}"
        parts = [prefix, key_text(path), message]
        return UserError(": ".join(part for part in parts if part))

    def _line(self, path: KeyPath) -> int | None:
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def key_text(path: KeyPath) -> str:
    """``("start", 0, "gamma")`` as ``start[0].gamma``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def read_yaml(path: Path) -> tuple[Any, SourceText]:
    """Return the file's data and its source. UserError: no such file, not text, not YAML."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file in UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> tuple[Any, SourceText]:
    """Parse YAML text; ``name`` stands for the file in errors."""
    lines: dict[KeyPath, int] = {}
    if len(text) > MAX_CHARACTERS:
        raise UserError(f"{name}: more than {MAX_CHARACTERS:,} characters")
    try:
        node = _parsed(text)
        data = None if node is None else _Builder(name, lines).build(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise UserError(f"{name}{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{name}: nested too deeply") from None
    return data, SourceText(name, lines)


def _parsed(text: str) -> yaml.Node | None:
    """Parse by libyaml, six times as fast, and by PyYAML what it refuses: not all of that is wrong.

    Events alone are libyaml's. Its nodes recurse unguarded: many open brackets end the process.
    """
    if yaml.__with_libyaml__:
        with contextlib.suppress(yaml.YAMLError):
            return _Fast(text).get_single_node()
    return _Pure(text).get_single_node()


class _Nodes(Composer, Resolver):
    """Nodes with the scalars of YAML 1.2."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML's own way to replace them)
    n_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Stop at what would be refused anyway."""
        self.n_nodes += 1
        if self.n_nodes > 2 * MAX_NODES:  # keys are nodes, too
            raise yaml.YAMLError(f"more than {2 * MAX_NODES} values")
        return super().compose_node(parent, index)


for tag, pattern, first in [
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
]:
    _Nodes.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)


class _Pure(_Nodes, yaml.SafeLoader):
    """Nodes by PyYAML."""


if yaml.__with_libyaml__:

    class _Fast(_Nodes, yaml.CSafeLoader):
        """Nodes by PyYAML of libyaml's events."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            Composer.__init__(self)


class _Builder:
    """Turns YAML nodes into plain Python data and notes the line of every key."""

    def __init__(self, name: str, lines: dict[KeyPath, int]) -> None:
        self.name = name
        self.lines = lines

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(self.lines) > MAX_NODES:
            raise UserError(f"{self.name}: more than {MAX_NODES} values")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise UserError(f"{self.name}:{line}: a key must be a name")
            key = key_node.value
            if key in result:
                first = self.lines[(*path, key)]
                raise UserError(
                    f"{self.name}:{line}: {key_text((*path, key))}: written twice, first in line "
                    f"{first}; remove one"
                )
            self.lines[(*path, key)] = line
            result[key] = self.build(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.Node) -> Any:
        kind = node.tag.rpartition(":")[2]
        text = str(node.value)
        try:
            if kind == "int":
                return int(text.replace("_", ""))
            if kind == "float":
                plain = text.replace("_", "").lower()
                return float(plain.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            raise UserError(
                f"{self.name}:{node.start_mark.line + 1}: {text[:40]!r} is not a number"
            ) from None
        if kind in ("null", "bool", "str"):
            return {"null": None, "bool": text.lower() == "true", "str": text}[kind]
        raise UserError(
            f"{self.name}:{node.start_mark.line + 1}: the tag {node.tag!r} is not allowed here"
        )
