"""Ray sessions: started here or joined, without Ray's output, and left as they were."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import stat
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.cluster.address import CLIENT, find
from rltune.cluster.code import travelling
from rltune.cluster.lean import start

IN_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it for the command of a job
# Tune reads these when it is imported or started. Its loggers and snapshots only cost time here.
_TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray's default of 15 leaves a trial 3 % of a core that any other program uses too.
    "RAY_worker_niceness": "0",
}
OUT_OF_MEMORY = "out of memory: the worker was killed"


class _Start:
    """A start of Ray on this machine, in a thread beside other work.

    Ray's processes die with the thread that started them, so it stays until Ray is to end.

    Args:
        quiet: keep Ray's output off the screen
    """

    def __init__(self, quiet: bool) -> None:
        import ray  # here, or both threads would import at once and wait for each other

        atexit.register(self.end)  # before Ray's own end, which would meet a start that goes on
        self.shut_down = ray.shutdown
        self.is_taken = False  # by a `ray_session`, which ends it
        self.error: Exception | None = None
        self._quiet = quiet
        self._up, self._over = threading.Event(), threading.Event()
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()  # of the calls
        self._thread = threading.Thread(target=self._run, name="rltune-ray", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            start(
                self._quiet,
                address="local",
                include_dashboard=False,
                log_to_driver=not self._quiet,
                logging_level=logging.ERROR if self._quiet else logging.INFO,
            )
            _protect_token()
        except Exception as error:
            self.error = error
        while not self._up.is_set():
            with self._lock:
                calls, self._calls = self._calls, []
                if not calls:
                    self._up.set()
            for call in calls:
                self._call(call)
        self._over.wait()
        self._end_ray()

    def _call(self, call: Callable[[], None]) -> None:
        if self.error is None and not self._over.is_set():
            call()

    def _end_ray(self) -> None:
        if self.error is None:
            with _no_collection():
                self.shut_down()

    @property
    def is_ending(self) -> bool:
        """Whether Ray is to end, or has ended."""
        return self._over.is_set()

    def then(self, call: Callable[[], None]) -> None:
        """Call a function as soon as Ray is up: in its thread, or now."""
        with self._lock:
            if not self._up.is_set():
                self._calls.append(call)
                return
        self._call(call)

    def wait(self) -> None:
        """Wait until Ray is up and has been given what comes then; raise what it failed with."""
        self._up.wait()
        if self.error is not None:
            raise self.error

    def give_up(self) -> None:
        """End Ray as soon as it is up, in its thread; nothing here uses it."""
        self._over.set()

    def end(self) -> None:
        """End Ray, and wait for it."""
        self._up.wait()
        if not self.is_ending:
            self._end_ray()
            self._over.set()
        self._thread.join()
        atexit.unregister(self.end)


_under_way: _Start | None = None  # the last one of this process


@contextlib.contextmanager
def started_ahead(quiet: bool = True, wait: bool = True) -> Iterator[Callable[..., None]]:
    """Start Ray on this machine beside what the block does; a `ray_session` in it waits for it.

    Args:
        quiet: keep Ray's output off the screen
        wait: for its end, too

    Yields:
        a function that calls another one as soon as Ray is up
    """
    global _under_way
    if _under_way is not None and _is_under_way():
        yield _under_way.then
        return
    _prepare_environment()
    import ray

    if _under_way is not None:
        _under_way.end()
    if ray.is_initialized():
        yield lambda call: call()
        return
    started = _under_way = _Start(quiet)
    try:
        yield started.then
    finally:
        if wait:
            started.end()
        else:
            started.give_up()


def when_up(call: Callable[[], None]) -> None:
    """Call a function as soon as the Ray that starts beside is up; never, where none does."""
    if _under_way is not None and _is_under_way():
        _under_way.then(call)


@contextlib.contextmanager
def ray_session(
    address: str | None = None, quiet: bool = True, code: Path | None = None
) -> Iterator[None]:
    """Connect to Ray, or start it on this machine, and leave it as it was found.

    Args:
        address: of a running cluster; see `address.find`
        quiet: keep Ray's output off the screen
        code: the user's folder, which a cluster's workers get a copy of

    Raises:
        UserError: there is no cluster at the address, or it will not have us.
    """
    _prepare_environment()
    import ray

    with contextlib.ExitStack() as stack:
        if (mode := os.environ.get("RAY_AUTH_MODE")) is not None:  # a cluster may have another one
            stack.callback(os.environ.__setitem__, "RAY_AUTH_MODE", mode)
        if not (_is_under_way() or ray.is_initialized()):
            if (found := find(address)) is None:
                stack.enter_context(started_ahead(quiet))
            else:
                _join(found, quiet, code)
                stack.callback(_leave)
        if _under_way is not None and _is_under_way() and not _under_way.is_taken:
            _under_way.is_taken = True
            stack.callback(_under_way.end)
            _under_way.wait()
        if quiet:
            _silence()
        yield


def _is_under_way() -> bool:
    return _under_way is not None and not _under_way.is_ending


def _prepare_environment() -> None:
    os.environ.update({key: os.environ.get(key, value) for key, value in _TUNE_ENVIRONMENT.items()})


def _join(address: str, quiet: bool, code: Path | None) -> None:
    import ray

    environment: dict[str, Any] = {"env_vars": dict(_TUNE_ENVIRONMENT)}
    if code is not None and IN_JOB not in os.environ:  # what a job brought is there already
        environment |= travelling(code)
    # Behind ray://, the server forks a process for each client, which at times hangs at once.
    attempts = 3 if address.startswith(CLIENT) else 1
    for attempt in range(1, attempts + 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(
                    address=address,
                    runtime_env=environment,
                    log_to_driver=not quiet,
                    logging_level=logging.ERROR if quiet else logging.INFO,
                )
            _protect_token()
            return
        except (ConnectionError, RuntimeError) as error:
            if attempt == attempts:
                reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
                raise UserError(f"the cluster at {address} can't be joined: {reason}") from error


def _leave() -> None:
    import ray

    with _no_collection():
        ray.shutdown()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Free Tune's leftovers here and now, and let no other thread do it while Ray shuts down.

    A placement group that is freed in the screen's thread meanwhile ends the whole process: "The
    core worker has already been shutdown".
    """
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _silence() -> None:
    """Keep Ray's own messages off the screen; those for users come from the driver."""
    for name in ("ray", "ray.tune", "ray.data", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Deaths of workers are printed even so. There is no public way to turn that off.
    with contextlib.suppress(ImportError, AttributeError, KeyError):
        from ray._private.ray_logging import global_worker_stdstream_dispatcher

        global_worker_stdstream_dispatcher.remove_handler("ray_print_logs")


def _protect_token() -> None:
    """Ray writes its token readable for everyone; it is a password."""
    token = Path.home() / ".ray" / "auth_token"
    with contextlib.suppress(OSError):
        token.chmod(stat.S_IRUSR | stat.S_IWUSR)
