"""Fragments: consecutive steps of one actor's environments, on their way to the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rltune.agents.envs.vector import Finished

if TYPE_CHECKING:
    from rltune.agents.algorithm import VectorStep
    from typing_extensions import Unpack

Array = NDArray[Any]
STEP = ("action", "reward", "terminated", "truncated", "valid")  # beside the observations


class Usage(NamedTuple):
    """What collecting a fragment took: seconds on the clock, CPU seconds, and the actor's memory.

    ``memory`` are the bytes that the actor's process has had at most.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory: int = 0


NOTHING = Usage()


@dataclass(frozen=True)
class Fragment:
    """Consecutive steps of some environments; the first axes of the arrays are (rows, n_envs).

    Attributes:
        actor: the number of the actor that took them
        version: of the policy that acted
        obs: what was acted on
        steps: the other arrays of `VectorStep`, by name
        last_obs: the true successors of the last row: (n_envs, ...)
        finals: (row, env) of earlier steps whose successor is not the next row
        final_obs: these successors: (k, ...)
        episodes: those that ended, by row
        log_prob: of the actions under the policy that acted; None: nobody asks for it
        begins: whether the actor is new, and its environments began new episodes
        statistics: what the running normalisations of the actor learned; see `Statistics`
        usage: what it took to collect
        acting: the parts of the algorithm's state that acting changed; None: the actor has its own
    """

    actor: int
    version: int
    obs: Array
    steps: dict[str, Array]
    last_obs: Array
    finals: list[tuple[int, int]]
    final_obs: Array
    episodes: list[list[Finished]]
    log_prob: Array | None = None
    begins: bool = False
    statistics: dict[str, Any] = field(default_factory=dict)
    usage: Usage = NOTHING
    acting: dict[str, Any] | None = None

    @property
    def rows(self) -> int:
        """The number of steps of each environment."""
        return len(self.obs)

    @property
    def env_steps(self) -> int:
        """The number of valid steps, summed over the environments."""
        return int(np.count_nonzero(self.steps["valid"]))

    def next_obs(self) -> Array:
        """Return the true successors of all steps: (rows, n_envs, ...)."""
        found = np.concatenate([self.obs[1:], self.last_obs[None]])
        for (row, env), obs in zip(self.finals, self.final_obs, strict=True):
            found[row, env] = obs
        return found

    def from_row(self, row: int) -> Fragment:
        """Return what is left from a row on."""
        kept = [i for i, (at, _) in enumerate(self.finals) if at >= row]
        return replace(
            self,
            obs=self.obs[row:],
            steps={name: array[row:] for name, array in self.steps.items()},
            finals=[(self.finals[i][0] - row, self.finals[i][1]) for i in kept],
            final_obs=self.final_obs[kept],
            episodes=self.episodes[row:],
            log_prob=None if self.log_prob is None else self.log_prob[row:],
        )


def side_by_side(fragments: Sequence[Fragment]) -> Fragment:
    """Return fragments of as many rows as one, whose environments stand beside each other."""
    if len(fragments) == 1:
        return fragments[0]
    first, starts = fragments[0], np.cumsum([0, *(f.obs.shape[1] for f in fragments)]).tolist()
    placed = list(zip(fragments, starts, strict=False))
    log_probs = [f.log_prob for f in fragments if f.log_prob is not None]
    return replace(
        first,
        version=min(f.version for f in fragments),
        obs=np.concatenate([f.obs for f in fragments], 1),
        steps={n: np.concatenate([f.steps[n] for f in fragments], 1) for n in first.steps},
        last_obs=np.concatenate([f.last_obs for f in fragments]),
        finals=[(row, start + env) for f, start in placed for row, env in f.finals],
        final_obs=np.concatenate([f.final_obs for f in fragments]),
        episodes=[
            [e._replace(env=start + e.env) for f, start in placed for e in f.episodes[row]]
            for row in range(first.rows)
        ],
        log_prob=np.concatenate(log_probs, 1) if log_probs else None,
        begins=any(f.begins for f in fragments),
    )


class FragmentMemory:
    """The memory of an actor: keeps the steps until they are taken away as a fragment."""

    def __init__(self) -> None:
        self._steps: list[VectorStep] = []

    def add(self, **step: Unpack[VectorStep]) -> None:
        """Append one step of all environments."""
        self._steps.append(step)

    def interrupt(self) -> None:
        """Forget the steps: their episodes are gone."""
        self._steps = []

    def take(self, **about: Any) -> Fragment:
        """Return the steps so far, and forget them; ``about`` is what else a fragment says."""
        steps, self._steps = self._steps, []
        ended = np.stack([step["terminated"] | step["truncated"] for step in steps])
        finals = [(int(row), int(env)) for row, env in np.argwhere(ended[:-1])]
        last = steps[-1]["next_obs"]
        return Fragment(
            obs=np.stack([step["obs"] for step in steps]),
            steps={name: np.stack([step[name] for step in steps]) for name in STEP},  # type: ignore[literal-required]
            last_obs=last,
            finals=finals,
            final_obs=np.array([steps[row]["next_obs"][env] for row, env in finals], last.dtype)
            if finals
            else np.empty((0, *last.shape[1:]), last.dtype),
            **about,
        )
