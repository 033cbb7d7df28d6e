"""Demonstrations from Minari's data sets, and into them, by Minari's own client.

Minari (https://minari.farama.org) keeps recorded episodes in a folder of its own, by name. Its
observations are the environment's; here they become what agents see.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces
from rltune.agents.demonstrations.episodes import Demonstration, Demonstrations, describe_actions
from rltune.agents.errors import UserError
from rltune.training.views import View

PREFIX = "minari:"
VIEW = {"frame_stack": 0, "small_images": False}
ACTIONS = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)


def from_minari(name: str) -> Demonstrations:
    """Return the episodes of a data set that is on this machine.

    Raises:
        UserError: Minari is not installed, there is no such data set, or agents can't see its
            observations or take its actions.
    """
    with _client(name) as minari:
        try:
            data = minari.load_dataset(name)
        except FileNotFoundError:
            raise UserError(
                f"there is no Minari data set {name!r} on this machine; "
                f"minari download {name} fetches it"
            ) from None
        if data.env_spec is None:
            raise UserError(f"the Minari data set {name!r} does not say its environment")
        env, space = str(data.env_spec.id), data.action_space
        if not isinstance(space, ACTIONS):
            raise UserError(f"{name}: actions in a {type(space).__name__} space are not supported")
        view = View(env, data.observation_space, space, False, VIEW)
        episodes = tuple(_shown(episode, view, space) for episode in data.iterate_episodes())
        if not episodes:
            raise UserError(f"the Minari data set {name!r} has no episode")
        kwargs = dict(data.env_spec.kwargs)
        about = describe_actions(space)
        return Demonstrations(env, kwargs, VIEW, about, episodes, f"Minari, {name}")


def _shown(episode: Any, view: View, space: Any) -> Demonstration:
    steps = len(episode.rewards)
    seen = [view.show(_at(episode.observations, t), t == 0, None) for t in range(steps + 1)]
    obs = np.stack(seen)
    if obs.dtype != np.uint8:
        obs = obs.astype(np.float32)
    if isinstance(space, spaces.Box):
        actions = np.asarray(episode.actions, np.float32)
    else:
        actions = np.asarray(episode.actions, np.int64) - getattr(space, "start", 0)
    rewards = np.asarray(episode.rewards, np.float64)
    return Demonstration(obs, actions, rewards, bool(episode.terminations[-1]))


def _at(observations: Any, t: int) -> Any:
    """Return one of the observations, which Minari keeps by key and part."""
    if isinstance(observations, dict):
        return {key: _at(part, t) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_at(part, t) for part in observations)
    return observations[t]


def to_minari(found: Demonstrations, name: str) -> None:
    """Make a data set of the episodes; its observations are those that agents see.

    Raises:
        UserError: Minari is not installed, the name is none or taken.
    """
    import gymnasium

    obs = found.episodes[0].obs
    image = obs.dtype == np.uint8
    low, high = (0, 255) if image else (-np.inf, np.inf)
    with _client(name) as minari:
        from minari.data_collector import EpisodeBuffer

        buffers = [
            EpisodeBuffer(
                id=number,
                observations=list(episode.obs),
                actions=list(episode.actions),
                rewards=episode.rewards.tolist(),
                terminations=[*[False] * (len(episode) - 1), episode.terminated],
                truncations=[*[False] * (len(episode) - 1), not episode.terminated],
            )
            for number, episode in enumerate(found.episodes)
        ]
        spec = None
        if found.env in gymnasium.registry:
            spec = copy.deepcopy(gymnasium.spec(found.env))  # that one is gymnasium's own
            spec.kwargs.update(found.env_kwargs)
        minari.create_dataset_from_buffers(
            name,
            buffers,
            env=spec,
            observation_space=spaces.Box(low, high, obs.shape[1:], obs.dtype.type),
            action_space=_space(found.actions),
            algorithm_name=found.source or "unknown",
            author="unknown",
            author_email="unknown",
            code_permalink="unknown",
            description="made by rltune",
        )


def _space(about: Any) -> spaces.Space[Any]:
    """Return the space that `describe_actions` has described."""
    if about["kind"] == "Box":
        return spaces.Box(-np.inf, np.inf, tuple(about["shape"]), np.float32)
    if about["kind"] == "Discrete":
        return spaces.Discrete(about["choices"][0])
    return spaces.MultiDiscrete(about["choices"])


@contextmanager
def _client(name: str) -> Iterator[ModuleType]:
    """Give Minari's client, and turn what it complains of into a sentence."""
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError:
        raise UserError('that needs Minari: pip install "rltune[minari]"') from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of metadata that nobody gave
        try:
            yield minari
        except ValueError as error:
            said = str(error).strip().splitlines()[0]
            raise UserError(f"Minari data set {name!r}: {said}") from error
