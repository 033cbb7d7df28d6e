"""User code, imported by name: ``module:Name`` of an agent or an environment.

A run directory or a checkpoint names such code, too, and may come from anywhere. So only a module
of the user's or an installed one is imported, never a file that lies in a run directory; and what
is called is an environment's class, or a function of a module that the user has written: of a
foreign ``subprocess:run`` nothing is called. Commands that only read a run import none of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from rltune.agents.errors import UserError, unknown

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def import_object(spec: str, kind: str) -> Any:
    """Import ``module:Name``; modules in the current directory come first.

    Args:
        spec: where the object is
        kind: what it is for the errors, such as ``agent`` or ``environment``

    Raises:
        UserError: the text has another shape, there is no such module or name in it, or the module
            is Python's own or lies in a run directory.
    """
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UserError(f"{kind} {spec!r} is not of the form module:Name")
    module = import_module(module_name, f"{kind} {spec!r}")
    try:
        return getattr(module, name)
    except AttributeError:
        public = [item for item in vars(module) if not item.startswith("_")]
        raise unknown(f"{kind} in {module_name}", name, public) from None


def import_module(name: str, what: str) -> ModuleType:
    """Import a module that is the user's or installed; ``what`` begins the errors.

    Raises:
        UserError: there is no such module, it can't be imported, or as in `import_object`.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"{what}: {name!r} is not the name of a module")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    _check_place(name.partition(".")[0], what)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise UserError(
                f"{what}: there is no module {error.name!r} in {here} or installed"
            ) from None
        raise UserError(f"{what} can't be imported: {error}") from error
    except Exception as error:
        raise UserError(f"{what} can't be imported: {type(error).__name__}: {error}") from error


def factory(env: str) -> Callable[..., Any]:
    """Return the class or function that makes an environment of the user's own.

    Raises:
        UserError: as `import_object`; or it is no class of environments, and no function of a
            module that the user has written.
    """
    import gymnasium  # not before: the command line reads the names of agents at its start

    found = import_object(env, "environment")
    check_single_agent(env, found)
    if isinstance(found, type) and issubclass(found, gymnasium.Env):
        return found
    if inspect.isfunction(found) and _is_the_users(found.__module__):
        return found
    what = f"the class {found.__name__}" if isinstance(found, type) else f"a {_kind(found)}"
    raise UserError(
        f"environment {env!r} is {what}; name a subclass of gymnasium.Env, or a function in a "
        "module of your own that returns one"
    )


def check_single_agent(env: str, made: object) -> None:
    """Raise UserError for an environment, or a class of them, with several agents.

    PettingZoo's and RLlib's have a list of them; PettingZoo's classes announce it only.
    """
    classes = made.__mro__ if isinstance(made, type) else type(made).__mro__
    announced = any("possible_agents" in inspect.get_annotations(base) for base in classes)
    if announced or hasattr(made, "possible_agents"):
        raise UserError(
            f"environment {env!r} has several agents, and rltune trains one: write a gymnasium.Env "
            "around it in which one agent learns and the others follow a rule"
        )


def _kind(found: object) -> str:
    return "function that is not yours" if inspect.isroutine(found) else type(found).__name__


def _check_place(top: str, what: str) -> None:
    """Raise UserError for a module of Python's own, or one that came with a run."""
    if top in sys.stdlib_module_names:
        raise UserError(f"{what}: {top} is a module of Python's own, and has none")
    for place in _places(top):
        if run_directory_of(place):
            raise UserError(
                f"{what}: {place} lies in a run directory, from where nothing is imported; "
                "copy it elsewhere if you trust it"
            )


def run_directory_of(place: Path) -> Path | None:
    """Return the run directory that a file lies in, or None."""
    for folder in place.parents:
        file = folder / "run.yaml"
        if file.is_file() and b"format_version" in file.read_bytes():
            return folder
    return None


def _places(top: str) -> Iterator[Path]:
    """Yield the paths of a module or package, without importing it."""
    try:
        found = importlib.util.find_spec(top)
    except ValueError:  # __main__ has none
        return
    if found is not None:
        for text in (found.origin, *(found.submodule_search_locations or ())):
            if text and os.path.exists(text):
                yield Path(text).resolve()


def _is_the_users(module_name: str) -> bool:
    """Whether a module is neither Python's own nor an installed package's."""
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None:
        return module_name == "__main__"
    return not _is_installed(Path(file).resolve())


def place_in_own_code(text: str) -> str:
    """Return the innermost place of a traceback in the user's code, as "mine.py, line 9", or ""."""
    for file, line in reversed(_frames(text)):
        if not _is_installed(Path(file)) and not _is_rltune(Path(file)):
            return f"{Path(file).name}, line {line}"
    return ""


def fault(error: BaseException) -> str:
    """Return the place and the error in the user's code, or in an environment's; else "".

    An exit counts where that code itself asked for it.
    """
    text = "".join(traceback.format_exception(error))
    frames = _frames(text)
    if isinstance(error, SystemExit):
        if not frames or not place_in_own_code(text) or _is_rltune(Path(frames[-1][0])):
            return ""
        what = f"sys.exit({'' if error.code is None else repr(error.code)}) was called"
    else:
        said = (str(error).splitlines() or [""])[0][:200]
        what = f"{type(error).__name__}{': ' if said else ''}{said}"
    place = place_in_own_code(text) or _place_in_environment(frames)
    return place and f"{place}: {what}"


def _place_in_environment(frames: list[tuple[str, str]]) -> str:
    """Return the place in an installed environment that failed, or "": we called it last."""
    ours = [i for i, (file, _) in enumerate(frames) if _is_rltune(Path(file))]
    if not ours or ours[-1] == len(frames) - 1:
        return ""
    if Path(frames[ours[-1]][0]).resolve().parent.name != "envs":
        return ""
    file, line = frames[-1]
    return f"the environment's {Path(file).name}, line {line}"


def _frames(text: str) -> list[tuple[str, str]]:
    """Return the files and lines of a traceback, the innermost last."""
    return re.findall(r'File "([^"<]+)", line (\d+)', text)


def _is_rltune(place: Path) -> bool:
    folders = Path(__file__).resolve().parent, Path(sys.modules["rltune"].__path__[0]).resolve()
    return any(place.is_relative_to(folder) for folder in folders)


def _is_installed(place: Path) -> bool:
    """Whether a file is part of Python or of an installed package."""
    return bool(
        {"site-packages", "dist-packages"} & set(place.parts)
        or place.is_relative_to(Path(os.__file__).resolve().parent)
    )
