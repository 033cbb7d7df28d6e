"""Facts about an environment before training: `rltune env`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from rltune.agents.envs.make import as_made, build, find_spec, is_atari, is_own
from rltune.agents.envs.masks import mask_to_info
from rltune.agents.envs.vector import LONGEST_EPISODE
from rltune.agents.errors import UserError
from rltune.agents.loop.random_agent import RandomAgent
from rltune.agents.registry import agent_names
from rltune.agents.spaces import InputParts, Mixed, as_model_input
from rltune.backends.registry import backend_of, check_fit
from rltune.backends.single import backends
from rltune.stats.estimates import iqm
from rltune.training.presets import presets

RANDOM_EPISODES = 20
RANDOM_STEPS = 1000  # of an episode of random actions, at most


def env_facts(env: str, env_kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the facts about an environment, as JSON-able values.

    Keys: env, observations and actions (its spaces), time_limit (steps or None), solved_at (a
    return or None), seen (what agents see), notes (what is changed on the way), random (returns
    and lengths of random actions), agents (name -> why it does not fit, "" where it does), presets
    (agent -> names of known-good settings).

    Raises:
        UserError: no such environment, or one that no agent of rltune's can see or act in.
    """
    raw, limit = as_made(env, env_kwargs=env_kwargs)
    shown, _ = build(env, env_kwargs=env_kwargs)
    parts = InputParts(as_model_input(shown.observation_space))
    facts = {
        "env": env,
        "observations": str(raw.observation_space),
        "actions": str(raw.action_space),
        "time_limit": limit,
        "solved_at": None if is_own(env) else find_spec(env).reward_threshold,
        "seen": _seen(parts),
        "notes": _notes(env, raw, parts, limit),
    }
    for made in (raw, shown):
        made.close()  # type: ignore[no-untyped-call]
    played = RandomAgent(env, env_kwargs).evaluate(RANDOM_EPISODES, max_steps=RANDOM_STEPS)
    return {
        **facts,
        "random": {"returns": played.returns, "lengths": played.lengths},
        "agents": {name: _unfit(name, env, env_kwargs or {}) for name in _agents()},
        "presets": {
            agent: names
            for agent in agent_names()
            if (names := [preset.name for preset in presets(agent) if env in preset.env])
        },
    }


def _agents() -> list[str]:
    return [name for backend in backends() for name in backend.agents()]


def _unfit(agent: str, env: str, env_kwargs: Mapping[str, Any]) -> str:
    """Return the reason for which an agent with its defaults can't be trained there; "": it can."""
    try:
        check_fit(agent, env, [{}], env_kwargs, has_data=False)
    except UserError as error:
        return str(error)
    return ""


def _seen(parts: InputParts) -> str:
    """Return the agents' input in words."""
    space = parts.observation_space
    if isinstance(space, Mixed):
        images = ", ".join("x".join(map(str, image)) for image in space.images)
        text = f"a vector of {space.n_vector} numbers and images of {images}"
    elif parts.has_images:
        text = f"an image of {'x'.join(map(str, parts.shape))} (channels, height, width)"
    else:
        text = f"a vector of {parts.n_vector} numbers"
    return text + (f", and which of {parts.n_mask} actions are allowed" if parts.n_mask else "")


def _notes(
    env: str, raw: gymnasium.Env[Any, Any], parts: InputParts, limit: int | None
) -> list[str]:
    """Return notes on the wrappers' changes, and on pitfalls."""
    notes = []
    if is_atari(env):
        notes.append(
            "Atari's standard steps: no-ops at the start, 4 frames a decision, 84x84 grey, "
            "4 frames stacked; in training, rewards are clipped to their sign, and a lost life "
            "ends the learner's episode"
        )
    space, actions = mask_to_info(raw).observation_space, raw.action_space
    if not isinstance(space, spaces.Box):
        kind = type(space).__name__
        into = (
            "a vector and its images"
            if isinstance(parts.observation_space, Mixed)
            else "one vector"
        )
        notes.append(f"observations in a {kind} space are flattened into {into}")
    elif len(space.shape) != 1 and not parts.has_images:
        notes.append(f"observations of shape {space.shape} are flattened into one vector")
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        notes.append("observations become float32")
    if parts.n_mask:
        notes.append("action masks are heeded: a forbidden action is never taken")
    if isinstance(actions, spaces.Box):
        notes.append("actions are clipped to their bounds")
    elif np.any(getattr(actions, "start", 0)):
        notes.append("agents count actions from 0")
    if limit is None and not is_atari(env):
        notes.append(
            f"no time limit: episodes of evaluations are cut off after {LONGEST_EPISODE:,} steps; "
            '--env-kwargs "{max_episode_steps: N}" sets one'
        )
    return notes


def fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return the facts for people, line by line."""
    returns, lengths = facts["random"]["returns"], facts["random"]["lengths"]
    limit, solved = facts["time_limit"], facts["solved_at"]
    rows = {
        "observations": facts["observations"],
        "actions": facts["actions"],
        "time limit": "none" if limit is None else f"{limit:,} steps",
        "solved at": "" if solved is None else f"a return of {solved:g}",
        "agents see": facts["seen"],
        "random actions": f"return {iqm(returns):.6g} ({min(returns):.6g} to {max(returns):.6g}) "
        f"in {min(lengths)} to {max(lengths)} steps, {len(returns)} episodes",
    }
    lines = [facts["env"], *(f"  {name:<16}{text}" for name, text in rows.items() if text)]
    lines += [f"  - {note}" for note in facts["notes"]]
    fitting = [name for name, why in facts["agents"].items() if not why]
    lines.append("")
    for backend in backends():
        names = ", ".join(name for name in fitting if backend_of(name) is backend) or "none"
        theirs = f"{backend.name}'s, without building them"
        lines.append(f"{theirs if backend.prefix else 'agents that fit'}: {names}")
    lines += [f"  not {name}: {why}" for name, why in _reasons(facts["agents"]).items()]
    if known := ", ".join(f"{agent} {name}" for agent, name in _first(facts["presets"])):
        lines.append(f"known-good settings, for rltune train AGENT --preset NAME: {known}")
    return lines


def _first(presets: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    return [(agent, names[0]) for agent, names in presets.items()]


def _reasons(agents: Mapping[str, str]) -> dict[str, str]:
    """Return the agents that don't fit, grouped by reason."""
    together: dict[str, list[str]] = {}
    for name, why in agents.items():
        if why:
            for called in (name, name.upper()):
                if why.startswith(called):
                    why = "it" + why.removeprefix(called)
            together.setdefault(why, []).append(name)
    return {", ".join(names): why for why, names in together.items()}
