"""Safe reading of run directories, which may be damaged or come from a stranger.

Nothing that is read is executed: YAML by the safe loader, Parquet and SQLite without Python
objects. Whatever is wrong with a file ends in one sentence that names it.
"""

from __future__ import annotations

import math
import os
import stat
import types
import typing
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from rltune.agents.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_YAML = 400_000  # characters; PyYAML reads about 50,000 a second
MAX_VALUES = 1_000_000  # of a YAML file with its aliases written out
MAX_ROWS = 100_000_000  # of a Parquet file
T = TypeVar("T")


@contextmanager
def reading(what: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any error in reading ``what`` into a UserError that names it."""
    try:
        yield
    except (UserError, PermissionError, BrokenPipeError):
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0][:200]
        raise UserError(
            f"{os.fspath(what)} is damaged, or not as rltune writes it: {type(error).__name__}"
            f"{': ' if said else ''}{said} (--traceback shows where)"
        ) from error


def check_tree(run: Path, foreign: Container[str] = ()) -> None:
    """Raise UserError for files that a run directory never holds.

    That is a link that leads out of it, where reading would tell and writing would change what is
    elsewhere, and pipes and devices, which can be waited for without end.

    Args:
        run: the run directory
        foreign: folders in it whose files aren't rltune's, and may link to caches
    """
    top = run.resolve()
    waiting = [top]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    if not Path(entry.path).resolve().is_relative_to(top):
                        raise UserError(
                            f"{entry.path} is a link that leads out of the run directory; "
                            "nothing is read or written there. Remove it."
                        )
                elif entry.is_dir(follow_symlinks=False):
                    if not (entry.name in foreign and Path(entry.path).parent == top):
                        waiting.append(Path(entry.path))
                elif not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    raise UserError(f"{entry.path} is neither a file nor a folder; remove it.")


def load_yaml(file: Path, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """Return the data of a YAML file, without any Python object.

    Raises:
        UserError: it is no YAML, too large, or its aliases stand for too much.
    """
    if not file.is_file():
        raise UserError(f"{file} is not a file.")
    with open(file, encoding="utf-8") as stream:
        try:
            text = stream.read(MAX_YAML + 1)
            if len(text) > MAX_YAML:
                raise UserError(f"{file} is too large: more than {MAX_YAML:,} characters.")
            data = yaml.load(text, loader)
        except (yaml.YAMLError, ValueError, TypeError, LookupError, RecursionError, AttributeError):
            raise UserError(f"{file} is damaged: it is not readable as YAML.") from None
    _check_size(data, file)
    return data


def _check_size(data: Any, file: Path) -> None:
    """Raise UserError where aliases make a small file endless."""
    waiting, n = [iter((data,))], 0
    while waiting:
        for value in waiting[-1]:
            n += 1
            if n > MAX_VALUES or len(waiting) > 100:
                raise UserError(f"{file} is damaged: its aliases stand for too much.")
            if isinstance(value, dict):
                waiting.append(iter(value.values()))
                break
            if isinstance(value, (list, tuple, set)):
                waiting.append(iter(value))
                break
        else:
            waiting.pop()


def read_table(file: Path, columns: list[str] | None = None) -> pa.Table:
    """Return a Parquet file; UserError: it is none. FileNotFoundError comes through."""
    import pyarrow.parquet as pq

    if file.is_dir():
        raise UserError(f"{file} is damaged: it is a folder.")
    try:
        with pq.ParquetFile(file) as opened:
            if opened.metadata.num_rows > MAX_ROWS:
                raise UserError(f"{file} has too many rows: more than {MAX_ROWS:,}.")
            return opened.read(columns)
    except FileNotFoundError:
        raise
    except Exception as error:
        with reading(file):
            raise error


def from_dict(cls: type[T], data: object, where: str) -> T:
    """Return a dataclass of plain data; unknown keys, of newer versions, are left out.

    Raises:
        UserError: a value is missing or of another type; ``where`` begins the sentence.
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where} is damaged: it has no names with values.")
    hints = typing.get_type_hints(cls)
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    values = {name: value for name, value in data.items() if name in known}
    for name, value in values.items():
        if not fits(value, hints[name]):
            raise UserError(f"{where} is damaged: {name} can't be {value!r:.60}.")
    with reading(where):
        return cls(**values)


def check_types(made: Any, hints: Mapping[str, str]) -> None:
    """Raise UserError for the first field of a dataclass whose value is not of its type.

    Args:
        made: the dataclass, filled by a user from Python
        hints: by field, what to write, where its type does not say enough
    """
    for name, hint in typing.get_type_hints(type(made)).items():
        value = getattr(made, name)
        if not fits(value, hint) or (isinstance(value, float) and not math.isfinite(value)):
            written = hints.get(name) or _words(hint)
            raise UserError(f"{name} must be {written}, not {value!r:.80}.")


def _words(hint: Any) -> str:
    """Return a type in words."""
    inside = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_words(kind) for kind in inside)
    words = {int: "a whole number", float: "a finite number", str: "a text", bool: "True or False"}
    words |= {types.NoneType: "None", list: "a list", dict: "a dict"}
    return words.get(typing.get_origin(hint) or hint, str(hint))


def fits(value: object, hint: Any) -> bool:
    """Whether a value of plain data is of an annotated type; a whole number is a float, too."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, kind) for kind in inside)
    if origin is list:
        return isinstance(value, list) and all(fits(kind, inside[0]) for kind in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, inside[0]) and fits(kind, inside[1]) for key, kind in value.items()
        )
    if hint in (int, float):
        accepted = (int,) if hint is int else (int, float)
        return isinstance(value, accepted) and not isinstance(value, bool)
    return isinstance(value, hint)
