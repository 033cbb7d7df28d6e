"""RLlib's internals: its learner, replay memory and metrics, read and set."""

from __future__ import annotations

import base64
import contextlib
import io
import math
import warnings
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

Array = NDArray[Any]
_LARGEST_BOUNDS = 64_000_000  # bytes of the bounds of a space
# What a learner learns beside its networks, and leaves out of its state.
_LEARNED = (
    "curr_kl_coeffs_per_module",
    "curr_log_alpha",
    "moving_avg_sqd_adv_norms_per_module",
)


def _recorder(episodes: list[tuple[float, int]]) -> Any:
    """Return RLlib's callback that notes every finished episode in the list."""

    def on_episode_end(*, episode: Any, **_: Any) -> None:
        # RLlib cuts episodes where rollouts end, and counts a step too many at each cut.
        statistics = episode.get_infos(-1)["episode"]
        episodes.append((float(statistics["r"]), int(statistics["l"])))

    return on_episode_end


def _learner(algorithm: Algorithm) -> Any:
    """Return the learner, which is in this process."""
    return next(iter(algorithm.learner_group.foreach_learner(lambda learner: learner))).get()


def _replay(algorithm: Algorithm) -> Any:
    """Return the memory of the algorithm, None where it has none."""
    # DreamerV3 has both, and leaves RLlib's usual one empty.
    return getattr(algorithm, "replay_buffer", getattr(algorithm, "local_replay_buffer", None))


def _learned_state(algorithm: Algorithm) -> dict[str, dict[str, torch.Tensor]]:
    """Return the tensors that the learner learns beside its networks."""
    learner = _learner(algorithm)
    return {
        name: {key: value.detach().cpu() for key, value in getattr(learner, name).items()}
        for name in _LEARNED
        if hasattr(learner, name)
    }


def _load_learned(algorithm: Algorithm, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    learner = _learner(algorithm)
    for name, values in state.items():
        for key, value in values.items():
            getattr(learner, name)[key].data.copy_(value)


def _replay_state(algorithm: Algorithm) -> list[Any]:
    """Return the episodes in the memory as tensors and plain Python."""
    replay = _replay(algorithm)
    return [_plain(episode.get_state()) for episode in replay.episodes] if replay else []


def _load_replay(algorithm: Algorithm, episodes: list[Any]) -> None:
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    if episodes:
        _replay(algorithm).add([SingleAgentEpisode.from_state(state) for state in episodes])


def _learn_in_turn(learner: Any, seed: int) -> None:
    """Let IMPALA's and APPO's learner update when it is given a batch, not in a thread of its own.

    There is only one process here. So no evaluation or checkpoint meets half an update, no batch is
    left behind, and what a seed gives does not depend on the machine's load.
    """
    if not hasattr(learner, "_learner_thread"):
        return
    thread, waiting = learner._learner_thread, learner._learner_thread_in_queue
    results = learner._learner_thread_out_queue
    thread.request_stop()
    thread.join()
    thread._stop_event.clear()
    if hasattr(waiting, "_rng"):  # APPO draws from the batches of a buffer
        waiting._rng = np.random.default_rng(seed)
    put = waiting.put

    def put_and_update(item: Any, **options: Any) -> Any:
        dropped = put(item, **options)
        while waiting.qsize():
            thread.step()
        while results.qsize() > 1:  # RLlib takes one for each batch: it shall be the newest
            results.get_nowait()
        return dropped

    waiting.put = put_and_update


def _set_state(algorithm: Algorithm, state: dict[str, Any]) -> None:
    if algorithm.env_runner_group is None:  # RLlib's own method takes a sampler for granted
        algorithm.learner_group.set_state(state.pop("learner_group"))
        state.pop("env_runner", None)
    algorithm.set_state(state)


def _env_steps(result: Mapping[str, Any]) -> int:
    """Return the steps of an iteration: those sampled, or of recorded data those learned from."""
    if sampled := result.get("env_runners"):
        return int(sampled["num_env_steps_sampled"])
    return int(result["learners"]["__all_modules__"]["num_env_steps_trained"])


def _metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the learner's metrics of its losses; none where there was no update."""
    learner = result.get("learners", {}).get("default_policy", {})
    if not learner.get("num_module_steps_trained", 0) > 0:
        return {}  # IMPALA and APPO wait for a full batch, and say NaN until then
    wanted = (
        *("loss", "entropy", "kl", "explained_var", "learning_rate", "alpha", "qf", "gradients"),
        *("_L_total", "mean_IS"),
    )
    return {
        name: float(value)
        for name, value in learner.items()
        if any(word in name for word in wanted) and isinstance(value, (int, float, np.number))
    }


def _is_sound(name: str, value: float) -> bool:
    """Whether a metric says nothing bad: a loss has to be finite."""
    return math.isfinite(value) or not ("loss" in name or "_L_total" in name)


@contextlib.contextmanager
def _silent() -> Any:
    """RLlib warns of what it calls itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _no_pickles() -> Iterator[None]:
    """Let RLlib read the bounds of the spaces in its states without unpickling, as it would."""
    from ray.rllib.utils import serialization

    before = serialization._deserialize_ndarray
    serialization._deserialize_ndarray = _bounds
    try:
        yield
    finally:
        serialization._deserialize_ndarray = before


def _bounds(text: str) -> Array:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(base64.b64decode(text), _LARGEST_BOUNDS)
    array: Array = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _plain(tree: Any) -> Any:
    """Return a state as tensors and plain Python."""
    if isinstance(tree, Mapping):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_plain(value) for value in tree)
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree.copy())
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu()
    if isinstance(tree, np.generic):
        return tree.item()
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"RLlib's state holds a {type(tree).__name__}, which is not kept")


def _arrays(tree: Any) -> Any:
    """Undo `_plain`: RLlib's states hold arrays."""
    if isinstance(tree, dict):
        return {key: _arrays(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_arrays(value) for value in tree)
    return tree.numpy() if isinstance(tree, torch.Tensor) else tree
