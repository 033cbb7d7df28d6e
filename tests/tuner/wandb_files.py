"""Reads what wandb leaves on disk when it is offline: what `wandb sync` would send."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def log_records(path: Path) -> list[Any]:
    """Read a .wandb file: LevelDB's log format, 7 bytes of header, protobuf records inside."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, records, begun = path.read_bytes(), 7, [], b""
    assert data.startswith(b":W&B")
    while position < len(data):
        room = 32768 - position % 32768
        if room < 7:
            position += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if kind == 0:
            break
        begun += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(begun)
            records.append(record)
            begun = b""
    return records


def values(items: Any) -> dict[str, Any]:
    return {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}


def offline_runs(run: Path) -> dict[str, dict[str, Any]]:
    """Return the data that `wandb sync` would send, by run name."""
    found = {}
    for file in (run / "wandb").glob("offline-run-*/*.wandb"):
        about: dict[str, Any] = {
            "history": [],
            "summary": {},
            "exit": None,
            "metrics": {},
            "artifacts": {},
        }
        for record in log_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                about["run"] = record.run
                about["config"] = values(record.run.config.update)
            elif kind == "history":
                row = values(record.history.item)
                about["history"].append({k: v for k, v in row.items() if not k.startswith("_")})
            elif kind == "summary":
                about["summary"] |= values(record.summary.update)
            elif kind == "artifact":
                made = record.artifact
                about["artifacts"][made.name] = {e.path for e in made.manifest.contents}
            elif kind == "metric":
                metric = record.metric
                about["metrics"][metric.name or metric.glob_name] = metric.step_metric
            elif kind == "exit":
                about["exit"] = record.exit.exit_code
        if "run" in about:  # it is buffered for a moment
            found[about["run"].display_name] = about
    return found
