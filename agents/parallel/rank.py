"""The process of a learner beside the training: it computes its share of every update.

``python -m rltune.agents.parallel.rank FD`` is started by `rltune.agents.parallel.learners`, with
the end of a connection as file descriptor FD. It ends with the training process.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from rltune.agents.algorithm import Algorithm
from rltune.agents.config import make_config
from rltune.agents.errors import UserError
from rltune.agents.machine.threads import hold_threads
from rltune.agents.parallel.channel import Channel, LostError
from rltune.agents.parallel.group import Group
from rltune.agents.parallel.memories import ReceivedSignals, received
from rltune.agents.registry import agent_class
from rltune.agents.reward_signals import has_signals
from rltune.agents.shares import DividedShares, Shares


def main(fd: int, parent: int) -> None:
    """Learn with the others until the training process is done, or gone."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    channel = Channel(Connection(fd))
    with contextlib.suppress(LostError):
        try:
            _learn(channel)
        except LostError:
            raise
        except UserError as error:
            channel.send(("refused", str(error)))
        except BaseException:
            channel.send(("failed", traceback.format_exc()))


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone, whatever it waits for."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _learn(channel: Channel) -> None:
    setting = channel.receive()
    sys.path[:] = setting["path"]
    algorithm = make(setting)
    memory: Any = algorithm.make_memory() if algorithm.on_policy else None
    if memory is not None and has_signals(algorithm.config):
        memory.signals = ReceivedSignals(channel)
    channel.send(("ready", None))
    channel.receive()  # the others are ready, too
    rank, n = setting["rank"], setting["n"]
    group = Group(Path(setting["folder"]), rank, n, algorithm.device)
    channel.send(("met", None))
    shares = DividedShares(rank, n, group.add)
    give(algorithm, shares)
    while True:
        message = channel.receive()
        if message["state"] is not None:
            algorithm.load_state_dict(unpacked_state(message["state"]))
        algorithm.generator.set_state(torch.from_numpy(message["generator"]))
        algorithm.learning_rate_factor = message["factor"]
        experience = received(message["memory"], memory, channel)
        found = algorithm.update(experience, message["progress"])
        channel.send(("found", (found, shares.end_update())))


def make(setting: dict[str, Any]) -> Algorithm[Any]:
    """Return the algorithm of a learner.

    Args:
        setting: as `rltune.agents.parallel.learners` sends it
    """
    device = setting["device"]
    if device == "cpu":
        hold_threads(1)
    else:
        torch.cuda.set_device(device)
    found = agent_class(setting["algorithm"])
    config = make_config(found.Config, setting["config"])
    algorithm = found(config, setting["spaces"], seed=setting["seed"], device=device)
    algorithm.use_engine(setting["engine"])
    return algorithm


def give(algorithm: Algorithm[Any], shares: Shares) -> None:
    """Let an algorithm learn from its share of every minibatch alone."""
    for part in vars(algorithm).values():
        if isinstance(getattr(part, "shares", None), Shares):
            part.shares = shares


def packed_state(algorithm: Algorithm[Any]) -> bytes:
    """Return everything that learning has changed, as bytes."""
    file = io.BytesIO()
    torch.save(algorithm.state_dict(), file)
    return file.getvalue()


def unpacked_state(state: bytes) -> dict[str, Any]:
    """Return what `packed_state` got from an algorithm's ``state_dict``."""
    found: dict[str, Any] = torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
