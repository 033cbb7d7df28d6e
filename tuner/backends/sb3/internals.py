"""Stable-Baselines3's internals: its loop, its log, and what an algorithm has learned."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from rltune.agents.errors import UserError
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.save_util import recursive_setattr

# Counters that updates and exploration hang on.
_COUNTERS = (
    *("num_timesteps", "_n_updates", "_n_calls", "_episode_num", "exploration_rate"),
    "_current_progress_remaining",
)
_REPLAYED = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
_PREFIX = "train/"


class Target(int):
    """The length of a training, at which SB3's loop also stops on the way, between two rollouts.

    The loop asks ``num_timesteps < total``, and schedules divide by the total: so they are those of
    the whole training however many calls of `learn` it has.
    """

    goes_on: Callable[[], bool]

    def __gt__(self, _: object) -> bool:
        """Whether the loop goes on: a subclass answers ``<`` in the place of int."""
        return self.goes_on()


class Recorder(Logger):
    """SB3's log, kept for the history instead of printed.

    Attributes:
        values: of each metric of the updates, one for each update
        updates: how many there were
        broken: the first loss that was infinite or NaN; None: none was
    """

    def __init__(self) -> None:
        super().__init__(folder=None, output_formats=[])
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.values: dict[str, list[float]] = {}
        self.updates = 0
        self.broken: str | None = None

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Take note of a value."""
        super().record(key, value, exclude)
        if not key.startswith(_PREFIX) or not isinstance(value, (int, float, np.number)):
            return
        name, number = key.removeprefix(_PREFIX), float(value)
        if name == "n_updates":
            self.updates += 1
        elif np.isfinite(number):
            self.values.setdefault(name, []).append(number)
            if name == "entropy_loss":
                self.values.setdefault("entropy", []).append(-number)
        elif "loss" in name:
            self.broken = self.broken or name


class Episodes(BaseCallback):
    """Hands every finished training episode over: its return and its length."""

    def __init__(self, take: Callable[[float, int, int], None]) -> None:
        super().__init__()
        self._take = take

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if (episode := info.get("episode")) is not None:
                self._take(float(episode["r"]), int(episode["l"]), self.num_timesteps)
        return True


class Callbacks(CallbackList):
    """Callbacks that see one training, however many calls of SB3's `learn` it has.

    Attributes:
        ended: whether one of them has ended the training
    """

    ended = False
    _begun = False

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        """Begin, in the first call."""
        if not self._begun:
            self._begun = True
            super().on_training_start(locals_, globals_)

    def on_training_end(self) -> None:
        """Pause; `close` ends it."""

    def close(self) -> None:
        """End the training."""
        if self._begun:
            super().on_training_end()

    def _on_step(self) -> bool:
        goes_on = super()._on_step()
        self.ended = self.ended or not goes_on
        return goes_on


def prepare(model: BaseAlgorithm, total: int, callbacks: Callbacks) -> None:
    """Begin SB3's loop, which `learn_on` goes on with."""
    model._setup_learn(max(total - model.num_timesteps, 0), callbacks, reset_num_timesteps=False)


def learn_on(
    model: BaseAlgorithm, total: int, callbacks: Callbacks, goes_on: Callable[[], bool]
) -> None:
    """Train in whole rollouts while ``goes_on()``, with the schedules of ``total`` env steps."""
    target = Target(total)
    target.goes_on = goes_on
    model._total_timesteps = total
    # It would reset noise and logs with every call.
    model._setup_learn = lambda *_, **__: (target, callbacks)  # type: ignore[method-assign]
    with silent():
        model.learn(total, log_interval=None, reset_num_timesteps=False)  # type: ignore[arg-type]


def has_finite_weights(model: BaseAlgorithm) -> bool:
    """Whether no parameter of the networks is infinite or NaN."""
    return all(bool(torch.isfinite(weight).all()) for weight in model.policy.parameters())


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep the library's advice off the screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -------------------------------------------------------------------------------------------- state


def learned_state(model: BaseAlgorithm) -> dict[str, Any]:
    """Return networks, optimizers and counters, as tensors and plain Python."""
    counters = {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)}
    state: dict[str, Any] = {
        "counters": {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in counters.items()
        },
    }
    if jax_states := list(_jax_states(model)):
        return {**state, "jax": [_tensors(_as_dict(holder, name)) for holder, name in jax_states]}
    variables = model._get_torch_save_params()[1]
    return {
        **state,
        "parameters": model.get_parameters(),
        "variables": {name: getattr(model, name).detach() for name in variables},
    }


def load_learned(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Take over what `learned_state` gave."""
    if "jax" in state:
        _load_jax(model, state["jax"])
    else:
        model.set_parameters(state["parameters"], device=model.device)
        if set(state["variables"]) != set(model._get_torch_save_params()[1]):
            raise ValueError("it has other variables")
        for name, value in state["variables"].items():
            recursive_setattr(model, f"{name}.data", value.to(model.device))
    for name, value in state["counters"].items():
        if name not in _COUNTERS or not isinstance(value, (int, float)):
            raise ValueError(f"there is no counter {name!r:.40}")
        setattr(model, name, value)


def normalizer_state(model: BaseAlgorithm) -> dict[str, Any] | None:
    """Return the statistics of VecNormalize; None: there is none."""
    venv = model.get_vec_normalize_env()
    if venv is None:
        return None
    names = ("obs_rms", "ret_rms") if venv.norm_obs else ("ret_rms",)
    return {
        name: {
            "mean": torch.as_tensor(np.array(statistics.mean)),
            "var": torch.as_tensor(np.array(statistics.var)),
            "count": float(statistics.count),
        }
        for name in names
        if (statistics := getattr(venv, name)) is not None
    }


def load_normalizer(model: BaseAlgorithm, state: dict[str, Any] | None) -> None:
    """Take over what `normalizer_state` gave."""
    venv = model.get_vec_normalize_env()
    for name, values in (state or {}).items():
        statistics = getattr(venv, name)
        if not isinstance(statistics, RunningMeanStd):
            raise ValueError(f"it has no {name!r:.40}")
        for key in ("mean", "var"):
            if tuple(values[key].shape) != np.shape(getattr(statistics, key)):
                raise ValueError(f"{name} is of another shape")
            setattr(statistics, key, values[key].numpy().copy())
        statistics.count = float(values["count"])


def replay_state(model: BaseAlgorithm) -> dict[str, Any] | None:
    """Return the transitions of the replay buffer; None: it has none."""
    buffer: Any = getattr(model, "replay_buffer", None)
    if buffer is None:
        return None
    filled = buffer.buffer_size if buffer.full else buffer.pos
    # With one array for both, an observation's successor stands behind it.
    kept = min(filled + buffer.optimize_memory_usage, buffer.buffer_size)
    return {
        "pos": buffer.pos,
        "full": buffer.full,
        **{
            name: torch.from_numpy(getattr(buffer, name)[:kept].copy())
            for name in _REPLAYED
            if getattr(buffer, name, None) is not None
        },
    }


def load_replay(model: BaseAlgorithm, state: dict[str, Any] | None) -> None:
    """Take over what `replay_state` gave; the episodes that ran are cut off."""
    if state is None:
        return
    buffer: Any = model.replay_buffer  # type: ignore[attr-defined]
    pos, full = int(state["pos"]), bool(state["full"])
    if not 0 <= pos < buffer.buffer_size:
        raise ValueError("its replay buffer is of another size")
    for name in _REPLAYED:
        if name in state:
            kept = state[name].numpy()
            getattr(buffer, name)[: len(kept)] = kept
    buffer.pos, buffer.full = pos, full
    if pos or full:
        # New episodes begin: a return of several steps must not reach into them.
        last = (pos - 1) % buffer.buffer_size
        if buffer.handle_timeout_termination:
            buffer.timeouts[last] = np.maximum(buffer.timeouts[last], 1 - buffer.dones[last])
        buffer.dones[last] = 1


# ---------------------------------------------------------------------------------------------- JAX


def _jax_states(model: BaseAlgorithm) -> Iterator[tuple[Any, str]]:
    """Yield where SBX keeps parameters and optimizers: (object, attribute); the random key, too."""
    if not hasattr(model, "key"):
        return
    from flax.training.train_state import TrainState

    for holder in (model.policy, model):
        for name in sorted(vars(holder)):
            if isinstance(getattr(holder, name), TrainState):
                yield holder, name
    yield model, "key"


def _as_dict(holder: Any, name: str) -> Any:
    from flax.serialization import to_state_dict

    return to_state_dict(getattr(holder, name))


def _load_jax(model: BaseAlgorithm, states: list[Any]) -> None:
    from flax.serialization import from_state_dict

    places = list(_jax_states(model))
    if len(places) != len(states):
        raise ValueError("it has other networks")
    for (holder, name), state in zip(places, states, strict=True):
        before = getattr(holder, name)
        made = from_state_dict(before, _arrays(state))
        _check_like(before, made)
        setattr(holder, name, made)


def _check_like(before: Any, made: Any) -> None:
    import jax

    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (before, made)]
    if shapes[0] != shapes[1]:
        raise ValueError("its networks are of another shape")


def _tensors(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _tensors(value) for key, value in tree.items()}
    return tree if tree is None else torch.from_numpy(np.array(tree))


def _arrays(tree: Any) -> Any:
    import jax.numpy as jnp

    if isinstance(tree, dict):
        return {key: _arrays(value) for key, value in tree.items()}
    return jnp.asarray(tree.numpy()) if isinstance(tree, torch.Tensor) else tree


def refused(error: BaseException, what: str) -> UserError:
    """Return the library's complaint as a sentence."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return UserError(f"{what}: {reason[:300]}")
