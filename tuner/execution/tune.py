"""Jobs on Ray Tune: this module alone speaks to Tune, runs jobs and hands over their results.

What to run next, and what a result means, is decided by a `JobSource` (the driver). Tune places,
starts, reuses and retries. Tune's own checkpoints and snapshots are not used: the study and the
trials' checkpoints in the run directory are the truth, so a killed search needs nothing of Tune's
to go on.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rltune.agents.errors import ClusterError, StorageError
from rltune.cluster.capacity import Room
from rltune.cluster.nodes import Nodes
from rltune.cluster.session import OUT_OF_MEMORY
from rltune.common.redaction import masked_text
from rltune.execution.checkpoints import ServerAddress, open_checkpoint_server
from rltune.execution.messages import PAYLOAD, SERVER, TASK, JobFailure, Result, Task
from rltune.execution.trainable import SILENCE
from rltune.execution.workers import Workers, given_to_tune

LISTEN_EVERY = 2.0  # seconds between looks at whose environments do not answer
WATCH_EVERY = 5.0  # seconds between looks at a cluster's nodes


class JobSource(Protocol):
    """Says what to run and learns what came of it. All calls come from one thread."""

    def next_job(self) -> Task | None:
        """Return the next job, or None when there is nothing to start right now."""

    def exhausted(self) -> bool:
        """Whether no further job will ever come."""

    def should_stop(self) -> bool:
        """Whether everything has to stop now, running jobs included."""

    def use_the_time(self) -> None:
        """Do what can wait; called after everything that came of workers."""

    def on_start(self, job: str) -> None:
        """A worker begins, or begins again, with the job."""

    def hanging(self) -> list[str]:
        """Return the jobs whose workers are to be killed, because nothing comes from them."""

    def on_silence(self, job: str, method: str) -> None:
        """The job's worker waits for this method of its environment; empty: no longer."""

    def on_result(self, job: str, result: Result) -> bool:
        """Take a result; return whether the job ends with it."""

    def on_retry(self, job: str, failure: JobFailure) -> None:
        """The job failed and will be tried again from its checkpoint."""

    def on_failure(self, job: str, failure: JobFailure) -> None:
        """The job failed after its last retry."""

    def on_slots(self, slots: int) -> None:
        """From now on so many jobs run at once: nodes have joined or left."""


def run_jobs(
    source: JobSource,
    room: Room,
    retries: int,
    quiet: bool = True,
    nodes: Nodes | None = None,
    workers: Workers | None = None,
) -> None:
    """Run the source's jobs on Ray Tune until it is exhausted or wants to stop.

    Args:
        source: of the jobs
        room: for them
        retries: of a job whose worker died
        quiet: keep Tune's output off the screen
        nodes: of the cluster that was joined
        workers: those on this machine that were asked for before

    Raises:
        ClusterError: Ray is gone.
    """
    from ray import tune
    from ray.exceptions import RayError
    from ray.tune.impl.tuner_internal import TunerInternal

    # Workers take seconds to start: all at once, where Tune would start one after the other.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(room.slots())
    address, _actor = (
        open_checkpoint_server(nodes.run) if nodes and not nodes.must_share else (None, None)
    )
    here = _Here(source, _make_watch(room, nodes), address)
    workers = workers or Workers("", "", room.resources, None)
    folder = tempfile.TemporaryDirectory(prefix="rltune-tune-", ignore_cleanup_errors=True)
    with folder as scratch, given_to_tune(workers) as trainable:
        _stay_here(scratch)
        group = tune.PlacementGroupFactory(room.resources.bundles)
        # Behind ray://, tune.Tuner would move to the cluster, and leave the source behind.
        tuner = TunerInternal(
            trainable=tune.with_resources(trainable, group),
            tune_config=tune.TuneConfig(
                search_alg=_make_searcher(here),
                scheduler=_make_scheduler(here),
                num_samples=-1,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                storage_path=scratch,
                stop=_make_stopper(here),
                failure_config=tune.FailureConfig(max_failures=retries),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[_make_callback(here)],
                verbose=0 if quiet else 1,
            ),
            _tuner_kwargs={"_remote": False},
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tuner.fit()
            except RayError as error:
                here.error = here.error or error
    if isinstance(here.error, RayError):  # raised by Tune, or by what looks after the nodes
        reason = str(here.error).partition(". ")[0].strip()
        raise ClusterError(f"the cluster is lost ({reason}).") from here.error
    if here.error is not None:
        raise here.error


def _stay_here(scratch: str) -> None:
    """Give Tune a folder for its session where no Ray node is on this machine (ray://)."""
    import ray
    from ray.train._internal import storage

    if ray.util.client.ray.is_connected():
        storage._get_ray_train_session_dir = lambda: scratch


def _make_watch(room: Room, nodes: Nodes | None) -> Callable[[JobSource], None]:
    """Return a function that tells the source every few seconds of nodes that joined or left."""
    known, due = room.slots(), time.monotonic() + WATCH_EVERY

    def watch(source: JobSource) -> None:
        nonlocal known, due
        if nodes is None or time.monotonic() < due:
            return
        nodes.watch()
        now = room.slots()
        if now != known:
            source.on_slots(now)
        known, due = now, time.monotonic() + WATCH_EVERY

    return watch


def _travelled(task: Task) -> Task:
    """Return the task for a worker whose working directory is a copy of the user's folder."""
    import ray

    if "working_dir" in ray.get_runtime_context().runtime_env:
        return {**task, "import_path": "."}
    return task


def _job_of(trial: Any) -> str:
    return str(trial.config[TASK]["job"])


class _Here:
    """Holds the source. Tune pickles all that it is given, and the source has to stay here.

    Tune also buries whatever is raised in its callbacks; the first error is kept and ends the run.
    """

    def __init__(
        self,
        source: JobSource | None = None,
        watch: Callable[[JobSource], None] | None = None,
        address: ServerAddress | None = None,
    ) -> None:
        self.source = source
        self.watch = watch
        self.address = address
        self.error: BaseException | None = None
        self.trials: dict[str, Any] = {}  # Tune's, by job
        self.silent: dict[str, str] = {}  # job -> method that its worker waits for
        self.listens = time.monotonic()

    def __reduce__(self) -> tuple[type[_Here], tuple[()]]:
        return _Here, ()

    def call(self, method: str, *args: Any, failing: Any = None) -> Any:
        """Call the source; return ``failing`` when it raises, or has raised before."""
        if self.error is not None:
            return failing
        try:
            if self.watch is not None and self.source is not None:
                self.watch(self.source)
            return getattr(self.source, method)(*args)
        except BaseException as error:
            self.error = error
            return failing

    def forget(self, trial: Any) -> None:
        """Forget a trial of Tune's that has ended."""
        self.trials.pop(_job_of(trial), None)
        self.silent.pop(_job_of(trial), None)

    def hear_of_silence(self) -> None:
        """Tell the source whose environments do not answer; see `trainable._leave_word`."""
        from ray.experimental import internal_kv

        if time.monotonic() < self.listens:
            return
        self.listens = time.monotonic() + LISTEN_EVERY
        left: set[bytes] = set()
        with contextlib.suppress(Exception):  # what has become of the cluster is told elsewhere
            left.update(internal_kv._internal_kv_list(b"", namespace=SILENCE))
        for job, trial in self.trials.items():
            key = trial.config[TASK]["checkpoint"].encode()
            word = b""
            with contextlib.suppress(Exception):
                if key in left:
                    word = internal_kv._internal_kv_get(key, namespace=SILENCE) or b""
            if (method := word.decode()) != self.silent.get(job, ""):
                self.silent[job] = method
                self.call("on_silence", job, method)

    def kill_the_hanging(self) -> None:
        """Kill workers of which nothing comes; for Tune they have died, and it tries again."""
        import ray

        for job in self.call("hanging", failing=[]):
            actor = self.trials[job].temporary_state.ray_actor if job in self.trials else None
            if actor is not None:
                ray.kill(actor)


def _make_searcher(here: _Here) -> Any:
    from ray.tune.search import Searcher

    class SourceSearcher(Searcher):  # type: ignore[misc]
        """Hands the source's jobs to Tune."""

        def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
            if here.call("should_stop", failing=True) or here.call("exhausted", failing=True):
                return str(Searcher.FINISHED)
            task = here.call("next_job")
            return None if task is None else {TASK: _travelled(task), SERVER: here.address}

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            """Nothing to do: the source hears of every result from the scheduler."""

        def save(self, checkpoint_path: str) -> None:
            """Nothing to save: the study holds the state."""

        def restore(self, checkpoint_path: str) -> None:
            """Nothing to restore."""

    return SourceSearcher(metric="objective", mode="max")


def _make_scheduler(here: _Here) -> Any:
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler

    class SourceScheduler(FIFOScheduler):  # type: ignore[misc]
        """Asks the source whether a trial goes on; it is the first to see a result."""

        def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            came = result[PAYLOAD]
            if isinstance(came, JobFailure):  # it would fail again, so Tune must not try
                here.call("on_failure", _job_of(trial), came)
                return str(TrialScheduler.STOP)
            done = here.call("on_result", _job_of(trial), came, failing=True)
            return str(TrialScheduler.STOP if done else TrialScheduler.CONTINUE)

        def choose_trial_to_run(self, controller: Any) -> None:
            """Leave it to Tune, which has a queue; looking through all trials takes ever longer."""

    return SourceScheduler()


def _make_stopper(here: _Here) -> Any:
    from ray.tune import Stopper

    class SourceStopper(Stopper):  # type: ignore[misc]
        """Stops everything when the source says so."""

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            here.hear_of_silence()
            here.kill_the_hanging()
            if here.call("should_stop", failing=True):
                return True
            here.call("use_the_time")
            return False

    return SourceStopper()


def _make_callback(here: _Here) -> Any:
    from ray.tune import Callback

    class SourceCallback(Callback):  # type: ignore[misc]
        """Tells the source of starts and failures."""

        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            here.trials[_job_of(trial)] = trial
            here.call("on_start", _job_of(trial))

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            here.forget(trial)

        def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            _failed(here, "on_retry", trial)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            here.forget(trial)
            _failed(here, "on_failure", trial)

    return SourceCallback()


def _failed(here: _Here, method: str, trial: Any) -> None:
    """Tell the source of a failure; one of the storage is not the trial's, and ends the run."""
    import ray.cloudpickle
    from ray import exceptions

    # Tune's driver has just written both beside each other, in a folder of its own.
    file = Path(trial.error_file or "")
    text = masked_text(file.read_text()) if file.is_file() else ""
    pickled = Path(trial.pickled_error_file or "")
    error = ray.cloudpickle.loads(pickled.read_bytes()) if pickled.is_file() else None
    cause = error.cause if isinstance(error, exceptions.RayTaskError) else error
    if isinstance(cause, StorageError):
        here.error = here.error or cause
        return
    node = (trial.last_result or {}).get("hostname", "")
    here.call(method, _job_of(trial), _explained(error, cause, text, node))


def _explained(error: Any, cause: Any, text: str, node: str) -> JobFailure:
    """Say in one line why a Tune trial failed, which has last been heard of on ``node``."""
    from ray import exceptions

    if isinstance(cause, exceptions.RayActorError):
        where = f" on {node}" if node not in ("", platform.node()) else ""
        reason = f"worker{where} died: its process was killed or crashed"
        return JobFailure(OUT_OF_MEMORY if OUT_OF_MEMORY in str(cause) else reason, text)
    last = (str(error or text).strip().splitlines() or ["unknown"])[-1].strip()
    return JobFailure(f"error: {masked_text(last)}", text)
