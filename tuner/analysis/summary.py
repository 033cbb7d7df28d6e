"""Run summaries: status, cost, failures and the answer of a run, read from its directory.

The run may be under way or killed, and have no tournament or no result at all.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError
from rltune.answer.model import Answer
from rltune.backends.checkpoints import kept_weights
from rltune.common.plain import json_dict
from rltune.common.reading import load_yaml, reading
from rltune.runs.reader import RunReader
from rltune.runs.search_spec import SearchSpec
from rltune.runs.train_spec import retrain_command
from rltune.study.reasons import TIME_LIMIT
from rltune.study.records import quality

if TYPE_CHECKING:
    import pandas as pd
    from rltune.answer.front import Front

ENDED = ("COMPLETE", "PRUNED", "FAIL")


@dataclass(frozen=True)
class SearchCost:
    """The cost of a run: env steps, seconds of training summed over trials, wall-clock seconds."""

    env_steps: int
    seconds: float
    clock: float


@dataclass(frozen=True)
class TrialsByReason:
    """A reason, and the trials that it ended."""

    reason: str
    trials: tuple[int, ...]


class Summary:
    """The summary of a run; each part is read once, when it is first asked for."""

    def __init__(self, run: RunReader) -> None:
        self.run = run
        self.path: Path = run.path
        self.spec: dict[str, Any] = run.spec
        self.kind: str = run.rundir.kind
        _check_spec(self.kind, self.spec)

    @cached_property
    def running(self) -> bool:
        """Whether a process is driving the run right now (it holds the run's lock)."""
        try:
            with open(self.path / ".lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @cached_property
    def status(self) -> str:
        """One of "running", "finished" and "unfinished"."""
        if self.running:
            return "running"
        if self.kind == "train":
            done = self.cost.env_steps >= self.spec.get("total_timesteps", math.inf)
            return "finished" if done else "unfinished"
        # There may be more known-good settings than trials: those that are left are not waited for.
        more = self.tried < (self.spec.get("trials") or math.inf)
        to_come = self.states.get("WAITING") and more
        done = self.concluded and not self.states.get("RUNNING") and not to_come
        return "finished" if done else "unfinished"

    @property
    def concluded(self) -> bool:
        """Whether the search came to its end, with a winner or finally without one."""
        if self.best_config is not None:
            return True
        reasons = self.trials["reason"].astype(str)
        return self.ended_without_winner and not reasons.str.startswith(TIME_LIMIT).any()

    @cached_property
    def best_config(self) -> dict[str, Any] | None:
        """The configuration to use; None before there is one."""
        return self.run.best

    @cached_property
    def ended_without_winner(self) -> bool:
        """Whether there is an answer, and it names no configuration."""
        answer = self.front or self.answer
        return answer is not None and self.best_config is None

    @property
    def all_failed(self) -> bool:
        """Whether trials have failed, none has given a value, and no worker has died."""
        given = {"COMPLETE", "PRUNED"} & self.states.keys()
        died = any(failure.reason.startswith("worker died") for failure in self.failures)
        return not self.running and "FAIL" in self.states and not given and not died

    @property
    def no_result(self) -> str:
        """The sentence that stands for an answer while there is no result."""
        if self.all_failed:
            return "Every trial has failed so far: mend what they failed of, and start anew."
        return "No trial has run its whole budget yet, so nothing can be said."

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row per trial."""
        return self.run.trials()

    @cached_property
    def importances(self) -> pd.DataFrame | None:
        """The importances of the hyperparameters; None during the search, or without a result."""
        if self.status != "finished" or not len(self.trials):
            return None
        from rltune.analysis.importance.importances import importances

        return importances(self.run)

    @cached_property
    def tested(self) -> int:
        """The number of trainings on test seeds that have ended."""
        file = self.path / "best" / "scores.yaml"
        scores = load_yaml(file) if file.exists() else None
        with reading(file):
            return sum(map(len, (scores or {}).values()))

    @cached_property
    def states(self) -> dict[str, int]:
        """The number of trials in each state."""
        return {str(state): int(n) for state, n in self.trials["state"].value_counts().items()}

    @property
    def tried(self) -> int:
        """The number of trials that were begun, the failed ones included."""
        return sum(self.states.values()) - self.states.get("WAITING", 0)

    @cached_property
    def history(self) -> pd.DataFrame:
        """A row per iteration."""
        return self.run.history()

    @cached_property
    def cost(self) -> SearchCost:
        """The cost of the run, re-trainings included."""
        if not len(self.history):
            return SearchCost(0, 0.0, 0.0)
        runs = self.history.groupby(["trial", "seed"])[["env_steps", "time"]].max()
        stamps = self.history["timestamp"]
        started = min(float(stamps.min()), self.trials["started"].min())
        begins = [float(started if started == started else stamps.min()), *self._resumed]
        clock = 0.0  # without the time in between, when no process drove the run
        for begin, end in pairwise([*begins, math.inf]):
            session = stamps[(stamps >= begin) & (stamps < end)]
            clock += float(session.max()) - begin if len(session) else 0.0
        return SearchCost(int(runs["env_steps"].sum()), float(runs["time"].sum()), clock)

    @property
    def _resumed(self) -> list[float]:
        """The times at which the run was resumed, in Unix s."""
        with reading(self.path / "run.yaml"):
            texts = [resume["resumed"] for resume in self.run.rundir.content.get("resumes", [])]
            return [datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp() for text in texts]

    @cached_property
    def answer(self) -> Answer | None:
        """The answer, or None before there is one."""
        data = self.run.answer
        with reading(self.path / "best" / "answer.yaml"):
            return Answer.from_dict(data) if data else None

    @property
    def more_test_seeds(self) -> int | None:
        """The number of test seeds that may prove the lead; None: it is proven, or can't be."""
        ties = self.answer.ties if self.status == "finished" and self.answer else ()
        if self.answer is None or len({finalist.iqm for finalist in ties}) < 2:
            return None
        most = max(len(finalist.scores) for finalist in ties)
        planned = int(self.spec.get("test_seeds", 0))  # fewer may have run, for want of time
        return planned if most < planned else self.answer.test_seeds_to_prove

    @cached_property
    def front(self) -> Front | None:
        """The front of a search with several objectives, or None before there is one."""
        file = self.path / "best" / "front.yaml"
        if not file.exists():
            return None
        from rltune.answer.front import Front

        with reading(file):
            return Front.from_dict(load_yaml(file))

    @cached_property
    def best(self) -> tuple[int, float] | None:
        """The number and score of the best trial that ran its whole budget.

        None also where the search has ended without a winner: all finalists diverged on test seeds.
        """
        if self.ended_without_winner:
            return None
        complete = self.trials[self.trials["state"] == "COMPLETE"].dropna(subset=["objective"])
        if not len(complete):
            return None
        row = max(complete.to_dict("records"), key=_quality)  # the earlier one of equal ones
        return int(row["trial"]), float(row["objective"])

    @cached_property
    def command(self) -> str | None:
        """The command that trains the best configuration again."""
        file = self.path / "best" / "command.txt"
        if file.exists():
            with reading(file):
                return " ".join(file.read_text().split())
        if self.kind == "train" or self.best is None or self.defaults is None:
            return None
        spec, config = self.spec, self.config(self.best[0])
        return retrain_command(
            spec["agent"], spec["env"], spec["budget"], config, self.defaults, seed=0,
            env_kwargs=spec.get("env_kwargs") or {}, controls=spec.get("controls") or {},
            evaluation=SearchSpec.from_dict(spec).evaluation,
            weights=kept_weights(self.run.name, spec.get("weights")),
        )  # fmt: skip

    @cached_property
    def defaults(self) -> dict[str, Any] | None:
        """The agent's own configuration; in older runs, that of the trial with the defaults."""
        if isinstance(own := self.spec.get("defaults"), dict) and own:
            return own
        found = self.trials[self.trials["origin"] == "default"]
        return self.config(int(found.iloc[0]["trial"])) if len(found) else None

    def config(self, trial: int) -> dict[str, Any]:
        """Return the configuration of a trial."""
        if self.answer is not None:
            for finalist in self.answer.ranking:
                if finalist.trial == trial:
                    return finalist.config
        rows = self.trials[self.trials["trial"] == trial]
        columns = [name for name in self.trials.columns if name.startswith("config.")]
        values = {name.removeprefix("config."): rows.iloc[0][name] for name in columns}
        return {
            name: cell_value(value)
            for name, value in values.items()
            if value is not None and value == value
        }

    @cached_property
    def searched(self) -> dict[str, Any]:
        """The dimensions of the space by name, as they are written in YAML."""
        space = self.spec.get("space") or {}
        return dict(space.get("space") or {})

    @property
    def rung_seconds(self) -> float | None:
        """The seconds that stand for the whole budget; None where rungs count env steps."""
        return (self.spec.get("scheduler_options") or {}).get("seconds")

    @cached_property
    def stops(self) -> dict[int, int]:
        """The number of trials that were stopped early, by env steps."""
        rows = self.trials[self.trials["state"] == "PRUNED"]
        places = rows["budget_reached"]
        if not self.rung_seconds:
            places = rows["rung"].fillna(places)
        places = places.fillna(0).astype(int)
        return dict(sorted(Counter(places.tolist()).items()))

    @cached_property
    def failures(self) -> list[TrialsByReason]:
        """The failed trials by reason, the most frequent one first."""
        return _by_reason(self.trials[self.trials["state"] == "FAIL"])

    @cached_property
    def ruled_out(self) -> list[TrialsByReason]:
        """The trials stopped by stop rules, by hand or by callbacks, by reason, most first."""
        from rltune.study.reasons import BY_CALLBACK, BY_HAND, STATES

        rows = self.trials[self.trials["state"] == "PRUNED"]
        rows = rows.assign(reason=rows["reason"].astype(str).str.split(":").str[0])
        return _by_reason(rows[rows["reason"].isin([*STATES, BY_HAND, BY_CALLBACK])])

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain JSON; a score that is not finite becomes null."""
        about = {
            "name": self.run.name,
            "path": str(self.path),
            "kind": self.kind,
            "status": self.status,
            "agent": self.spec.get("agent"),
            "env": self.spec.get("env"),
        }
        if self.kind == "train":
            last = self.history.iloc[-1].to_dict() if len(self.history) else None
            return json_dict({**about, "config": self.spec.get("config"), "last": last})
        best = self.answer.winner if self.answer is not None else None
        if best is None and self.best is not None:
            best = self.best[0]
        if self.front is not None and self.front.best is not None:
            best = self.front.best.trial
        return json_dict(
            {
                **about,
                "budget": self.spec.get("budget"),
                "trials": self.states,
                "stopped_at": self.stops,
                "failures": [vars(failure) for failure in self.failures],
                "ruled_out": [vars(failure) for failure in self.ruled_out],
                "cost": vars(self.cost),
                "best_trial": best,
                "best_config": None if best is None else self.config(best),
                "command": self.command,
                "answer": self.answer and self.answer.to_dict(),
                **({"front": self.front.to_dict()} if self.front else {}),
            }
        )


def _quality(row: Mapping[Any, Any]) -> tuple[float, ...]:
    """Return the sort key of a row of the trials; ties in the objective go to the front."""
    mean = row["objective_mean"]
    on_front = row.get("on_front") in (True, 1)
    known = mean is not None and mean == mean
    return quality((row["objective"], on_front), mean if known else None, (False, False))


def _check_spec(kind: str, spec: dict[str, Any]) -> None:
    """Raise UserError for a damaged specification; that of a training is read without PyTorch."""
    if kind == "search":
        SearchSpec.from_dict(spec)
        return
    for name, type_ in {"agent": str, "env": str, "total_timesteps": int, "config": dict}.items():
        if name in spec and not isinstance(spec[name], type_):
            raise UserError(
                f"the spec in run.yaml is damaged: {name} can't be {spec.get(name)!r:.60}."
            )


def _by_reason(trials: pd.DataFrame) -> list[TrialsByReason]:
    """Return the reasons of the trials, the most frequent one first."""
    groups: dict[str, list[int]] = {}
    for trial, reason in zip(trials["trial"], trials["reason"], strict=True):
        groups.setdefault(str(reason) if reason else "no reason is known", []).append(trial)
    found = [TrialsByReason(reason, tuple(map(int, group))) for reason, group in groups.items()]
    return sorted(found, key=lambda group: -len(group.trials))


def cell_value(cell: Any) -> Any:
    """Return a cell of trials.parquet, where a column of mixed types is kept as text."""
    if not isinstance(cell, str):
        return cell.item() if hasattr(cell, "item") else cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell
