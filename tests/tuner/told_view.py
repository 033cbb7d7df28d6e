"""A view whose progress is told the same as the view itself, as a search does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltune.planning.progress import SearchProgress
from rltune.screen.view import SearchView


class ToldView(SearchView):
    """Takes what happens in one call; see `Recorder`, which makes two of it."""

    def trial_started(  # type: ignore[override]
        self,
        number: int,
        origin: str = "sampler",
        *,
        seed: int = 0,
        role: str = "tune",
        env_steps: int = 0,
        **more: Any,
    ) -> None:
        training = self.progress.training_started(number, seed, role, env_steps)
        super().trial_started(training, origin, **more)

    def trial_progress(  # type: ignore[override]
        self,
        number: int,
        env_steps: int,
        value: float | None = None,
        *,
        seed: int = 0,
        seconds: float = 0.0,
    ) -> None:
        self.progress.training_progress(number, seed, env_steps, seconds)
        super().trial_progress(number, value, seed=seed)

    def trial_ended(
        self,
        number: int,
        state: str,
        reason: str = "",
        value: float | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.progress.training_ended(number, seed, state)
        super().trial_ended(number, state, reason, value, seed=seed)

    def begin_tournament(
        self,
        labels: Mapping[int, str],
        runs: int,
        scores: Mapping[int, Mapping[int, float]] | None = None,
    ) -> None:
        self.progress.begin_tournament(runs, sum(map(len, (scores or {}).values())))
        super().begin_tournament(labels, runs, scores)


def told_view(budget: int, *, name: str = "x", searched: Any = None, **options: Any) -> ToldView:
    """Return the view of a search with these options of `SearchProgress`."""
    return ToldView(name, "ppo", "CartPole-v1", SearchProgress(budget, **options), searched)
