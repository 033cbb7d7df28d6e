"""Model files: networks as xagents describes them, the toolkit that this one succeeds.

A file lists the layers from the observation on, with a ``[section]`` and ``key=value`` for each::

    [convolutional]   filters, size, stride     a two-dimensional convolution without padding
    [flatten]                                   between the convolutions and the dense layers
    [dense]           units                     a linear layer

Convolutions and dense layers may have an ``activation`` (linear, tanh, relu, elu, silu; linear
unless given) and an ``initializer`` (orthogonal with a ``gain``, or glorot_uniform, which they have
unless given). Sections may be numbered (``[dense-0]``). Comment lines begin with # or ;.

The last layers have ``output=1`` and no units: the agent knows how many. Where actor and critic
come from one file there are two of them, the actor's first, and the layer before has ``common=1``.

A configuration holds the file's content as one line, so that nothing depends on the file later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError, unknown

ACTIVATIONS = ("linear", "tanh", "relu", "elu", "silu")
RULES = {"orthogonal": "orthogonal", "glorot_uniform": "xavier"}
_KEYS = {
    "convolutional": ("filters", "size", "stride", "activation", "initializer", "gain", "common"),
    "flatten": ("common",),
    "dense": ("units", "activation", "initializer", "gain", "common", "output"),
}
_NEEDED = {"convolutional": ("filters", "size", "stride"), "flatten": (), "dense": ()}
_SECTION = re.compile(r"(\w+?)[-_ ]?\d*")
_TOKEN = re.compile(r"\[([^\]]*)\]|([^\s=:\[]+)\s*[=:][^\S\n]*([^\s\[]*)")


@dataclass(frozen=True)
class Layer:
    """A section; what it does not have is 0, or what it is unless given."""

    kind: str
    filters: int = 0
    size: int = 0
    stride: int = 0
    units: int = 0
    activation: str = "linear"
    initializer: str = "glorot_uniform"
    gain: float = 1.0
    common: bool = False
    output: bool = False

    @property
    def rule(self) -> tuple[float, str]:
        """The weights' gain and rule, as `networks.layers.initialise` wants them."""
        return self.gain, RULES[self.initializer]


@dataclass(frozen=True)
class Model:
    """The layers of a file, and the output layers behind them."""

    layers: tuple[Layer, ...]
    outputs: tuple[Layer, ...]

    def text(self) -> str:
        """Return the text of the file, in one line."""
        return " ".join(map(_text, (*self.layers, *self.outputs)))


def read_model(value: str, outputs: tuple[str, ...]) -> Model:
    """Return the model in a file, or in the text of one.

    Args:
        value: a path from the current directory, or a text, which begins with ``[``
        outputs: for each output layer the activation that it may name, since the agent applies it
            anyway; "" for none

    Raises:
        UserError: no such file, or what is wrong in which line and what to write instead.
    """
    if value.lstrip().startswith("["):
        return parse_model(value, outputs, "model")
    try:
        text = Path(value).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"model file {value} does not exist") from None
    except UnicodeDecodeError:
        raise UserError(f"model file {value} is not a text") from None
    except OSError as error:
        raise UserError(f"model file {value} can't be read: {error.strerror}") from error
    except ValueError as error:  # a null byte, half of a character
        raise UserError(f"model {value!r} is no name of a file") from error
    return parse_model(text, outputs, value)


def parse_model(text: str, outputs: tuple[str, ...], source: str) -> Model:
    """Return the model in a text; ``source`` and the line are what the errors start with.

    Raises:
        UserError: as `read_model`.
    """
    found: list[tuple[Layer, str]] = []  # with the place
    for kind, values, where in _sections(text, source):
        for key in _NEEDED[kind]:
            if key not in values:
                raise UserError(f"{where}: [{kind}] needs {key}; write {key}={_EXAMPLE[key]}")
        found.append((Layer(kind, **values), where))
    _check_order(found, outputs, source)
    n_layers = len(found) - len(outputs)
    layers = [layer for layer, _ in found]
    # What an output layer may name is the agent's anyway.
    ends = tuple(replace(layer, activation="linear") for layer in layers[n_layers:])
    return Model(tuple(layers[:n_layers]), ends)


def _sections(text: str, source: str) -> list[tuple[str, dict[str, Any], str]]:
    """Return kind, values and place of each section."""
    sections: list[tuple[str, dict[str, Any], str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}:{number}"
        if line.lstrip().startswith(("#", ";")):
            continue
        rest = _TOKEN.sub("", line).strip()
        if rest:
            raise UserError(f"{where}: {rest!r} is neither a [section] nor key=value")
        for match in _TOKEN.finditer(line):
            name, key, value = match.groups()
            if name is not None:
                sections.append((_kind(name, where), {}, where))
            elif not sections:
                raise UserError(f"{where}: {key} stands before the first section; write [dense]")
            else:
                _put(*sections[-1][:2], key.lower(), value, where)
    if not sections:
        raise UserError(f"{source}: there is no layer; write a [dense] with output=1")
    return sections


def _kind(name: str, where: str) -> str:
    match = _SECTION.fullmatch(name.strip())
    if match is None or match[1] not in _KEYS:
        raise unknown("section", name, _KEYS, where)
    return match[1]


def _put(kind: str, values: dict[str, Any], key: str, value: str, where: str) -> None:
    if key not in _KEYS[kind]:
        raise unknown(f"key of [{kind}]", key, _KEYS[kind], where)
    if key in values:
        raise UserError(f"{where}: {key} is given twice; keep one")
    try:
        values[key] = _READ[key](value)
    except ValueError:
        raise UserError(
            f"{where}: {key} is {value!r}, but must be {_EXPECTED[key]}; "
            f"write {key}={_EXAMPLE[key]}"
        ) from None


def _check_order(found: list[tuple[Layer, str]], outputs: tuple[str, ...], source: str) -> None:
    """Check what each layer says in its place."""
    n_outputs = sum(layer.output for layer, _ in found)
    if n_outputs != len(outputs):
        wanted = "one output layer" if len(outputs) == 1 else "output layers of actor and critic"
        raise UserError(
            f"{source}: {n_outputs} layers have output=1, but there must be {len(outputs)}: "
            f"{wanted}, at the end"
        )
    n_layers = len(found) - n_outputs
    before = "convolutional"  # the kind of the layer in front
    for i, (layer, where) in enumerate(found):
        if layer.output:
            if i < n_layers:
                raise UserError(f"{where}: output=1 stands before other layers; put it at the end")
            _check_output(layer, outputs[i - n_layers], where)
        elif layer.kind == "dense" and not layer.units:
            raise UserError(f"{where}: [dense] needs units; write units=64, or output=1")
        elif layer.activation == "softmax":
            raise UserError(f"{where}: softmax is for outputs; write activation=relu")
        if i and layer.kind != "dense" and before != "convolutional":
            raise UserError(
                f"{where}: [{layer.kind}] stands behind [{before}]; the order is [convolutional], "
                "[flatten], [dense]"
            )
        if i and layer.kind == "dense" and before == "convolutional":
            raise UserError(
                f"{where}: [dense] stands behind [convolutional]; put [flatten] between"
            )
        if layer.common and i != n_layers - 1:
            raise UserError(
                f"{where}: common=1 belongs to the last layer before the outputs, which all read it"
            )
        if layer.gain != 1 and layer.initializer != "orthogonal":
            raise UserError(f"{where}: gain needs initializer=orthogonal; add it, or drop gain")
        before = layer.kind
    if n_outputs > 1 and n_layers and not found[n_layers - 1][0].common:
        raise UserError(
            f"{found[n_layers - 1][1]}: actor and critic both read this layer; write common=1"
        )


def _check_output(layer: Layer, activation: str, where: str) -> None:
    if layer.units:
        raise UserError(f"{where}: an output layer is as large as the agent needs it; drop units")
    if layer.activation not in ("linear", activation):
        hint = f"; write {activation}, or drop it" if activation else "; drop it"
        raise UserError(
            f"{where}: this agent's output layer has no activation {layer.activation}{hint}"
        )


def _text(layer: Layer) -> str:
    words = [f"[{layer.kind}]"]
    for field in fields(layer)[1:]:
        value = getattr(layer, field.name)
        if value != field.default:
            words.append(f"{field.name}={int(value) if value is True else value}")
    return " ".join(words)


def _whole(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _gain(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise ValueError
    return float(text)


def _flag(text: str) -> bool:
    if text != "1":
        raise ValueError
    return True


def _one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    return lambda text: names[names.index(text)]


_READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("filters", "size", "stride", "units"), _whole),
    "activation": _one_of((*ACTIVATIONS, "softmax")),
    "initializer": _one_of(tuple(RULES)),
    "gain": _gain,
    "common": _flag,
    "output": _flag,
}
_EXPECTED = {
    **dict.fromkeys(("filters", "size", "stride", "units"), "a whole number of at least 1"),
    "activation": f"one of {', '.join(ACTIVATIONS)}",
    "initializer": f"one of {', '.join(RULES)}",
    "gain": "a positive number",
    "common": "1 or left out",
    "output": "1 or left out",
}
_EXAMPLE = {
    "filters": "32",
    "size": "3",
    "stride": "1",
    "units": "64",
    "activation": "relu",
    "initializer": "orthogonal",
    "gain": "1.0",
    "common": "1",
    "output": "1",
}
