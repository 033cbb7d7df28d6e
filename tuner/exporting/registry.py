"""The registry of export targets: each format and the function that writes it."""

from __future__ import annotations

# Format -> module and function; read by the command line, so nothing heavy is imported here.
FORMATS = {
    "rltune": ("rltune.exporting.to_rltune", "as_command"),
    "zoo": ("rltune.exporting.to_sb3", "as_zoo"),
    "sb3": ("rltune.exporting.to_sb3", "as_sb3"),
    "cleanrl": ("rltune.exporting.to_cleanrl", "as_cleanrl"),
    "rllib": ("rltune.exporting.to_rllib", "as_rllib"),
    "yaml": ("rltune.exporting.to_rltune", "as_yaml"),
    "json": ("rltune.exporting.to_rltune", "as_json"),
}
