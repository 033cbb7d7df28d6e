"""Single trainings: `rltune train` and its resumption."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from rltune.agents.config import config_dict, config_hash
from rltune.agents.envs.suite import completed, is_suite
from rltune.agents.envs.waiting import Watch, on_stderr, silence
from rltune.agents.errors import UserError
from rltune.agents.loop.controls import Controls
from rltune.agents.loop.results import Chunk, Evaluation
from rltune.backends.checkpoints import WEIGHTS, find_checkpoint, keep_weights
from rltune.backends.names import OTHERS
from rltune.backends.registry import (
    agent_type,
    backend_of,
    check_start,
    cut_off,
    learns_nothing,
    make_trainer,
    with_config,
)
from rltune.common.callbacks import Callback, Callbacks, Given, RunInfo, resolved
from rltune.common.files import atomic_write
from rltune.common.formats import short_path
from rltune.common.save_timer import SaveTimer
from rltune.planning.evaluations import explained, longest_episode
from rltune.runs.cloud import below, fetched, mirrored, split_storage
from rltune.runs.directory import STORAGE, RunDir, default_name, run_path
from rltune.runs.history import HistoryWriter
from rltune.runs.train_spec import EVALUATIONS, TrainSpec
from rltune.tracking import Tracker
from rltune.tracking.registry import check_trackers
from rltune.training.events import TrainingEvents
from rltune.training.progress import TrainProgress

if TYPE_CHECKING:
    from rltune.agents.loop.agent import Agent
    from rltune.backends.base import SingleTrainer, Trainer
    from rltune.training.policy import Policy

ROLE = "train"
SECONDS_PER_CALL = 0.5  # how long the progress bar and Ctrl-C wait at most, updates aside
LAST, BEST = "last.pt", "best.pt"  # the checkpoints; only a resume of the last one needs its memory
# Seconds after Ctrl-C at which a long step, update or evaluation is abandoned, its work lost.
PATIENCE = 2.0


class _Abandoned(BaseException):
    """A step took too long after Ctrl-C; no handler in between may catch this."""


@dataclass
class _TrainingState:
    """The state of a training in its checkpoint, beside that of the agent."""

    iteration: int = 0
    seconds: float = 0.0
    best_return: float | None = None
    best_env_steps: int = 0


@dataclass(frozen=True)
class TrainResult:
    """The result of a training."""

    path: Path
    env_steps: int
    seconds: float
    last_return: float | None
    last_success_rate: float | None  # where the environment says what a success is
    best_return: float | None
    best_env_steps: int
    stop_reason: str | None  # the agent's own rule, or a callback; None at the end of the budget
    diverged: str | None
    interrupted: bool

    def policy(self, *, best: bool = False, device: str = "auto") -> Policy:
        """Return the agent as it is now, or that of the best evaluation; see `rltune.load`."""
        from rltune.training.policy import load

        return load(self.path, best=best, device=device)

    @property
    def exit_code(self) -> int:
        """For the shell: 0 done, 1 diverged, 130 interrupted."""
        return 130 if self.interrupted else int(self.diverged is not None)


def train(
    spec: TrainSpec,
    *,
    name: str | None = None,
    storage_path: str | Path = STORAGE,
    plain: bool = False,
    callbacks: Given = (),
) -> TrainResult:
    """Train an agent from the start, in a new run directory.

    Args:
        spec: of the training
        name: of the run directory; by default made of agent, environment and date
        storage_path: the folder of the runs; or s3://..., where they are copied to
        plain: lines instead of a progress bar
        callbacks: that are told what happens, see `rltune.Callback`

    Raises:
        UserError: a wrong specification; then no run directory is left behind.
    """
    spec = dataclasses.replace(spec, env=completed(spec.env))
    folder, uri = split_storage(storage_path)
    path = run_path(folder, name or default_name(spec.agent, spec.env, folder))
    weights = find_checkpoint(spec.weights) if spec.weights else None
    check_start(spec.agent, spec.eval_mode, spec.weights, spec.engine)
    check_trackers(spec)
    told = resolved(callbacks)
    if spec.export_freq and (is_suite(spec.env) or spec.agent.startswith(OTHERS)):
        raise UserError(
            "--export-freq: policies of rltune's own agents on a single environment can be "
            "exported alone; leave it out"
        )
    with Watch(on_stderr):
        agent = _new_agent(spec, weights)
    try:
        spec = dataclasses.replace(spec, config=config_dict(agent.config), engine=agent.engine)
        mirror = uri and below(uri, path.name)
        run = RunDir.create(path, dataclasses.asdict(spec), kind="train", mirror=mirror)
        with run.lock():
            if weights:
                keep_weights(weights, run.path)
            return _TrainingLoop(run, spec, agent, plain, told).run()
    finally:
        agent.close()


def _new_agent(spec: TrainSpec, weights: Path | None) -> Trainer:
    """Return the agent of a training that begins, from these weights if there are some."""
    agent = make_trainer(
        spec.agent,
        spec.env,
        spec.config,
        total_timesteps=spec.total_timesteps,
        seed=spec.seed,
        device=spec.device,
        controls=Controls(**spec.controls),
        env_kwargs=spec.env_kwargs,
        engine=spec.engine,
    )
    try:
        if weights:
            agent.load_weights(weights)
    except BaseException:
        agent.close()
        raise
    return agent


class FinishedError(UserError):
    """A training that is to go on has reached its end."""


def resume_training(
    run: str | Path,
    *,
    total_timesteps: int | None = None,
    target_reward: float | None = None,
    device: str | None = None,
    plain: bool = False,
    callbacks: Given = (),
) -> TrainResult:
    """Go on with a training from its last checkpoint; rows after it are made again.

    Where a target or a plateau has ended it, that rule counts no more as soon as there is a new
    length or target.

    Args:
        run: the run directory
        total_timesteps: a new length of the whole training; schedules end there
        target_reward: a new mean reward at which it ends
        device: of PyTorch from now on; noise that was drawn on another one begins anew
        plain: lines instead of a progress bar
        callbacks: as of `rltune.train`; a run directory does not keep them

    Raises:
        FinishedError: nothing is left to be trained.
        UserError: no training, or it diverged, or another process drives it.
    """
    told = resolved(callbacks)
    rundir = RunDir.open(fetched(run))
    spec = TrainSpec.from_dict(rundir.spec)
    if device is not None:
        spec = dataclasses.replace(spec, device=device)
    with rundir.lock():
        with Watch(on_stderr):
            agent = _last_agent(rundir, spec)
        try:
            spec = _extended(spec, agent, total_timesteps, target_reward)
            agent.total_timesteps = spec.total_timesteps
            agent.go_on(Controls(**spec.controls))
            if agent.finished:
                raise _nothing_left(rundir, agent)
            names = ("total_timesteps", "controls", "device")
            changes = {name: getattr(spec, name) for name in names}
            rundir.resumed(changes)
            return _TrainingLoop(rundir, spec, agent, plain, told).run()
        finally:
            agent.close()


def _nothing_left(run: RunDir, agent: Trainer) -> UserError:
    if agent.diverged:
        return UserError(f"the training {run.name!r} can't go on: it diverged, {agent.diverged}")
    done, total = agent.env_steps, agent.total_timesteps
    longer = total if done < total else 2 * total
    command = f"`rltune resume {run.name} -n {longer}`"
    if agent.stop_reason is None:
        return FinishedError(
            f"the training {run.name!r} is finished: {done:,} env steps are done; train it longer "
            f"with {command}"
        )
    return FinishedError(
        f"the training {run.name!r} is finished: {agent.stop_reason}; go on with another target, "
        f"--target-reward X, or without one, {command}"
    )


def check_target(agent: Trainer, target: float) -> None:
    """Raise `UserError` for a target that can't be reached, or has been."""
    backend = backend_of(agent.algorithm_spec, agent.env)
    backend.check_controls(Controls(target_reward=target), None)
    mean = cast("SingleTrainer", agent).monitor.mean_reward
    if not math.isfinite(target):
        raise UserError(f"--target-reward must be a number, not {target}")
    if mean is not None and target <= mean:
        raise UserError(
            f"--target-reward {target:g}: the mean reward is {mean:.6g} already; give more"
        )


def _extended(
    spec: TrainSpec, agent: Trainer, total_timesteps: int | None, target: float | None
) -> TrainSpec:
    """Return the specification with a new length or target, without the rule that ended it.

    Raises:
        UserError: it is as long already, or has reached the target.
    """
    if total_timesteps is None and target is None:
        return spec
    total, controls = total_timesteps or spec.total_timesteps, dict(spec.controls)
    if total_timesteps is not None and total <= agent.env_steps:
        raise UserError(f"-n {total}: {agent.env_steps:,} env steps are done already; give more")
    if agent.stop_reason is not None:
        for rule in ("target_reward", "early_stop_patience"):
            controls.pop(rule, None)
    if target is not None:
        check_target(agent, target)
        controls["target_reward"] = target
    return dataclasses.replace(spec, total_timesteps=total, controls=controls)


def _last_agent(run: RunDir, spec: TrainSpec) -> Trainer:
    """Return the agent of the last checkpoint, or a new one if there is none yet."""
    last = run.path / "checkpoints" / LAST
    if last.exists():
        return agent_type(spec.agent, spec.env).load(
            last, device=spec.device, env=spec.env, algorithm=spec.agent
        )
    weights = None
    if spec.weights is not None:
        weights = run.path / WEIGHTS
        if not weights.exists():  # killed before they were copied
            keep_weights(spec.weights, run.path)
    return _new_agent(spec, weights)


def resume(
    run: str | Path,
    *,
    total_timesteps: int | None = None,
    target_reward: float | None = None,
    device: str | None = None,
    plain: bool = False,
    callbacks: Given = (),
) -> int:
    """Resume a training as `rltune resume` does, and return the exit code."""
    try:
        result = resume_training(
            run,
            total_timesteps=total_timesteps,
            target_reward=target_reward,
            device=device,
            plain=plain,
            callbacks=callbacks,
        )
    except FinishedError as error:  # as with a search: it may have been killed after its last step
        print(f"{error}.")
        return 0
    print_result(result)
    return result.exit_code


class _TrainingLoop:
    """Trains an agent to its end, iteration by iteration, and records each."""

    def __init__(
        self,
        run: RunDir,
        spec: TrainSpec,
        agent: Trainer,
        plain: bool,
        callbacks: Sequence[Callback],
    ) -> None:
        self.run_dir = run
        self.spec = spec
        self.agent = agent
        self.state = _TrainingState(**agent.extra)
        self.history = HistoryWriter(run)
        self.history.rewind(0, spec.seed, self.state.iteration)
        self.progress = TrainProgress(spec.total_timesteps, plain)
        self.tracker = Tracker(run, spec, warn=self.progress.note)
        self.last: Evaluation | None = None
        self.interrupted = False
        self.may_be_cut = False  # after Ctrl-C: this part of an iteration is not waited for
        self.abandoned = False  # it was cut: only the last checkpoint counts
        self.saved_steps = agent.env_steps
        self.warned = False  # that evaluations are cut off
        self.save_timer = SaveTimer()
        self.events = TrainingEvents(Callbacks(callbacks, run.path, self.progress.note))

    def run(self) -> TrainResult:
        """Train; Ctrl-C ends it with everything saved, a second one at once."""
        with mirrored(self.run_dir.path, self.run_dir.mirror, self.progress.note) as tick:
            return self._run(tick)

    def _run(self, between_writes: Callable[[], None]) -> TrainResult:
        agent, spec = self.agent, self.spec
        config = config_dict(agent.config)
        trial = {"trial": 0, "origin": ROLE, "hash": config_hash(config)}
        self.tracker.trial_started(trial, config, spec.seed, ROLE)
        run = self.run_dir
        about = RunInfo(run.name, run.path, dataclasses.asdict(spec), agent.env_steps > 0)
        try:
            with self.progress, self._interruptible(), Watch(self._tell_silence):
                self.progress.update(agent.env_steps, None)
                if reason := learns_nothing(config, spec.env, spec.total_timesteps):
                    self.progress.note(reason)
                if said := self._about_evaluations():
                    self.progress.note(said)
                if agent.env_steps and not spec.save_replay_buffer and agent.replays:
                    self.progress.note(
                        "the replay memory was not saved: a new one is filled first, so this is "
                        "not what the training would have been without a stop"
                    )
                if said := self.events.unheard(agent):
                    self.progress.note(said)
                self.events.tell("on_training_start", about)
                if spec.eval_at_start and agent.env_steps == 0 and self.state.best_return is None:
                    self._evaluate_start()
                while not (self.agent.finished or self.interrupted or self.events.stops):
                    self._iterate()
                    between_writes()
            result = self._result()
            self.tracker.trial_finished(0, _summary(result), spec.seed, ROLE)
            return result
        finally:
            self.history.close()
            self.tracker.close()
            self.events.tell("on_training_end", about)
            if self.agent is not agent:
                self.agent.close()

    def _about_evaluations(self) -> str:
        spec = self.spec
        times = -(-spec.total_timesteps // spec.eval_steps)
        return explained(
            spec.total_timesteps,
            longest_episode(spec.env, spec.env_kwargs),
            (times, spec.eval_episodes),
            (EVALUATIONS, TrainSpec.eval_episodes),
        )

    def _tell_silence(self, method: str, seconds: float | None) -> None:
        said = f"the environment's {method} has answered"
        self.progress.note(said if seconds is None else silence(method, seconds))

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Turn the first Ctrl-C, or SIGTERM, into a clean stop within `PATIENCE`."""

        def stop(signum: int, frame: FrameType | None) -> None:
            self.interrupted = True
            self.progress.note("stopping; press Ctrl-C again to stop at once")
            signal.signal(signal.SIGINT, before[0])
            signal.signal(signal.SIGTERM, before[1])
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)

        def abandon(signum: int, frame: FrameType | None) -> None:
            if self.may_be_cut:
                raise _Abandoned

        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        try:
            before = [
                signal.signal(number, abandon if number is signal.SIGALRM else stop)
                for number in signals
            ]
        except ValueError:  # not the main thread: then whoever runs us handles them
            yield
            return
        try:
            yield
        except _Abandoned:
            self.abandoned = True
            self.progress.note("what was under way takes long; the last checkpoint has the rest")
        finally:
            if self.interrupted:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)

    def _iterate(self) -> None:
        """Train up to the next point, evaluate if it is time for it, record and save."""
        spec, state = self.spec, self.state
        if spec.schedule:
            self.agent = with_config(self.agent, spec.config, spec.schedule)
        agent = self.agent
        before, started = agent.env_steps, time.perf_counter()
        # The last rollout may have gone beyond the point: the next one counts from there.
        point, evaluate_at = spec.next_point(before), spec.next_evaluation(before)
        self.may_be_cut = True
        told = self.events.watch(agent)
        chunk = self._learn(point)
        if not told:
            self.events.updated(agent.env_steps, chunk.metrics)
        evaluation = None
        if not agent.diverged and (agent.finished or chunk.env_steps >= evaluate_at):
            evaluation = agent.evaluate(spec.eval_episodes, mode=spec.eval_mode)
        self.may_be_cut = False
        state.iteration += 1
        state.seconds += time.perf_counter() - started
        row = self._row(chunk, evaluation, before)
        self.history.append(row, [episode.row() for episode in chunk.episodes])
        self.tracker.log(0, spec.seed, ROLE, row)
        if evaluation is not None:
            self._evaluated(evaluation)
            if not self.warned and (text := cut_off(row, spec.env)):
                self.warned = True
                self.progress.note(text)
        ends = self.interrupted or self.events.stops or agent.diverged
        if evaluation is not None or ends or self.save_timer.is_due:
            self._save(LAST)
        self._keep(before)
        for note in chunk.notes:
            self.progress.note(note)
        self.progress.update(agent.env_steps, chunk.mean_reward, evaluation)

    def _keep(self, before: int) -> None:
        """Keep a checkpoint, and export the policy, where it is time for it.

        Args:
            before: env steps at which the iteration began
        """
        spec, agent = self.spec, self.agent
        name = f"{agent.env_steps:09d}.pt"
        if spec.save_freq and agent.env_steps // spec.save_freq > before // spec.save_freq:
            self._save(name)
        if spec.export_freq and agent.env_steps // spec.export_freq > before // spec.export_freq:
            self._export(name)

    def _export(self, name: str) -> None:
        from rltune.agents.loop import saved_policy

        file, agent = self.run_dir.path / "policies" / name, cast("Agent", self.agent)
        file.parent.mkdir(exist_ok=True)
        about = {"env_steps": agent.env_steps}
        atomic_write(file, lambda path: saved_policy.write(path, agent, about))

    def _evaluate_start(self) -> None:
        """Evaluate the agent before its first step, as iteration 0."""
        spec, started = self.spec, time.perf_counter()
        self.may_be_cut = True
        evaluation = self.agent.evaluate(spec.eval_episodes, mode=spec.eval_mode)
        self.may_be_cut = False
        self.state.seconds += time.perf_counter() - started
        nothing = Chunk(0, 0.0, {}, [], None, None, None, None)
        row = self._row(nothing, evaluation, 0)
        self.history.append(row, [])
        self.tracker.log(0, spec.seed, ROLE, row)
        self._evaluated(evaluation)
        self._save(LAST)
        self.progress.update(0, None, evaluation)

    def _learn(self, point: int) -> Chunk:
        """Learn in short calls, so that the screen moves and Ctrl-C is heard; one result."""
        chunks: list[Chunk] = []
        while True:
            chunk = self.agent.learn(point, deadline=time.time() + SECONDS_PER_CALL)
            chunks.append(chunk)
            self.progress.update(chunk.env_steps, chunk.mean_reward)
            done = chunk.env_steps >= point and (point < self.spec.total_timesteps)
            ends = self.interrupted or self.events.stops
            if done or self.agent.finished or chunk.diverged or ends:
                return Chunk.merged(chunks)

    def _row(self, chunk: Chunk, evaluation: Evaluation | None, before: int) -> dict[str, Any]:
        row: dict[str, Any] = {"trial": 0, "seed": self.spec.seed, "role": ROLE}
        row |= chunk.row(self.state.iteration, before, time=self.state.seconds)
        if evaluation is not None:
            row.update(evaluation.row())
        if self.agent.diverged:
            row["diverged"] = 1.0  # a reader of the history alone must not take it for a success
        return row

    def _evaluated(self, evaluation: Evaluation) -> None:
        state = self.state
        self.last = evaluation
        self.events.evaluated(self.agent.env_steps, evaluation)
        if state.best_return is None or evaluation.mean > state.best_return:
            state.best_return, state.best_env_steps = evaluation.mean, self.agent.env_steps
            self._save(BEST)

    def _save(self, name: str) -> None:
        path = self.run_dir.path / "checkpoints" / name
        keeps = name == LAST and (self.spec.save_replay_buffer or not self.agent.replays)
        with self.save_timer.saving():
            self.agent.extra = dict(vars(self.state))
            self.agent.save(path, memory=keeps)
        if name == LAST:
            self.saved_steps = self.agent.env_steps
        self.events.saved(self.agent.env_steps, path)

    def _result(self) -> TrainResult:
        return TrainResult(
            path=self.run_dir.path,
            env_steps=self.saved_steps if self.abandoned else self.agent.env_steps,
            seconds=self.state.seconds,
            last_return=self.last.mean if self.last else None,
            last_success_rate=self.last.success_rate if self.last else None,
            best_return=self.state.best_return,
            best_env_steps=self.state.best_env_steps,
            stop_reason=self._stop_reason(),
            diverged=self.agent.diverged,
            interrupted=self.abandoned or (self.interrupted and not self.agent.finished),
        )

    def _stop_reason(self) -> str | None:
        ended = self.agent.finished or self.interrupted or not self.events.stops
        return self.agent.stop_reason if ended else "a callback has asked for the end"


def _summary(result: TrainResult) -> dict[str, Any]:
    state = "FAIL" if result.diverged else "PRUNED" if result.interrupted else "COMPLETE"
    return {
        "state": state,
        "reason": result.diverged or result.stop_reason or "",
        "objective": result.last_return,
        "best_return": result.best_return,
        "env_steps": result.env_steps,
    }


def print_result(result: TrainResult, say: Callable[[str], None] = print) -> None:
    """Print the outcome of a training, its files, and commands to go on with."""
    path = short_path(result.path)
    if result.diverged:
        blamed = "the environment gave" in result.diverged
        advice = "" if blamed else "; try a lower --learning-rate"
        say(f"The training diverged: {result.diverged}{advice}.")
    elif result.interrupted:
        say(f"Stopped at {result.env_steps:,} env steps; nothing is lost.")
    else:
        reason = f" ({result.stop_reason})" if result.stop_reason else ""
        say(f"Trained for {result.env_steps:,} env steps in {result.seconds:.0f} s{reason}.")
    if result.last_return is not None:
        rate = result.last_success_rate
        success = "" if rate is None else f", success rate {rate:.6g},"
        say(f"Last evaluation: mean return {result.last_return:.6g}{success} of greedy episodes.")
    if result.best_return is not None:
        say(f"Best evaluation: {result.best_return:.6g} at {result.best_env_steps:,} env steps.")
    say("")
    has_last = (result.path / "checkpoints" / "last.pt").exists()
    if has_last:
        say(f"  {path}/checkpoints/last.pt   the agent as it is now")
    if result.best_return is not None:
        say(f"  {path}/checkpoints/best.pt   the agent of the best evaluation")
    say(f"  {path}/history, episodes     the curves (parquet)")
    say("")
    if result.interrupted:
        say(f"  rltune resume {path}")
    if not has_last:
        return
    say(f"  rltune eval {path}/checkpoints/last.pt --episodes 100")
    say(f"  rltune play {path}/checkpoints/last.pt")
