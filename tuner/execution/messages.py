"""Messages between the driver and its workers: jobs, results and failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

TASK = "task"
SERVER = "server"
PAYLOAD = "payload"


class Change(TypedDict):
    """New values of some hyperparameters, from a point on."""

    env_steps: int
    config: dict[str, Any]


class Task(TypedDict):
    """A job: everything that a worker needs, in plain types."""

    job: str  # unique: "12", or "12/103" for a re-training on a test seed
    number: int  # of the trial in the study
    seed: int
    role: str  # "tune" or "test"
    agent: str
    env: str
    env_kwargs: dict[str, Any]
    config: dict[str, Any]
    changes: list[Change]  # of the configuration on the way, ascending
    total_timesteps: int
    points: list[int]  # env steps at which an iteration ends, ascending, the last is the budget
    since: int  # the last point that the driver has the result of
    evaluate_at: list[int]  # those of the points that are evaluated
    judged_at: list[int]  # those at which the scheduler may end the job
    save_at: list[int]  # those at which the job may end, to be taken up again later
    eval_episodes: int
    # Fields of an `EvaluationPlan`; None: every evaluation has all its episodes.
    evaluation_plan: dict[str, Any] | None
    objective: str  # see `objectives`
    metric: str  # what it is made of: a column of the history, with a minus the lower the better
    checkpoint: str  # the file
    deadline: float | None  # seconds since the epoch
    import_path: str  # the user's folder: their modules are imported from here
    device: str
    engine: str
    controls: dict[str, Any]
    eval_mode: str
    weights: str | None  # the file that training begins with
    save_replay_buffer: bool


@dataclass
class Result:
    """The result of an iteration, which a worker reports."""

    iteration: int
    row: dict[str, Any]
    episodes: list[dict[str, Any]]
    objective: float | None  # None where this iteration was not evaluated
    objective_mean: float | None  # mean of all evaluations so far: breaks ties
    finished: bool  # the budget is reached, or the agent's own rule ended the training
    stop_reason: str | None = None  # the agent's own rule
    diverged: str | None = None
    out_of_time: bool = False
    restored: bool = False  # one of the last before a restart, once more
    notes: list[str] = field(default_factory=list)  # what a user should hear of


@dataclass(frozen=True)
class JobFailure:
    """The reason of a failed job in one line, and the traceback where there is one."""

    reason: str
    traceback: str
    metric_is_missing: bool = False
