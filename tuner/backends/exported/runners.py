"""Runners of exported policies: files that ONNX Runtime or TorchScript computes."""

from __future__ import annotations

import json
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rltune.agents.errors import UserError
from rltune.backends.exported.about import About

Array = NDArray[Any]
ABOUT = "rltune.json"  # in a TorchScript
# A TorchScript is a program. Ours call these functions, and have one method, forward.
# fmt: off
FUNCTIONS = frozenset({
    "_convolution", "add", "argmax", "bmm", "cat", "chunk", "clamp", "elu", "exp", "expand",
    "expand_as", "flatten", "gelu", "gt", "hardtanh", "layer_norm", "leaky_relu", "linear", "log",
    "lt", "matmul", "max_pool2d", "maximum", "mean", "minimum", "mul", "neg", "relu", "reshape",
    "select", "sigmoid", "silu", "size", "slice", "softmax", "split", "split_with_sizes", "square",
    "squeeze", "stack", "sub", "sum", "tanh", "to", "transpose", "unbind", "unsqueeze", "view",
    "where", "zeros_like",
})
# fmt: on
LARGEST_PROGRAM = 2**24  # bytes, unpacked: the weights are not packed
# Whatever stands before a parenthesis, methods of tensors and definitions included.
_CALL = re.compile(r"(\w+)\s*\(")
_OWN = frozenset({"PolicyGraph", "forward"})
# Ours have none of these, which could stand between a name and its parenthesis, or hide one.
_ODD = re.compile(r"[#\\]|\)\s*\(|\]\s*\(")


class Runner(Protocol):
    """Computes an exported policy.

    Attributes:
        about: what the file says of itself
    """

    about: About

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs in their order; inputs have the names and types of ``about``."""


class OnnxRunner:
    """Computes an ONNX file by ONNX Runtime, on a CPU.

    Raises:
        UserError: onnxruntime is missing, or it is no file of ours.
    """

    def __init__(self, path: Path) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise UserError(
                f'{path} needs onnxruntime to be played: pip install "rltune[onnx]"'
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # the nets are small
        options.log_severity_level = 3
        with _damaged(path, "ONNX file"):
            # From its bytes, so that it can name no other file that holds its weights.
            self._session = onnxruntime.InferenceSession(
                path.read_bytes(), options, providers=["CPUExecutionProvider"]
            )
            found = dict(self._session.get_modelmeta().custom_metadata_map)
        self.about = About.from_texts(found, path)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs in their order."""
        return [np.asarray(output) for output in self._session.run(None, dict(inputs))]


class TorchScriptRunner:
    """Computes a TorchScript by PyTorch, on a CPU.

    Raises:
        UserError: it is no file of ours, or a program that does more than ours do.
    """

    def __init__(self, path: Path) -> None:
        import torch

        check_program(path)
        extra = {ABOUT: ""}
        with _damaged(path, "TorchScript"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load: Any = torch.jit.load
            self._module = load(str(path), map_location="cpu", _extra_files=extra)
            found = json.loads(extra[ABOUT])
        self.about = About.from_texts(found, path)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs in their order."""
        import torch

        with torch.no_grad():
            found = self._module(*(torch.from_numpy(array) for array in inputs.values()))
        outputs = found if isinstance(found, tuple) else (found,)
        return [output.numpy() for output in outputs]


def check_program(path: Path) -> None:
    """Raise `UserError` for a TorchScript that calls functions which ours don't call.

    PyTorch's language can read and write files. A policy has no need of that.
    """
    with _damaged(path, "TorchScript"), zipfile.ZipFile(path) as file:
        parts = file.infolist()
        packed = (part.file_size for part in parts if part.compress_type != zipfile.ZIP_STORED)
        if sum(packed) > LARGEST_PROGRAM:
            raise UserError(f"{path} is no policy that rltune exported: its parts are too large")
        # Attributes are pickled; a frozen module has none.
        code = [part for part in parts if "/code/" in part.filename]
        text = "\n".join(file.read(part).decode() for part in code if part.filename.endswith(".py"))
    called = [*_ODD.findall(text), *sorted({*_CALL.findall(text)} - FUNCTIONS - _OWN)]
    if called:
        raise UserError(
            f"{path} is no policy that rltune exported: its program calls {called[0]!r}, "
            "which is no part of one"
        )


@contextmanager
def _damaged(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever goes wrong with a file into a UserError."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{kind} {path} can't be read: {error.strerror or error}") from error
    except Exception as error:
        raise UserError(f"{path} is no {kind} that rltune exported, or is damaged") from error


def about_json(about: About) -> str:
    """Return what a TorchScript says of itself."""
    return json.dumps(about.texts())
