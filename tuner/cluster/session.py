"""Ray sessions: started here or joined, without Ray's output, and left as they were."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rltune.agents.errors import UserError
from rltune.cluster.address import CLIENT, find
from rltune.cluster.code import travelling

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
    os.environ.update({key: os.environ.get(key, value) for key, value in _TUNE_ENVIRONMENT.items()})
    import ray

    owned = not ray.is_initialized()
    mode = os.environ.get("RAY_AUTH_MODE")
    if owned:
        _connect(find(address), quiet, code)
        _protect_token()
    if quiet:
        _silence()
    _survive_out_of_memory()
    try:
        yield
    finally:
        if owned:
            with _no_collection():
                ray.shutdown()
            if mode is not None:  # a cluster may have had another one
                os.environ["RAY_AUTH_MODE"] = mode


def _connect(address: str | None, quiet: bool, code: Path | None) -> None:
    import ray

    options: dict[str, Any] = {"address": address or "local", "include_dashboard": False}
    if address is not None:
        environment: dict[str, Any] = {"env_vars": dict(_TUNE_ENVIRONMENT)}
        if code is not None and IN_JOB not in os.environ:  # what a job brought is there already
            environment |= travelling(code)
        options = {"address": address, "runtime_env": environment}
    # Behind ray://, the server forks a process for each client, which at times hangs at once.
    attempts = 3 if address is not None and address.startswith(CLIENT) else 1
    for attempt in range(1, attempts + 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(
                    log_to_driver=not quiet,
                    logging_level=logging.ERROR if quiet else logging.INFO,
                    **options,
                )
            return
        except (ConnectionError, RuntimeError) as error:
            if address is None:
                raise
            if attempt == attempts:
                reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
                raise UserError(f"the cluster at {address} can't be joined: {reason}") from error


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


def _survive_out_of_memory() -> None:
    """Make a worker that Ray's memory monitor killed an ordinary dead worker.

    Ray 2.60's Tune does not know that error, and ends the whole run with it.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.exceptions import OutOfMemoryError, RayActorError

    stock = RayActorManager._actor_task_failed
    if stock.__name__ != "_actor_task_failed":
        return  # done before in this process

    def failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=f"{OUT_OF_MEMORY}\n{exception}")
        stock(self, tracked_actor_task=tracked_actor_task, exception=exception)

    RayActorManager._actor_task_failed = failed


def _protect_token() -> None:
    """Ray writes its token readable for everyone; it is a password."""
    token = Path.home() / ".ray" / "auth_token"
    with contextlib.suppress(OSError):
        token.chmod(stat.S_IRUSR | stat.S_IWUSR)
