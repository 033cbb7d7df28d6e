"""What a file of demonstrations holds, as plain data and in words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from rltune.agents.demonstrations.episodes import Demonstrations
from rltune.agents.demonstrations.files import read, write
from rltune.common.formats import count, plural, score

MOST_SHOWN = 20  # episodes that are listed one by one


def found_in(source: str | os.PathLike[str]) -> Demonstrations:
    """Return the demonstrations of a file, or of a data set as "minari:NAME".

    Raises:
        UserError: there is no such file or data set, or it has no demonstrations.
    """
    from rltune.training.minari_data import PREFIX, from_minari

    name = os.fspath(source)
    return from_minari(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else read(name)


def convert(found: Demonstrations, target: str) -> None:
    """Write demonstrations to a file, or into a new data set as "minari:NAME".

    Raises:
        UserError: it can't be written, or there is one of this name.
    """
    from rltune.training.minari_data import PREFIX, to_minari

    if target.startswith(PREFIX):
        to_minari(found, target.removeprefix(PREFIX))
    else:
        write(found, target, "--to")


def facts(found: Demonstrations, source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the contents of ``source`` without the steps."""
    return {
        "file": os.fspath(source),
        "env": found.env,
        "env_kwargs": dict(found.env_kwargs),
        "source": found.source,
        "obs_shape": list(found.episodes[0].obs.shape[1:]),
        "actions": dict(found.actions),
        "steps": found.steps,
        "episodes": [
            {
                "return": episode.episode_return,
                "length": len(episode),
                "terminated": episode.terminated,
            }
            for episode in found.episodes
        ],
    }


def lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe the contents."""
    episodes = facts["episodes"]
    yield (
        f"{facts['file']}: {plural(len(episodes), 'episode')} of {facts['env']}, "
        f"{count(facts['steps'])} steps"
    )
    if facts["env_kwargs"]:
        yield f"arguments     {facts['env_kwargs']}"
    if facts["source"]:
        yield f"by            {facts['source']}"
    yield f"observations  {_sizes(facts['obs_shape'])} numbers"
    yield f"actions       {_actions(facts['actions'])}"
    returns = [episode["return"] for episode in episodes]
    spread = f", {score(min(returns))} to {score(max(returns))}" if len(returns) > 1 else ""
    yield f"return        {score(fmean(returns))} on average{spread}"
    yield ""
    yield "episode    return  steps  end"
    for number, episode in enumerate(episodes[:MOST_SHOWN]):
        end = "terminated" if episode["terminated"] else "cut off"
        yield f"{number:7}  {score(episode['return']):>8}  {episode['length']:5}  {end}"
    if len(episodes) > MOST_SHOWN:
        yield f"and {len(episodes) - MOST_SHOWN} more"


def _actions(about: Mapping[str, Any]) -> str:
    if "choices" in about:
        return f"{about['kind']}, choices of {' x '.join(map(str, about['choices']))}"
    return f"{about['kind']}, {_sizes(about['shape'])} numbers"


def _sizes(shape: list[int]) -> str:
    return " x ".join(map(str, shape)) or "1"
