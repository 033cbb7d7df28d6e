"""Trainings read from logs of Stable-Baselines3 and rl-zoo3: monitors, evaluations, arguments.

A folder with such files is one training: rl-zoo3 writes ``ALGO/ENV_N/`` with ``N.monitor.csv`` of
each environment that it trains in, ``evaluations.npz`` of its EvalCallback, and ``ENV/args.yml``
and ``config.yml``. Plain Stable-Baselines3 writes what the user has asked for, where they asked.
"""

from __future__ import annotations

import json
import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rltune.agents.errors import UserError
from rltune.common.reading import load_yaml
from rltune.comparing.trainings import (
    EVALUATION,
    TRAINING,
    Array,
    Curve,
    TrainingRecord,
    canonical,
    env_name,
)

EVALUATIONS = "evaluations.npz"
MONITOR = "monitor.csv"
# Metric -> the array of evaluations.npz.
ARRAYS = {EVALUATION: "results", "success_rate": "successes", "eval_length": "ep_lengths"}
WINDOW = 100  # episodes that Stable-Baselines3 averages over as ep_rew_mean
POINTS = 50  # of a curve made of episodes
LARGEST = 1_000_000_000  # bytes of the arrays in a file
DEEPEST = 4  # folders below the one that was given: logs/ALGO/ENV_N/...


@dataclass(frozen=True)
class _Episodes:
    """The episodes of a training in the order of their ends; all of shape (episodes,)."""

    env_steps: Array  # so far, summed over environments
    returns: Array
    seconds: Array
    env: str | None
    hidden: float  # env steps that episodes which haven't ended may hide, at most


def holds_logs(path: Path) -> bool:
    """Whether the folder has, somewhere below, logs of Stable-Baselines3; or is such a file."""
    return next(_folders(path), None) is not None


def read_logs(path: Path, metric: str = EVALUATION, env: str | None = None) -> list[TrainingRecord]:
    """Return all trainings below a folder, or that of one file.

    Args:
        path: the folder or file
        metric: "eval_return", "success_rate" or "eval_length" of evaluations.npz, or "mean_reward"
            of the training episodes in monitor files; a minus in front: the lower the better
        env: the environment of logs that don't say it

    Raises:
        UserError: a damaged file, an unknown environment, or no such metric.
    """
    return [_training(folder, files, metric, env) for folder, files in _folders(path)]


# ----------------------------------------------------------------------------------- which files


def _folders(path: Path, depth: int = 0) -> Iterator[tuple[Path, list[Path]]]:
    """Yield the folder and the files of each training."""
    if path.is_file():
        if path.name.endswith((MONITOR, ".npz")):
            yield path.parent, [path]
        return
    try:
        inside = sorted(path.iterdir(), key=_by_number)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from None
    monitors = [file for file in inside if file.is_file() and file.name.endswith(MONITOR)]
    found = [file for file in inside if file.name == EVALUATIONS and file.is_file()]
    if monitors or found:
        if not found:  # of an EvalCallback with a folder of its own
            found = sorted(path.glob(f"*/{EVALUATIONS}"))[:1]
        numbered = all(re.fullmatch(rf"(\d+\.)?{re.escape(MONITOR)}", m.name) for m in monitors)
        if found or numbered:
            yield path, [*found, *monitors]
        else:  # names of the user's own: each is a training
            for file in monitors:
                yield path, [file]
        return
    if depth < DEEPEST:
        for file in inside:
            if file.is_dir() and not file.is_symlink() and not file.name.startswith("."):
                yield from _folders(file, depth + 1)


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Sort CartPole-v1_2 before CartPole-v1_10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", path.name)]


# -------------------------------------------------------------------------------- what they say


def _training(folder: Path, files: Sequence[Path], metric: str, env: str | None) -> TrainingRecord:
    evaluations = next((file for file in files if file.suffix == ".npz"), None)
    monitors = [file for file in files if file.name.endswith(MONITOR)]
    episodes = _episodes(monitors) if monitors else None
    args, config = _zoo_settings(folder)
    name, sign = metric.removeprefix("-"), -1.0 if metric.startswith("-") else 1.0
    of = metric
    if name == TRAINING or (name == EVALUATION and evaluations is None):
        if episodes is None:
            raise UserError(f"{folder} has no training episodes: it has no monitor file.")
        curve, of = _rolling(episodes, folder), metric.replace(EVALUATION, TRAINING)
    elif evaluations is None or name not in ARRAYS:
        raise UserError(
            f"{folder} has no metric {name!r}; logs of Stable-Baselines3 have "
            f"{', '.join(ARRAYS)} (of {EVALUATIONS}) and {TRAINING} (of {MONITOR})."
        )
    else:
        curve = _evaluated(evaluations, ARRAYS[name], episodes)
    curve = Curve(curve.env_steps, sign * curve.values, curve.seconds)
    algorithm = args.get("algo") or _algorithm(folder)
    place = (episodes and episodes.env) or args.get("env") or _environment(folder) or env
    if place is None:
        raise UserError(f"{folder} doesn't say of which environment it is; --env ENV does.")
    planned = _number(args.get("n_timesteps")) or _number(config.get("n_timesteps"))
    reached = float(curve.env_steps[-1]) if len(curve.env_steps) else 0.0
    if episodes is not None:
        reached = max(reached, float(episodes.env_steps[-1]))
        if planned and reached < planned <= reached + episodes.hidden:
            reached = planned
    kept = {key: value for key, value in config.items() if key != "n_timesteps"}
    seed = args.get("seed")
    own_name = len(files) == 1 and files[0].name not in (MONITOR, EVALUATIONS)
    return TrainingRecord(
        name=files[0].name.removesuffix(f".{MONITOR}") if own_name else folder.name,
        source=files[0] if len(files) == 1 else folder,
        agent=f"sb3 {algorithm}",
        env=env_name(str(place), args.get("env_kwargs")),
        curve=curve,
        metric=of,
        config=kept or None,
        variant=canonical(kept) if kept else "",
        seed=int(seed) if isinstance(seed, int) and seed >= 0 else None,
        planned=int(planned) or None,
        reached=int(reached),
    )


def _number(value: object) -> float:
    """Return a number above 0, or 0."""
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        return 0.0


def _algorithm(folder: Path) -> str:
    """Return the name of the algorithm, by rl-zoo3's folders or as the folder is called."""
    if folder.name in ("eval", "evaluations", "logs"):
        folder = folder.parent
    if re.fullmatch(r".+-v\d+_\d+", folder.name):
        return folder.parent.name
    return re.sub(r"[-_]?(seed)?[-_]?\d+$", "", folder.name) or folder.name


def _environment(folder: Path) -> str | None:
    """Return the environment of a folder ENV_N of rl-zoo3, which writes "-" for "/"."""
    inside = [file.parent.name for file in folder.glob("*/args.yml")]
    match = re.fullmatch(r"(.+-v\d+)_\d+", folder.name)
    return inside[0] if inside else match[1] if match else None


class _ZooLoader(yaml.SafeLoader):
    """YAML with rl-zoo3's OrderedDicts and tuples, and no other Python object."""


def _ordered(loader: _ZooLoader, node: yaml.SequenceNode) -> dict[str, Any]:
    pairs = loader.construct_sequence(node, deep=True)
    return dict(pairs[0]) if pairs else {}


def _as_list(loader: _ZooLoader, node: yaml.SequenceNode) -> list[Any]:
    return list(loader.construct_sequence(node, deep=True))


def _as_text(loader: _ZooLoader, suffix: str, node: yaml.Node) -> str:
    return suffix


_PYTHON = "tag:yaml.org,2002:python/"
_ZooLoader.add_constructor(f"{_PYTHON}object/apply:collections.OrderedDict", _ordered)
_ZooLoader.add_constructor(f"{_PYTHON}tuple", _as_list)
_ZooLoader.add_multi_constructor(_PYTHON, _as_text)


def _zoo_settings(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return rl-zoo3's args.yml and config.yml, empty where there are none."""
    found = []
    for name in ("args.yml", "config.yml"):
        files = [*folder.glob(name), *folder.glob(f"*/{name}")]
        content = load_yaml(files[0], _ZooLoader) if files else {}
        found.append(content if isinstance(content, dict) else {})
    return found[0], found[1]


# ------------------------------------------------------------------------------------ the numbers


def _evaluated(file: Path, array: str, episodes: _Episodes | None) -> Curve:
    """Return the means of evaluations.npz; their times are those of the training episodes."""
    try:
        with zipfile.ZipFile(file) as parts:
            if sum(part.file_size for part in parts.infolist()) > LARGEST:
                raise UserError(f"{file} is too large: more than {LARGEST:,} bytes.")
        with np.load(file, allow_pickle=False) as data:
            if array not in data:
                raise UserError(f"{file} has no {array!r}; it has {', '.join(data)}.")
            steps = np.asarray(data["timesteps"], dtype=np.float64)
            rows = np.asarray(data[array], dtype=np.float64)
    except UserError:
        raise
    except Exception:  # whatever a damaged archive leads to
        raise UserError(f"{file} is damaged, or not written by an EvalCallback.") from None
    if rows.ndim != 2 or steps.shape != rows.shape[:1] or not rows.size:
        raise UserError(f"{file} is damaged, or not written by an EvalCallback.")
    seconds = None
    if episodes is not None:
        seconds = np.interp(steps, episodes.env_steps, episodes.seconds)
    return Curve(steps, rows.mean(axis=1), seconds)


def _episodes(files: Sequence[Path]) -> _Episodes:
    """Return the episodes of all monitors of one training, in the order in which they ended."""
    import pandas as pd

    frames, env, begun = [], None, math.inf
    for file in files:
        try:
            with open(file, encoding="utf-8") as stream:
                head = stream.readline()
                about = json.loads(head[1:]) if head.startswith("#") else None
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    frame = pd.read_csv(stream, on_bad_lines="skip")
            if not isinstance(about, dict) or not {"r", "l", "t"} <= set(frame.columns):
                raise ValueError("no monitor file")
            frame = frame[["r", "l", "t"]].apply(pd.to_numeric, errors="coerce")
            started = float(about.get("t_start") or 0.0)
        except Exception:  # whatever a damaged table leads to
            raise UserError(f"{file} is damaged, or not written by a Monitor.") from None
        # A last line may be cut short where the process was killed.
        frame = frame.dropna(subset=["l", "t"])
        frames.append(frame.assign(t=frame["t"] + started))
        name = about.get("env_id")
        env = env or (str(name) if name and name != "None" else None)
        begun = min(begun, started)
    table = pd.concat(frames).sort_values("t", kind="stable")
    if not len(table):
        raise UserError(f"{files[0]} has no finished episode.")
    return _Episodes(
        np.cumsum(table["l"].to_numpy(float)),
        table["r"].to_numpy(float),
        table["t"].to_numpy(float) - begun,
        env,
        hidden=len(files) * float(table["l"].max()),
    )


def _rolling(episodes: _Episodes, folder: Path) -> Curve:
    """Return means over the last 100 episodes, at even distances of env steps."""
    sums = np.concatenate([[0.0], np.cumsum(episodes.returns)])
    end = episodes.env_steps[-1]
    steps = np.linspace(end / POINTS, end, POINTS)
    last = np.searchsorted(episodes.env_steps, steps * (1 + 1e-12), side="right")
    steps, last = steps[last > 0], last[last > 0]  # before the first episode ends nothing is known
    first = np.maximum(0, last - WINDOW)
    values = (sums[last] - sums[first]) / (last - first)
    return Curve(steps, values, np.interp(steps, episodes.env_steps, episodes.seconds))
