"""The registry of export formats."""

from __future__ import annotations

from rltune.exporting.base import Exporter

EXPORTERS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter(
            name="rltune",
            help="the command, bit-equal on a CPU",
            suffix=".sh",
            function="rltune.exporting.to_rltune:as_command",
            cannot=(),
            makes_env=False,
        ),
        Exporter(
            name="yaml",
            help="what `rltune train --config` and the `start` of a search space take",
            suffix=".yaml",
            function="rltune.exporting.to_rltune:as_yaml",
            cannot=(),
            makes_env=False,
        ),
        Exporter(
            name="json",
            help="the same, for programs",
            suffix=".json",
            function="rltune.exporting.to_rltune:as_json",
            cannot=(),
            makes_env=False,
        ),
        Exporter(
            name="zoo",
            help="hyperparameters of rl-zoo3",
            suffix=".yml",
            function="rltune.exporting.to_sb3:as_zoo",
        ),
        Exporter(
            name="sb3",
            help="a script for Stable-Baselines3",
            suffix=".py",
            function="rltune.exporting.to_sb3:as_sb3",
        ),
        Exporter(
            name="cleanrl",
            help="the command line of a CleanRL script",
            suffix=".sh",
            function="rltune.exporting.to_cleanrl:as_cleanrl",
        ),
        Exporter(
            name="rllib",
            help="a script for RLlib",
            suffix=".py",
            function="rltune.exporting.to_rllib:as_rllib",
        ),
    )
}
