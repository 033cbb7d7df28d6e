"""Coverage-guided fuzzing of the readers of foreign files.

  pip install atheris
  python scripts/fuzz.py space corpus/space -max_total_time=300

The corpus folder is created if it does not exist; a later run continues with its contents. All
further arguments are passed to libFuzzer. An input that ends in anything but a UserError, or takes
longer than 10 s, is a finding: libFuzzer writes it to the folder ``findings`` of the corpus and
stops.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

try:
    import atheris
except ModuleNotFoundError:
    sys.exit("fuzz.py needs the package atheris: pip install atheris")

with atheris.instrument_imports(
    include=["rltune", "yaml", "zipfile", "torch._weights_only_unpickler"]
):
    import numpy as np
    import rltune
    import torch
    from rltune.agents.errors import UserError
    from rltune.agents.loop import checkpoint
    from rltune.agents.model_files import parse_model
    from rltune.common.reading import load_yaml
    from rltune.comparing.sb3_logs import read_logs
    from rltune.space.expressions import Expression
    from rltune.space.space import Space
    from rltune.space.yaml_lines import parse_yaml

SPACES = Path(rltune.__file__).resolve().parent.parent / "search_spaces"
FOLDER = Path(tempfile.mkdtemp(prefix="rltune-fuzz-"))
VALUES = {"n_steps": 32, "gamma": 0.99, "optimizer": "adam", "n_envs": 8}


def text_of(data: bytes) -> str:
    """Return the bytes as text; any bytes are valid."""
    return data.decode("utf-8", errors="replace")


def written(data: bytes, name: str) -> Path:
    """Return a file with the bytes."""
    file = FOLDER / name
    file.write_bytes(data)
    return file


def space(data: bytes) -> None:
    """A search space, and a configuration drawn from it."""
    found = Space.load(str(written(data, "space.yaml")))
    found.sample(np.random.default_rng(0))


def expression(data: bytes) -> None:
    """A constraint or a derived value."""
    Expression(text_of(data)).evaluate(VALUES)


def yaml_lines(data: bytes) -> None:
    """YAML with its lines."""
    parse_yaml(text_of(data), "some.yaml")


def yaml_file(data: bytes) -> None:
    """A YAML file of a run directory."""
    load_yaml(written(data, "some.yaml"))


def state(data: bytes) -> None:
    """A checkpoint."""
    checkpoint.read(written(data, "agent.pt"))


def pickled(data: bytes) -> None:
    """The pickle in a checkpoint."""
    file = FOLDER / "agent.pt"
    with zipfile.ZipFile(file, "w") as parts:
        parts.writestr("agent/data.pkl", data)
        parts.writestr("agent/version", "3\n")
        parts.writestr("agent/byteorder", "little")
        parts.writestr("agent/data/0", bytes(16))
    checkpoint.read(file)


def model(data: bytes) -> None:
    """A model file of xagents."""
    parse_model(text_of(data), ("softmax", ""), "some.cfg")


def monitor(data: bytes) -> None:
    """A monitor.csv of Stable-Baselines3."""
    read_logs(written(data, "monitor.csv"), env="CartPole-v1")


def evaluations(data: bytes) -> None:
    """An evaluations.npz of Stable-Baselines3."""
    read_logs(written(data, "evaluations.npz"), env="CartPole-v1")


def seeds() -> dict[str, list[bytes]]:
    """Return initial inputs, by target."""
    spaces = [file.read_bytes() for file in sorted(SPACES.glob("*.yaml"))]
    whole, arrays = io.BytesIO(), io.BytesIO()
    head = {"format": checkpoint.FORMAT, "version": 1, "agent": "ppo", "env": "x", "extra": {}}
    torch.save({**head, "a": torch.zeros(4)}, whole)
    np.savez(arrays, timesteps=np.arange(2), results=np.zeros((2, 3)), ep_lengths=np.ones((2, 3)))
    with zipfile.ZipFile(whole) as parts:
        inside = parts.read(next(name for name in parts.namelist() if name.endswith("data.pkl")))
    return {
        "space": spaces,
        "expression": [b"max(1, n_steps // n_envs) <= 2 ** 8 and not gamma > 0.5"],
        "yaml_lines": spaces,
        "yaml_file": [*spaces, b"a: &a [1, {b: 2}]\nc: [*a, .nan, 1e5, 2020-01-01]\n"],
        "state": [whole.getvalue()],
        "pickled": [inside],
        "model": [b"[dense-0]\nunits=64\ncommon=1\nactivation=relu\n[dense]\noutput=1\n[dense]\n"
                  b"output=1\n"],
        "monitor": [b'#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n1.0,9,0.1\n2,10,0.2\n'],
        "evaluations": [arrays.getvalue()],
    }  # fmt: skip


TARGETS: dict[str, Callable[[bytes], None]] = {
    **{"space": space, "expression": expression, "yaml_lines": yaml_lines, "yaml_file": yaml_file},
    **{"state": state, "pickled": pickled, "model": model, "monitor": monitor},
    **{"evaluations": evaluations},
}


def main() -> None:
    """Fuzz one target."""
    if len(sys.argv) < 3 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: fuzz.py {'|'.join(TARGETS)} CORPUS [libFuzzer's options]")
    target, corpus = TARGETS[sys.argv[1]], Path(sys.argv[2])
    (corpus / "findings").mkdir(parents=True, exist_ok=True)
    (corpus / "inputs").mkdir(exist_ok=True)
    for number, content in enumerate(seeds()[sys.argv[1]]):
        (corpus / "inputs" / f"seed-{number}").write_bytes(content)

    def one(data: bytes) -> None:
        with contextlib.suppress(UserError):
            target(data)

    options = ["-timeout=10", "-rss_limit_mb=4096", "-max_len=20000", *sys.argv[3:]]
    where = [f"-artifact_prefix={corpus / 'findings'}/", str(corpus / "inputs")]
    atheris.Setup([sys.argv[0], *options, *where], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
