"""The registry of export formats: ours by name, and those of plug-ins when they are asked for."""

from __future__ import annotations

from rltune.agents.errors import UserError
from rltune.agents.plugins import PluginGroup
from rltune.exporting.base import Exporter, PolicyExporter, TextExporter

EXPORTERS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        TextExporter(
            name="rltune",
            help="the command, bit-equal on a CPU",
            suffix=".sh",
            function="rltune.exporting.to_rltune:as_command",
            cannot=(),
            makes_env=False,
        ),
        TextExporter(
            name="yaml",
            help="what `rltune train --config` and the `start` of a search space take",
            suffix=".yaml",
            function="rltune.exporting.to_rltune:as_yaml",
            cannot=(),
            makes_env=False,
        ),
        TextExporter(
            name="json",
            help="the same, for programs",
            suffix=".json",
            function="rltune.exporting.to_rltune:as_json",
            cannot=(),
            makes_env=False,
        ),
        TextExporter(
            name="zoo",
            help="hyperparameters of rl-zoo3",
            suffix=".yml",
            function="rltune.exporting.to_sb3:as_zoo",
        ),
        TextExporter(
            name="sb3",
            help="a script for Stable-Baselines3",
            suffix=".py",
            function="rltune.exporting.to_sb3:as_sb3",
        ),
        TextExporter(
            name="cleanrl",
            help="the command line of a CleanRL script",
            suffix=".sh",
            function="rltune.exporting.to_cleanrl:as_cleanrl",
        ),
        TextExporter(
            name="rllib",
            help="a script for RLlib",
            suffix=".py",
            function="rltune.exporting.to_rllib:as_rllib",
        ),
        PolicyExporter(
            name="onnx",
            help="the trained policy, for ONNX Runtime and whatever else reads ONNX",
            suffix=".onnx",
            function="rltune.exporting.to_onnx:write_onnx",
            packages=("onnx", "onnxruntime"),
        ),
        PolicyExporter(
            name="torchscript",
            help="the trained policy, for PyTorch without rltune, in Python or C++",
            suffix=".torchscript.pt",
            function="rltune.exporting.to_torchscript:write_torchscript",
        ),
        PolicyExporter(
            name="saved-policy",
            help="the trained policy's weights, for rltune and PyTorch",
            suffix=".policy.pt",
            function="rltune.exporting.to_saved_policy:write_saved_policy",
        ),
    )
}
TEXTS = {name: e for name, e in EXPORTERS.items() if isinstance(e, TextExporter)}
POLICIES = {name: e for name, e in EXPORTERS.items() if isinstance(e, PolicyExporter)}
PLUGINS = PluginGroup("exporters", "format", EXPORTERS)


def exporter(name: str) -> Exporter:
    """Return a format: ours, or that of a plug-in.

    Raises:
        UserError: there is none of this name, or it can't be imported, or it is none.
    """
    if name in EXPORTERS:
        return EXPORTERS[name]
    if ":" in name:
        raise UserError(f"--to {name}: a format is named by a plug-in; `rltune plugins` lists them")
    found = PLUGINS.load(name)
    if not isinstance(found, (TextExporter, PolicyExporter)) or found.name != name:
        raise UserError(
            f"format {name!r} is no TextExporter or PolicyExporter (rltune.exporting.base) with "
            f"the name {name!r}"
        )
    return found
