"""Data-parallel learners: processes that compute the updates of one training together.

The training process is the first of them: it collects, evaluates and saves, alone. With each update
the others are told what to learn from; every learner computes the gradient on its share of each
minibatch, the gradients are added up, and all take the same step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import torch
from rltune.agents.algorithm import Algorithm
from rltune.agents.config import AgentConfig, config_dict
from rltune.agents.errors import UserError
from rltune.agents.machine.threads import hold_threads
from rltune.agents.parallel.channel import Channel, LostError
from rltune.agents.parallel.group import Group
from rltune.agents.parallel.memories import Reading
from rltune.agents.parallel.rank import give, packed_state
from rltune.agents.shares import DividedShares, Shares
from rltune.agents.spaces import Spaces

WAIT = 2.0  # seconds for a process to end by itself


def check_learners(agent: str, algorithm: type[Algorithm[Any]], config: AgentConfig) -> None:
    """Check that several learners can compute the updates, where a configuration asks for them.

    Raises:
        UserError: this agent's can't be divided.
    """
    if config.n_learners > 1 and not algorithm.data_parallel:
        raise UserError(
            f"n_learners is {config.n_learners}, but the updates of {agent} can't be divided among "
            "learners; leave it out, or use a2c, ppo, dqn, ddpg, td3 or sac"
        )


def check_devices(n_learners: int, device: str) -> None:
    """Check that each learner can have a GPU of its own, where they learn on GPUs.

    Raises:
        UserError: there are fewer, or one GPU is named.
    """
    kind, _, number = device.partition(":")
    if n_learners == 1 or kind == "cpu":
        return
    there = torch.cuda.device_count()
    if kind != "cuda" or number:
        raise UserError(
            f"n_learners is {n_learners}, and learners can't share device {device}; use cpu or cuda"
        )
    if n_learners > there:
        raise UserError(
            f"n_learners is {n_learners}, but there {'is' if there == 1 else 'are'} {there} GPU"
            f"{'' if there == 1 else 's'} here; use as many learners as GPUs at most, or device cpu"
        )


class Learners:
    """Updates an algorithm together with other processes, which start with the first update.

    Args:
        algorithm: of the training
        spec: its name
        spaces: of one environment
        seed: of the algorithm
        changes_beside: something else changes the networks between two updates

    Raises:
        UserError: the agent's updates can't be divided, or there are too few GPUs.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        spec: str,
        spaces: Spaces,
        *,
        seed: int,
        changes_beside: bool,
    ) -> None:
        self.algorithm = algorithm
        self.n: int = algorithm.config.n_learners
        self.changes_beside = changes_beside
        check_learners(spec, type(algorithm), algorithm.config)
        check_devices(self.n, str(algorithm.device))
        self._setting = {
            "algorithm": spec,
            "config": config_dict(algorithm.config),
            "spaces": dataclasses.replace(spaces, goals=None),  # only where a memory is
            "seed": seed,
            "engine": algorithm.engine,
            "n": self.n,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        self._shares: DividedShares | None = None
        self._known = False  # the others have the algorithm's state

    def forget(self) -> None:
        """Note that the algorithm was changed: the others get its state with the next update."""
        self._known = False

    def update(self, memory: Any, progress: float) -> dict[str, float]:
        """Learn from the memory, see `Algorithm.update`.

        Raises:
            UserError: a learner has ended.
        """
        try:
            if self._shares is None:
                self._start()
            return self._update(memory, progress)
        except LostError as error:
            raise self._explained(error) from error
        except BaseException:
            self.close()
            raise

    def _update(self, memory: Any, progress: float) -> dict[str, float]:
        algorithm, shares = self.algorithm, self._shares
        assert shares is not None
        reading = Reading(memory, algorithm.on_policy, self._channels)
        state = None if self._known else packed_state(algorithm)
        for channel in self._channels:
            channel.send(
                {
                    "state": state,
                    "generator": algorithm.generator.get_state().numpy(),
                    "factor": algorithm.learning_rate_factor,
                    "progress": progress,
                    "memory": reading.announced(),
                }
            )
        self._known = not self.changes_beside
        own = reading.read_by(lambda memory: algorithm.update(memory, progress))
        others = [self._answer(channel) for channel in self._channels]
        return _together([(own, shares.end_update()), *others])

    def _start(self) -> None:
        """Start the other learners, and meet them."""
        device = self.algorithm.device
        if device.type == "cpu":
            hold_threads(1)
        folder = tempfile.mkdtemp(prefix="rltune-learners-")
        try:
            for rank in range(1, self.n):
                own = f"cuda:{rank}" if device.type == "cuda" else str(device)
                place = {"rank": rank, "device": own, "folder": folder, "path": sys.path}
                self._start_one({**self._setting, **place})
            for channel in self._channels:
                self._answer(channel)
            for channel in self._channels:
                channel.send("meet")
            group = Group(Path(folder), 0, self.n, device)
            for channel in self._channels:
                self._answer(channel)  # it needs the folder no more
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._shares = DividedShares(0, self.n, group.add)
        give(self.algorithm, self._shares)

    def _start_one(self, setting: dict[str, Any]) -> None:
        here, there = Pipe()
        command = [sys.executable, "-m", "rltune.agents.parallel.rank"]
        with there:
            process = subprocess.Popen(
                [*command, str(there.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(there.fileno(),),
                start_new_session=True,  # Ctrl-C is the training's
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )
        self._processes.append(process)
        self._channels.append(Channel(here))
        self._channels[-1].send(setting)

    def _answer(self, channel: Channel) -> Any:
        """Return what a learner says.

        Raises:
            UserError: it says what the user has to change.
            RuntimeError: it failed otherwise.
            LostError: it has ended.
        """
        kind, content = channel.receive()
        if kind == "refused":
            raise UserError(content)
        if kind == "failed":
            raise RuntimeError(f"a learner failed:\n{content}")
        return content

    def _explained(self, error: LostError) -> Exception:
        """End all learners; returns what is to be said of the one that has ended."""
        said = self._last_words()
        ended = self._ended()
        self.close()
        if said is not None:
            return said
        what = f"a learner was lost ({error})"
        if ended is not None:
            rank, status = ended
            how = f"was killed by signal {-status}" if status < 0 else f"ended with code {status}"
            what = f"learner {rank + 1} of {self.n} {how}"
        return UserError(f"{what}; the training can go on from its last checkpoint")

    def _ended(self) -> tuple[int, int] | None:
        """Return the rank and the status of a learner that has ended."""
        for rank, process in enumerate(self._processes, 1):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return rank, process.wait(WAIT / self.n)
        return None

    def _last_words(self) -> Exception | None:
        """Return why a learner has ended, where one could still say it."""
        for channel in self._channels:
            try:
                while channel.connection.poll(0.2):
                    self._answer(channel)
            except (OSError, TypeError, ValueError):  # it has gone, or this was no answer
                continue
            except Exception as error:
                return error
        return None

    def close(self) -> None:
        """End the other learners; another update would start them again."""
        give(self.algorithm, Shares())
        self._shares, self._known = None, False
        for channel in self._channels:
            channel.close()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WAIT)
            process.kill()
            process.wait()
        self._channels, self._processes = [], []


def _together(found: Sequence[tuple[dict[str, float], float]]) -> dict[str, float]:
    """Return the metrics of whole minibatches from those of all learners' shares, with weights."""
    first, _ = found[0]

    def mean(name: str) -> float:
        values = [metrics[name] for metrics, _ in found]
        if all(value == values[0] for value in values):
            return values[0]
        return math.fsum(value * weight for value, (_, weight) in zip(values, found, strict=True))

    return {name: mean(name) for name in first}
