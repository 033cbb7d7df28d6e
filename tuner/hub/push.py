"""Pushing: a folder with card, policy, configuration, curves and clip, and its way to the hub."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rltune.agents.config import config_dict
from rltune.agents.errors import UserError
from rltune.agents.loop import saved_policy
from rltune.analysis.summary import Summary
from rltune.backends.checkpoints import find_checkpoint, load_agent, place_of
from rltune.common.redaction import masked
from rltune.hub import client
from rltune.hub.card import ANSWER, Card
from rltune.reporting.figures import learning_curves, training
from rltune.runs.directory import find_run
from rltune.runs.reader import RunReader, read_run

CLIPS = ("clip.mp4", "clip.gif")


@dataclass(frozen=True)
class Pushed:
    """What was pushed: where to, and the files."""

    url: str
    files: list[str]


def push(
    run: str | os.PathLike[str],
    to: str,
    *,
    best: bool = False,
    trial: int | None = None,
    episodes: int = 10,
    private: bool = False,
) -> Pushed:
    """Put the policy of a run on the hub, with a model card that says how good it is.

    The layout is that of Stable-Baselines3's models there: README.md, the policy, its
    configuration, results.json and a clip. Nothing of a checkpoint but the policy's weights leaves
    the machine, and no secret of the configuration.

    Args:
        run: as in `rltune.load`
        to: the repository, USER/NAME; it is made where there is none
        best: of a training, the policy of its best evaluation, not the last
        trial: of a search, the policy of this trial, not the winner's
        episodes: greedy ones, that the card tells the mean return of
        private: make a private repository

    Raises:
        UserError: there is no such run, its policy can't be saved, or the hub refuses.
    """
    hub = client.hub_module()
    with tempfile.TemporaryDirectory(prefix="rltune-push-") as folder:
        gather(run, to, Path(folder), best=best, trial=trial, episodes=episodes)
        files = sorted(path.name for path in Path(folder).iterdir())
        with client.errors(to):
            api = hub.HfApi()
            url = str(api.create_repo(to, exist_ok=True, private=private))
            api.upload_folder(repo_id=to, folder_path=folder, commit_message="rltune push")
    return Pushed(url, files)


def gather(
    run: str | os.PathLike[str],
    repo: str,
    folder: Path,
    *,
    best: bool = False,
    trial: int | None = None,
    episodes: int = 10,
) -> None:
    """Write all that is to be pushed into an empty folder; the arguments are those of `push`."""
    place = place_of(run)
    agent: Any = load_agent(find_checkpoint(place, best=best, trial=trial))
    try:
        if not hasattr(agent, "normalizers"):
            raise UserError(
                f"{agent.algorithm_spec} has no policy that could be pushed; rltune's own have"
            )
        saved_policy.write(folder / "policy.pt", agent, {"repo": repo})
        found = agent.evaluate(episodes)
        config, name, env = config_dict(agent.config), agent.algorithm_spec, agent.env
    finally:
        agent.close()
    config = masked(config)
    _write_yaml(folder / "config.yaml", config)
    results = {
        "mean_reward": found.mean,
        "std_reward": found.std,
        "n_eval_episodes": episodes,
        "is_deterministic": True,
        "eval_datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
    }
    (folder / "results.json").write_text(json.dumps(results, indent=2))
    reader = _reader(place)
    is_winner = reader is not None and trial is None
    answer = reader.read_yaml(ANSWER) if reader is not None and is_winner else None
    files = _pictures(reader, folder, is_winner=is_winner) if reader is not None else {}
    if answer:
        _write_yaml(folder / "answer.yaml", masked(answer))
    command = ""
    if reader is not None and is_winner and (file := reader.path / "best" / "command.txt").exists():
        command = file.read_text().strip()
    card = Card(repo, name, env, config, found.mean, found.std, episodes, answer, command, files)
    (folder / "README.md").write_text(card.text())


def _reader(place: str) -> RunReader | None:
    """Return the run that the policy is of; None: it is a file alone."""
    return None if Path(place).is_file() else read_run(find_run(place))


def _pictures(reader: RunReader, folder: Path, *, is_winner: bool) -> dict[str, str]:
    """Copy the clip and draw the curves; return the files by what they are."""
    found = {}
    for name in CLIPS if is_winner else ():
        if (clip := reader.path / "best" / name).exists():
            shutil.copyfile(clip, folder / f"replay{clip.suffix}")
            found["clip"] = f"replay{clip.suffix}"
            break
    summary = Summary(reader)
    if (chart := training(summary) or learning_curves(summary)) is not None:
        (folder / "curves.png").write_bytes(chart.png())
        found["curves"] = "curves.png"
    return found


def _write_yaml(file: Path, data: Mapping[str, Any]) -> None:
    file.write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
