"""Every file of a run damaged in every way: each command works or says one sentence."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from patience import patience
from rltune.cli import main
from searching import search

HERE = Path(__file__).parents[1]
READING = (
    "show", "show --json", "show --against env_steps", "report --no-pictures", "importances",
    "importances --method ped-anova", "export", "export --to json", "export --to yaml --trial 1",
    "compare", "compare --defaults --json", "replay", "replay --scheduler median --json",
)  # fmt: skip
RUNNING = ("eval --episodes 1", "play --frames {here}/frames --max-steps 2", "resume --trials 4")
FILES = (
    "run.yaml", "trials.parquet", "study.db", "history/*.parquet", "episodes/*.parquet",
    "best/answer.yaml", "best/config.yaml", "best/scores.yaml", "best/command.txt",
    "best/checkpoint.pt", "trials/0/checkpoint.pt",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished search with the toy agent, in whose folder the tests then work."""
    from serial_jobs import run_here

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE)
        patch.syspath_prepend(str(HERE))
        run_here(patch)
        folder = tmp_path_factory.mktemp("made")
        search(folder, budget=90, trials=3, evaluations=3, eval_episodes=1, test_seeds=2)
        yield folder / "run"


WRONG = (None, -1, 1e308, float("nan"), "x\x1b[31m", [1, [2]], {"a": {"b": 1}}, 10**30)


def contents(file: Path, rng: random.Random) -> Iterator[bytes | str]:
    """Yield damaged contents to stand there instead; "gone" and "folder" mean that."""
    whole = file.read_bytes()
    yield from (b"", whole[: len(whole) // 2], whole[:-1], rng.randbytes(200), "gone", "folder")
    for flips in (1, 1, 4, 40):
        bits = bytearray(whole)
        for _ in range(flips):
            bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
        yield bytes(bits)
    if file.suffix == ".yaml":
        yield from (b"null", b"[1, 2]", b"{}", b"\xff\xfe", b"&a [*a]", b"[" * 2000, b"a: b: c")
        yield from wrong_values(whole)
    if file.suffix == ".parquet":
        yield from wrong_tables(file)


def wrong_values(content: bytes) -> Iterator[bytes]:
    """Yield the file with one of its values gone, or of another kind."""
    data = yaml.safe_load(content)
    places = [(data, key) for key in data]
    places += [
        (value, key) for value in list(data.values()) if isinstance(value, dict) for key in value
    ]
    for inside, key in places:
        before = inside.pop(key)
        yield yaml.safe_dump(data).encode()
        for wrong in (
            None,
            -1,
            1e308,
            float("nan"),
            "x\x1b[31m",
            [1, [2]],
            {"a": {"b": 1}},
            10**30,
        ):
            inside[key] = wrong
            yield yaml.safe_dump(data).encode()
        inside[key] = before


def wrong_tables(file: Path) -> Iterator[bytes]:
    """Yield the table with one of its columns gone, empty or of another kind, and without rows."""
    frame = pd.read_parquet(file)
    tables = [frame.iloc[:0], pd.concat([frame, frame]), frame[::-1]]
    for name in frame.columns:
        tables.append(frame.drop(columns=name))
        for wrong in (None, "x", 2**62, -1, np.nan, np.inf):
            tables.append(frame.assign(**{name: wrong}))
    for table in tables:
        stream = io.BytesIO()
        table.to_parquet(stream, index=False)
        yield stream.getvalue()


def check(command: str, run: Path) -> None:
    name, *rest = command.format(here=run.parent).split()
    out, err = io.StringIO(), io.StringIO()
    with patience(60), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([name, str(run), *rest])
    said = err.getvalue()
    assert code in (0, 2)
    assert "Traceback" not in said
    if code == 2:
        assert len(said.strip().splitlines()) == 1, said
    (run.parent / "outside").read_text()


def damage(made: Path, folder: Path, file: Path, content: bytes | str) -> Path:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(made, run)
    target = run / file
    target.unlink()
    if content == "folder":
        target.mkdir()
    elif isinstance(content, bytes):
        target.write_bytes(content)
    return run


def damaged(made: Path, folder: Path, pattern: str, share: float, seed: int) -> Iterator[Path]:
    """Yield the run with the file damaged in a share of all ways, and in two at least."""
    rng = random.Random(f"{pattern} {seed}")
    (folder / "outside").write_text("as it was")
    (file,) = made.glob(pattern)
    every = list(contents(file, rng))
    for content in rng.sample(every, max(2, round(share * len(every)))):
        yield damage(made, folder, file.relative_to(made), content)


@pytest.mark.parametrize("pattern", FILES)
def test_a_damaged_file_ends_in_a_sentence(pattern: str, made: Path, tmp_path: Path) -> None:
    rng = random.Random(pattern)
    commands = {".pt": RUNNING[:2], ".db": RUNNING[2:]}.get(Path(pattern).suffix, READING)
    for run in damaged(made, tmp_path, pattern, 0.01 if commands is READING else 0.1, seed=0):
        check(rng.choice(commands), run)
    assert (tmp_path / "outside").read_text() == "as it was"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", FILES)
def test_more_damage_with_every_command(pattern: str, made: Path, tmp_path: Path) -> None:
    for run in damaged(made, tmp_path, pattern, 0.1, seed=1):
        for command in (*READING, *RUNNING):
            check(command, run)
