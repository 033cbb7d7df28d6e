"""The worker of a search: its job trains one configuration on one seed."""

from __future__ import annotations

import bisect
import contextlib
import os
import platform
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import is_suite
from rltune.agents.envs.waiting import Watch
from rltune.agents.errors import MissingMetricError, StorageError, UserError
from rltune.agents.user_code import fault
from rltune.backends.registry import is_own_code, with_config
from rltune.common.redaction import masked_text
from rltune.common.save_timer import SaveTimer
from rltune.execution.ahead import GOES_ON, IS_SHORT, SHORT
from rltune.execution.beside import Beside
from rltune.execution.checkpoints import Checkpoint, file_of_run
from rltune.execution.idle_time import IdleTime
from rltune.execution.messages import PAYLOAD, SERVER, TASK, JobFailure, Result
from rltune.objectives.episodes import LEAST, EvaluationPlan, is_too_low
from rltune.objectives.metrics import metric_of, objective_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltune.agents.loop.results import Chunk, Evaluation
    from rltune.backends.base import Trainer
    from rltune.execution.messages import Task

SILENCE = b"rltune-silence"  # where Ray keeps the jobs whose environment does not answer


@dataclass
class _JobState:
    """The state of a job in its checkpoint, beside that of the agent."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    evaluations: list[float] = field(default_factory=list)
    eval_steps: int = 0  # of all evaluations
    eval_length: float | None = None  # of an episode, the mean of the last evaluation
    # Those that the driver may not have: the last result, and the one before it where the last was
    # made ahead. As plain types.
    results: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, extra: dict[str, Any]) -> _JobState:
        """Return the state that a checkpoint holds; older ones have the last result alone."""
        known = dict(extra)
        last = known.pop("last", None)
        return cls(**{"results": [last] if last else [], **known})


class AgentTrainable:
    """Trains an agent up to the next point with each Tune step.

    It answers the calls that Tune makes to a `tune.Trainable`, and is none: importing Tune would
    take a worker as long as importing PyTorch, and a fifth of its memory (see `workers.py`).

    It writes its own checkpoint into the run directory, and starts from it when it finds one there:
    after a crash of the worker, of the machine or of the whole search, or because an earlier job
    ended at the point ``since``. The checkpoint holds the last results too, and the first results
    after a restart are those again, so no row is missing; but for those up to ``since``.

    The agent has the configuration that the task says for its env steps, whatever the one in the
    checkpoint is: another job may have trained it.

    Args:
        config: holds the first task; None: it comes with `reset`
        agent, env: what is imported for before there is a task; empty: nothing
    """

    # These live as long as the process, which one job after the other uses.
    idle: IdleTime | None = None
    beside: Beside | None = None
    saving_to = ""  # the last checkpoint that was written beside the training

    def __init__(
        self, config: dict[str, Any] | None = None, agent: str = "", env: str = ""
    ) -> None:
        self.agent: Trainer | None = None
        self.watch: Watch | None = None
        self.iterations = 0  # of the job, since it has begun in this process
        if agent:
            _import_trainer(agent, env)
        if config is not None:
            self.setup(config)

    def setup(self, config: dict[str, Any]) -> None:
        """Build the agent of the task, or load it from its checkpoint."""
        self.idle = self.idle or IdleTime()
        self.task: Task = config[TASK]
        if self.task["import_path"] not in sys.path:
            sys.path.insert(0, self.task["import_path"])
        self.address = config.get(SERVER)
        self.checkpoint = Checkpoint(self.task["checkpoint"], self.address)
        self.agent = None
        self.iterations = 0
        self.state = _JobState()
        self.save_timer, self.saved_steps = SaveTimer(), 0
        self.beside = self.beside or Beside(lambda seconds: self.save_timer.took(seconds))
        self.may_end = self.is_judged = False
        self.is_over = False
        self.goes_on = True
        self.is_ahead = False
        self.untold: list[dict[str, Any]] = []
        _leave_word(self.task, "")  # that of a worker which was killed
        self.watch = Watch(self._tell_silence)
        self.watch.start()

    def _tell_silence(self, method: str, seconds: float | None) -> None:
        """Leave word for the driver; this worker can't report before the environment answers."""
        _leave_word(self.task, "" if seconds is None else method)

    def reset(self, config: dict[str, Any]) -> bool:
        """Start over with another task in the same process; Tune wants to hear True."""
        self._leave()
        self.setup(config)
        return True

    def train(self, ahead: bool = False) -> dict[str, Any]:
        """Run one iteration, and say what Tune wants to know of it.

        Args:
            ahead: the last result was not known when this call was made. Nothing is done where the
                job may have ended with it, or has failed.
        """
        if ahead and not self.goes_on:
            return {}
        self.goes_on, self.is_ahead = False, ahead
        started = time.perf_counter()
        result = self.step()
        self.goes_on = self._surely_goes_on(result[PAYLOAD])
        self.iterations += 1
        about = {
            **self.get_auto_filled_metrics(),
            GOES_ON: self.goes_on,
            IS_SHORT: time.perf_counter() - started < SHORT,
        }
        return {**result, **about, "done": False, "training_iteration": self.iterations}

    def _surely_goes_on(self, result: Result | JobFailure) -> bool:
        """Whether the driver has nothing to decide on, but for stop rules and people."""
        if isinstance(result, JobFailure) or result.diverged or result.restored:
            return False
        return not (result.finished or result.out_of_time or self.may_end or self.is_judged)

    def get_auto_filled_metrics(self, **_: Any) -> dict[str, Any]:
        """Return where the worker runs; Tune asks for it when it begins."""
        return {"hostname": platform.node(), "pid": os.getpid()}

    def stop(self) -> None:
        """Save and close; Tune calls this before the worker ends."""
        self.cleanup()

    def cleanup(self) -> None:
        """Save and close."""
        self._leave()
        if self.beside is not None:
            self.beside.wait()

    def step(self) -> dict[str, Any]:
        """Run one iteration; an error that only the user can mend is reported instead of raised."""
        try:
            return {PAYLOAD: self._next()}
        except SystemExit as error:
            if said := fault(error):  # an environment's or an agent's, not Ray's
                raise RuntimeError(said) from error
            raise
        except UserError as error:
            if isinstance(error, StorageError) or isinstance(error.__cause__, OSError):
                raise  # the next try may do better
            text = masked_text(traceback.format_exc())
            missing = isinstance(error, MissingMetricError)
            return {PAYLOAD: JobFailure(f"error: {masked_text(str(error))}", text, missing)}

    def _next(self) -> Result:
        """Return the next result, or one of the last before a restart once more."""
        assert self.idle is not None
        if self.agent is None:
            with self.idle.counting("make"):
                self.agent = self._make_agent()
            if is_own_code(self.task["agent"]):
                self.agent.work_in(Path(self.task["checkpoint"]).with_suffix(".files"))  # type: ignore[attr-defined]
            known = bisect.bisect_right(self.task["points"], self.task["since"])
            self.untold = [last for last in self.state.results if last["iteration"] > known]
        if self.untold:
            return Result(**{**self.untold.pop(0), "restored": True, "out_of_time": False})
        try:
            if self.task["changes"]:  # which a re-training of a population's member follows
                self.agent = with_config(self.agent, self.task["config"], self.task["changes"])
            result = self._iterate(self.agent)
        except BaseException:
            # Half a step must not be saved: the retry starts from the last checkpoint.
            self.agent.close()
            self.agent = None
            raise
        before = self.state.results[-1:] if self.is_ahead else []
        self.state.results = [*before, dict(vars(result))]
        ends = result.finished or result.out_of_time or self.may_end
        self.is_over = result.finished
        if ends or self.save_timer.is_due:
            # What ends a job is told when its checkpoint is there: others go on from it.
            self._save(beside=not ends)
        return result

    def _make_agent(self) -> Trainer:
        from rltune.agents.loop.controls import Controls
        from rltune.backends.registry import make_trainer

        task = self.task
        if self.beside is not None and self.saving_to == task["checkpoint"]:
            self.beside.wait()
        file = self.checkpoint.fetch()
        if file is not None:
            return self._load_agent(file)
        agent = make_trainer(
            task["agent"],
            task["env"],
            task["config"],
            total_timesteps=task["total_timesteps"],
            seed=task["seed"],
            device=task["device"],
            controls=Controls(**task["controls"]),
            env_kwargs=task["env_kwargs"],
            engine=task["engine"],
        )
        if task["weights"] is not None:
            with file_of_run(task["weights"], self.address) as weights:
                agent.load_weights(weights)
        return agent

    def _load_agent(self, file: Path) -> Trainer:
        from rltune.backends.registry import agent_type

        task = self.task
        try:
            agent = agent_type(task["agent"], task["env"]).load(file, device=task["device"])
        except UserError:
            if file.exists():
                raise
            raise FileNotFoundError(f"{file} has gone") from None  # with its storage: try again
        self.state = _JobState.of(agent.extra)
        self.saved_steps = agent.env_steps
        try:  # a population gives a member new values, or another member's checkpoint
            return with_config(agent, task["config"], task["changes"])
        except BaseException:
            agent.close()
            raise

    def _iterate(self, agent: Trainer) -> Result:
        assert self.idle is not None
        task, state, idle = self.task, self.state, self.idle.columns()
        started, cpu_started = time.perf_counter(), _cpu_seconds(agent)
        before = agent.env_steps
        aim = min(bisect.bisect_right(task["points"], before), len(task["points"]) - 1)
        point = task["points"][aim]
        chunk = agent.learn(point, deadline=task["deadline"])
        finished = chunk.env_steps >= task["points"][-1] or chunk.stop_reason is not None
        out_of_time = not finished and not chunk.diverged and chunk.env_steps < point
        # RLlib may jump over points: the last one reached counts, so rungs compare like with like.
        index = max(aim, bisect.bisect_right(task["points"], chunk.env_steps) - 1)
        passed = task["points"][aim : index + 1]
        due = any(point in task["evaluate_at"] for point in passed)
        self.may_end = any(point in task["save_at"] for point in passed)
        self.is_judged = any(point in task["judged_at"] for point in passed)
        evaluation = None
        if not chunk.diverged and (finished or (due and not out_of_time)):
            evaluation = self._evaluate(agent, passed, chunk, finished)
        self.idle.trained()
        state.seconds += time.perf_counter() - started
        state.cpu_seconds += _cpu_seconds(agent) - cpu_started
        # An iteration that the deadline cut short keeps its number when it is completed later.
        iteration = index + 1
        times = {"time": state.seconds, "cpu_time": state.cpu_seconds}
        row = chunk.row(iteration, before, **times, **memory_shares(), **idle)
        # Actions that are NaN may show in the evaluation before they show in the updates.
        diverged = chunk.diverged or agent.diverged
        if evaluation is not None and not diverged:
            row.update(evaluation.row())
            state.evaluations.append(metric_of(row, task["metric"]))
        evaluations = state.evaluations
        return Result(
            iteration=iteration,
            row=row,
            episodes=[episode.row() for episode in chunk.episodes],
            objective=objective_of(evaluations, task["objective"])
            if evaluation is not None and not diverged
            else None,
            objective_mean=sum(evaluations) / len(evaluations) if evaluations else None,
            finished=finished and not diverged,
            stop_reason=chunk.stop_reason,
            diverged=diverged,
            out_of_time=out_of_time,
            notes=chunk.notes,
        )

    def _evaluate(
        self, agent: Trainer, passed: Sequence[int], chunk: Chunk, finished: bool
    ) -> Evaluation:
        """Run as many episodes as the decision needs; all of them for the record."""
        task, state = self.task, self.state
        least = most = task["eval_episodes"]
        plan, needed = None, None
        if task["evaluation_plan"] and not finished:
            plan = EvaluationPlan(**task["evaluation_plan"])
            lengths = [episode.length for episode in chunk.episodes]
            length = state.eval_length or (sum(lengths) / len(lengths) if lengths else None)
            most = max(plan.most(point, state.eval_steps, length) for point in passed)
            needed = plan.needed(passed[-1], state.evaluations)
            least = most if needed is None else min(LEAST, most)
        evaluation = agent.evaluate(least, mode=task["eval_mode"])
        if (
            needed is not None
            and least < most
            and not is_too_low(
                evaluation.returns, needed, most, [e.episode_return for e in chunk.episodes]
            )
        ):
            more = agent.evaluate(most - least, mode=task["eval_mode"], first=least)
            evaluation = evaluation.and_then(more)
        state.eval_steps += sum(evaluation.lengths)
        state.eval_length = sum(evaluation.lengths) / len(evaluation.lengths)
        return evaluation

    def _save(self, beside: bool) -> None:
        """Save the agent; the disk is waited for now, or beside what comes next."""
        assert self.agent is not None
        assert self.beside is not None
        # Only a job that goes on from it needs the replay memory, which may be a gigabyte.
        keeps = self.task["save_replay_buffer"] or not self.agent.replays
        assert self.idle is not None
        with self.save_timer.saving(), self.idle.counting("save"):
            self.agent.extra = dict(vars(self.state))
            self.beside.wait()
            beside = beside and not is_suite(self.task["env"])  # it reads its members' files
            self.saving_to = self.task["checkpoint"] if beside else ""
            memory = keeps and not self.is_over
            self.checkpoint.save(self.agent, memory=memory, beside=self.beside if beside else None)
        self.saved_steps = self.agent.env_steps

    def _leave(self) -> None:
        if self.watch is not None:
            self.watch.stop()
        if self.agent is None:
            return
        if self.agent.env_steps > self.saved_steps and self.state.results:
            self._save(beside=True)
        self.agent.close()
        self.agent = None


def _import_trainer(agent: str, env: str) -> None:
    """Import what trains the agent, but no module of the user's own, which may do anything."""
    from rltune.backends.registry import agent_type, config_class, is_own

    agent_type(agent, env)
    if not is_own(agent):
        config_class(agent)


def _cpu_seconds(agent: Trainer) -> float:
    """Return those of this process, and of what works for the agent elsewhere."""
    return time.process_time() + float(getattr(agent, "cpu_elsewhere", 0.0))


def _leave_word(task: Task, method: str) -> None:
    """Store in Ray the method of the environment that does not answer; empty: all answer."""
    from ray.experimental import internal_kv

    key = task["checkpoint"].encode()
    with contextlib.suppress(Exception):  # what has become of the cluster is told elsewhere
        if method:
            internal_kv._internal_kv_put(key, method.encode(), namespace=SILENCE)
        else:
            internal_kv._internal_kv_del(key, namespace=SILENCE)


def memory_shares() -> dict[str, float]:
    """Return the shares of the machine's memory that this worker has, and that are in use.

    They are those that Ray looks at before it kills: in a container, parts of its limit. Nothing
    where this version of Ray has no such functions.
    """
    try:
        import psutil  # comes with Ray
        from ray._common.utils import get_system_memory
        from ray._private.utils import get_used_memory
    except ImportError:
        return {}
    total = get_system_memory()
    own = psutil.Process().memory_info().rss
    return {"memory": own / total, "memory_in_use": get_used_memory() / total}
