"""Exports to ONNX: a policy's graph, with what it says of itself as metadata properties."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.exporting.exportable_policy import ExportablePolicy

OPSET = 17  # layer normalisation is an operator since then


def write_onnx(found: ExportablePolicy, path: Path) -> None:
    """Write the file; its inputs and outputs take any number of rows.

    PyTorch's exporter by tracing is used: the one by torch.export takes seconds for what is small
    and without control flow, and needs more packages.
    """
    import onnx
    import torch

    graph = found.graph
    ports = [*graph.inputs, *graph.outputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            graph.examples(2),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=[port.name for port in graph.inputs],
            output_names=[port.name for port in graph.outputs],
            dynamic_axes={port.name: {0: "batch"} for port in ports},
        )
    model = onnx.load(path)
    for port, info in zip(ports, [*model.graph.input, *model.graph.output], strict=True):
        for size, dimension in zip(port.shape, info.type.tensor_type.shape.dim[1:], strict=True):
            dimension.dim_value = size  # some are lost on the way
    onnx.helper.set_model_props(model, found.about.texts())
    model.producer_name, model.producer_version = "rltune", found.about.rltune
    model.doc_string = f"{found.about.agent} on {found.about.env}"
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())
