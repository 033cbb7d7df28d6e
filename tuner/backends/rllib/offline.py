"""Recorded data for RLlib's offline algorithms, read and drawn in the trial's own process.

RLlib reads such data with Ray Data, whose workers need cores beside the trial's and hang where
trials have taken them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pyarrow import ArrowException
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.offline.offline_data import OfflineData
from ray.rllib.utils import flatten_dict
from ray.rllib.utils.spaces.space_utils import normalize_action
from rltune.agents.errors import UserError

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

Array = NDArray[Any]
# RLlib's names (its ``SCHEMA``): a row per step, in the order of time.
COLUMNS = ("obs", "actions", "rewards", "new_obs", "terminateds", "truncateds")
UPDATES = 2  # of an RLlib iteration; with 1, some algorithms want their data in another form


def use_recorded(
    config: AlgorithmConfig,
    spaces: tuple[gymnasium.Space[Any], gymnasium.Space[Any]],
    *,
    input_: str,
    actions_in_input_normalized: bool,
) -> None:
    """Let an algorithm learn from a Parquet file, or a folder of them.

    Args:
        config: of the algorithm
        spaces: the environment's, of observations and actions
        input_: the file or folder, with the columns ``COLUMNS``
        actions_in_input_normalized: whether actions of a Box go from -1 to 1, as RLlib records them

    Raises:
        UserError: there is no such data, or it is not of this environment.
    """
    name = config.algo_class.__name__
    check_given(name, input_)
    steps = read_steps(input_, *spaces)
    if isinstance(spaces[1], gymnasium.spaces.Box) and not actions_in_input_normalized:
        steps["actions"] = normalize_action(steps["actions"], spaces[1])
    config.environment(observation_space=spaces[0], action_space=spaces[1])
    config.offline_data(
        input_=[input_], offline_data_class=Recorded, dataset_num_iters_per_learner=UPDATES
    )
    config.input_config = {"steps": steps, "whole_episodes": name == "MARWIL"}


def check_given(name: str, input_: str) -> None:
    """Raise `UserError` when the algorithm has been given no data."""
    if not input_:
        raise UserError(
            f"rllib:{name} learns from recorded data: give --input, a folder or file of Parquet "
            f"with the columns {', '.join(COLUMNS)}."
        )


def read_steps(
    path: str, obs_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> dict[str, Array]:
    """Return the columns as arrays (steps, ...).

    Raises:
        UserError: a missing file or column, or shapes that are not those of the spaces.
    """
    if not Path(path).exists():
        raise UserError(f"--input {path}: there is no such file or folder.")
    try:
        table = pq.read_table(path)
    except (ArrowException, OSError) as error:
        raise UserError(f"--input {path} is no Parquet: {str(error).splitlines()[0]}") from error
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise UserError(
            f"--input {path} has no column {missing[0]!r}; needed are {', '.join(COLUMNS)}."
        )
    if not len(table):
        raise UserError(f"--input {path} has no steps.")
    steps = {}
    shapes = {"obs": obs_space.shape, "new_obs": obs_space.shape, "actions": action_space.shape}
    types = {"obs": np.float32, "new_obs": np.float32, "actions": action_space.dtype}
    for name in COLUMNS:
        rows = table[name].to_pylist()
        steps[name] = np.asarray(rows, types.get(name))
        if steps[name].shape[1:] != shapes.get(name, ()):
            raise UserError(
                f"--input {path}: {name} are of shape {steps[name].shape[1:]}, but those of the "
                f"environment of shape {shapes.get(name, ())}."
            )
    return steps


class Recorded(OfflineData):  # type: ignore[misc]
    """Hands batches of recorded steps to RLlib's learner, in the place of a Ray dataset.

    Whole episodes go to MARWIL, which needs their returns, until a batch is full; single steps to
    the others. They are drawn with replacement, by a generator of their own.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        """Take the steps that `use_recorded` has read; RLlib adds ``learner_handles``."""
        self._steps: dict[str, Array] = config.input_config["steps"]
        n = len(self._steps["rewards"])
        self._starts = np.arange(n)
        if config.input_config["whole_episodes"]:
            ends = (self._steps["terminateds"] | self._steps["truncateds"]).nonzero()[0]
            self._starts = np.concatenate([[0], ends[ends < n - 1] + 1])
        self._ends = np.append(self._starts[1:], n)
        self._generator = np.random.default_rng(config.seed)
        self.learner_handles: list[Any] = []
        self.iter_batches_kwargs: dict[str, Any] = {}

    def sample(self, num_samples: int, **_: Any) -> list[Recorded]:
        """Return the data that the learner iterates over."""
        return [self]

    def iter_torch_batches(
        self, batch_size: int, device: Any, **_: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield batches of at least so many steps for ever, as the learner takes them."""
        (learner,) = self.learner_handles
        while True:
            batch = learner._learner_connector(
                rl_module=learner.module,
                batch={},
                episodes=list(self._draw(batch_size)),
                shared_data={},
                metrics=learner.metrics,
            )
            yield {
                name: torch.as_tensor(column).to(device)
                for name, column in flatten_dict(batch).items()
            }

    def _draw(self, batch_size: int) -> Iterator[SingleAgentEpisode]:
        steps, drawn = self._steps, 0
        while drawn < batch_size:
            i = self._generator.integers(len(self._starts))
            begin, end = int(self._starts[i]), int(self._ends[i])
            drawn += end - begin
            yield SingleAgentEpisode(
                observations=[*steps["obs"][begin:end], steps["new_obs"][end - 1]],
                actions=list(steps["actions"][begin:end]),
                rewards=list(steps["rewards"][begin:end]),
                terminated=bool(steps["terminateds"][end - 1]),
                truncated=bool(steps["truncateds"][end - 1]),
                len_lookback_buffer=0,
            )
