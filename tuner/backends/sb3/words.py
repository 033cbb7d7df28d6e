"""Arguments written as Python, as rl-zoo3 writes them, read without evaluating anything.

``dict(net_arch=[64, 64], activation_fn=nn.ReLU)``: calls of ``dict`` and literals, and names of
activations and optimizers. Whatever else stands there is refused.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from typing import Any

from rltune.agents.config import WIDEST
from rltune.agents.errors import UserError
from rltune.agents.user_code import import_object

LONGEST = 10_000  # characters
DEEPEST = 20
ACTIVATIONS = {
    "tanh": "Tanh",
    "relu": "ReLU",
    "elu": "ELU",
    "silu": "SiLU",
    "leaky_relu": "LeakyReLU",
    "gelu": "GELU",
}
OPTIMIZERS = ("Adam", "AdamW", "RMSprop", "SGD")
_TORCH = re.compile(r"(?:(?:th|torch)\.)?(nn|optim)\.(\w+)")
_COLON = re.compile(r":(?=[^\W\d])")  # of module:Class
_EXAMPLE = "dict(net_arch=[64, 64], activation_fn=nn.ReLU)"


class Name(str):
    """The name of a class of torch, such as ``nn.ReLU``."""

    __slots__ = ()


def read_arguments(text: str, where: str) -> dict[str, Any]:
    """Return the arguments in ``dict(...)`` or ``{...}``; classes of torch are `Name`.

    Args:
        text: the Python; empty: no arguments
        where: what the errors start with

    Raises:
        UserError: it is anything else.
    """
    if not text.strip():
        return {}
    found = _read(_expression(text, where), where, 0)
    if not isinstance(found, dict):
        raise UserError(f"{where} is {text[:60]!r}, but must be such as {_EXAMPLE}")
    return found


def read_wrappers(text: str, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return wrappers with their arguments: ``module:Class, module:function(skip=2)``.

    Raises:
        UserError: the text has another form.
    """
    if not text.strip():
        return []
    pythonic = _COLON.sub(".", text)
    node = _expression(f"[{pythonic}]", where)
    assert isinstance(node, ast.List)
    found = []
    for item in node.elts:
        called = item if isinstance(item, ast.Call) else None
        name = spelled(_dotted(called.func if called else item) or "")
        if not name or (called and called.args):
            raise UserError(
                f"{where} is {text[:60]!r}, but must be such as module:Class or "
                "module:function(skip=2)"
            )
        keywords = (
            {k.arg or "": _read(k.value, where, 1) for k in called.keywords} if called else {}
        )
        if "" in keywords:
            raise UserError(f"{where}: give the arguments of {name} by name, as skip=2")
        found.append((name, keywords))
    return found


def spelled(name: str) -> str:
    """Return ``module.Class`` as ``module:Class``."""
    module, dot, found = name.rpartition(".")
    return name if ":" in name or not dot else f"{module}:{found}"


def written(value: Any) -> str:
    """Return arguments as text that `read_arguments` reads."""
    if isinstance(value, Name):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(written, value)) + "]"
    return repr(value)


def resolved(value: Any, activations: Any, where: str) -> Any:
    """Return arguments with the classes that their names stand for.

    ``module:Class`` under a key that ends with ``_class`` is the user's own.

    Args:
        value: as `read_arguments` gives it
        activations: module with the activations: ``torch.nn``, or ``flax.linen``
        where: what the errors start with

    Raises:
        UserError: there is no such class.
    """
    if isinstance(value, Name):
        return _of_torch(value, activations, where)
    if isinstance(value, dict):
        return {
            key: import_object(spelled(item), f"{where}: {key}")
            if key.endswith("_class") and type(item) is str
            else resolved(item, activations, where)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [resolved(item, activations, where) for item in value]
    return value


def activation(name: str, module: Any) -> Any:
    """Return the activation of this name: a class of torch.nn, or a function of flax.linen."""
    return getattr(module, ACTIVATIONS[name], None) or getattr(module, name)


def _of_torch(name: Name, activations: Any, where: str) -> Any:
    import torch

    kind, _, own = name.partition(".")
    if kind == "nn":
        ours = {theirs: known for known, theirs in ACTIVATIONS.items()}
        return activation(ours[own], activations)
    if activations is not torch.nn:
        raise UserError(f"{where}: {name} is PyTorch's; SBX has optimizers of its own")
    return getattr(torch.optim, own)


def _expression(text: str, where: str) -> ast.expr:
    if len(text) > LONGEST:
        raise UserError(f"{where} has more than {LONGEST:,} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(
            f"{where} is {text[:60]!r}, which is not written as Python: write {_EXAMPLE}"
        ) from None


def _read(node: ast.expr, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise UserError(f"{where} is nested too deeply")
    match node:
        case ast.Constant(value=None | bool() | str()):
            return node.value
        case ast.Constant(value=float() as number) if math.isfinite(number):
            return number
        case ast.Constant(value=int()):
            return _size(int(node.value), where)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List() | ast.Tuple():
            return [_read(item, where, depth + 1) for item in node.elts]
        case ast.Dict() | ast.Call(func=ast.Name(id="dict"), args=[]):
            return {key: _read(item, where, depth + 1) for key, item in _pairs(node, where)}
        case ast.Name() | ast.Attribute():
            return _name(_dotted(node) or "", where)
    said = ast.unparse(node) if depth < DEEPEST else "..."
    raise UserError(
        f"{where}: {said[:60]!r} is not allowed there; numbers, texts, lists, dict(...) and names "
        "such as nn.ReLU are"
    )


def _pairs(node: ast.Dict | ast.Call, where: str) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Call):
        keys: list[Any] = [keyword.arg for keyword in node.keywords]
        values = [keyword.value for keyword in node.keywords]
    else:
        keys = [getattr(key, "value", None) for key in node.keys]
        values = node.values
    if not all(isinstance(key, str) for key in keys):
        raise UserError(f"{where}: the keys must be names")
    yield from zip(keys, values, strict=True)


def _size(number: int, where: str) -> int:
    if abs(number) > WIDEST:
        raise UserError(f"{where}: {str(number)[:20]} is too large; at most {WIDEST:,}")
    return number


def _dotted(node: ast.expr) -> str | None:
    """Return ``a.b.c`` of names alone."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


def _name(name: str, where: str) -> Name:
    known = _TORCH.fullmatch(name)
    allowed = {"nn": list(ACTIVATIONS.values()), "optim": list(OPTIMIZERS)}
    if known and known[2] in allowed[known[1]]:
        return Name(f"{known[1]}.{known[2]}")
    names = [f"nn.{own}" for own in allowed["nn"]] + [f"th.optim.{own}" for own in OPTIMIZERS]
    raise UserError(f"{where}: {name[:60]!r} is not allowed there; of names, {', '.join(names)}")
