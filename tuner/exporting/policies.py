"""Exporting trained policies: a file with everything between observation and action inside.

A file is written under a temporary name, read back, and asked for the actions of 1,000
observations; it gets its name if they are the agent's own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.agents.envs.suite import environments, is_suite
from rltune.agents.errors import UserError, unknown
from rltune.agents.user_files import file_of_user
from rltune.backends.checkpoints import find_checkpoint, load_agent, place_of
from rltune.backends.exported import files
from rltune.backends.names import OTHERS
from rltune.backends.registry import backend_of
from rltune.exporting.base import PolicyExporter
from rltune.exporting.exportable_policy import ExportablePolicy
from rltune.exporting.registry import POLICIES, exporter

if TYPE_CHECKING:
    from rltune.agents.loop.agent import Agent
    from rltune.exporting.agreement import Agreement

RUN_NAMES = ("checkpoint", "last", "best", "agent")  # of checkpoints; they don't say what of


@dataclass(frozen=True)
class PolicyFile:
    """An exported policy.

    Attributes:
        path: the file
        agent, env: whose it is
        agreement: with the agent's own actions; None of a format that rltune can't read back
    """

    path: Path
    agent: str
    env: str
    agreement: Agreement | None

    def __str__(self) -> str:
        size = self.path.stat().st_size / 1024
        checked = self.agreement or "its actions have not been compared with the agent's"
        return f"{self.path}: {self.agent} on {self.env}, {size:,.0f} KiB\n  {checked}"


def export_policy(
    run: str | os.PathLike[str],
    to: str = "onnx",
    output: str | os.PathLike[str] | None = None,
    *,
    best: bool = False,
    trial: int | None = None,
    env: str | None = None,
    own_code: bool = False,
) -> PolicyFile:
    """Write the greedy policy of a run into one file, and check it against the agent's own actions.

    Args:
        run: as in `rltune.load`: a run, its name, "latest", or a checkpoint file
        to: "onnx", "torchscript" or "saved-policy"
        output: the file; None: the run's name with the format's suffix, in the current folder
        best, trial, env: which agent, as in `rltune.load`
        own_code: whether an environment or an agent of the user's own may be imported; a run
            directory may come from anywhere

    Raises:
        UserError: no checkpoint, no such format, an agent that can't be exported, or a file that
            does not act as the agent does: it is not kept.
    """
    form = exporter(to)
    if not isinstance(form, PolicyExporter):
        raise unknown("format", to, POLICIES, "--to")
    from rltune.exporting.agreement import Observations, agreement

    path = find_checkpoint(place_of(run), best=best, trial=trial)
    agent = _loaded(path, to, env, own_code)
    target = Path(output if output is not None else _name(run, path) + form.suffix)
    try:
        found = ExportablePolicy(agent)
        with file_of_user(target, "-o") as written:
            form.write(found, written)
            if not form.is_read_back:
                return PolicyFile(target, agent.algorithm_spec, agent.env, None)
            other: Any = load_agent(written, device="cpu")
            try:
                agreed = agreement(agent, other, Observations.of(agent))
            finally:
                other.close()
            if not agreed:
                raise UserError(
                    f"{target} is not written: {agreed}, which is not as the agent acts"
                )
        return PolicyFile(target, agent.algorithm_spec, agent.env, agreed)
    finally:
        agent.close()


def _loaded(path: Path, to: str, env: str | None, own_code: bool) -> Agent:
    """Return the agent in a file, on a CPU.

    Raises:
        UserError: it can't be exported, or imports code that must not be.
    """
    from rltune.agents.loop import checkpoint, saved_policy
    from rltune.agents.loop.agent import Agent

    if (kind := files.kind_of(path)) is not None:
        raise UserError(
            f"{path} is a policy in {kind} already; name the run or the checkpoint that it comes "
            "from"
        )
    state = checkpoint.plain(path)
    if not saved_policy.is_policy(state):
        state = checkpoint.checked(state, path)
    agent, trained_on = str(state.get("agent")), str(state.get("env"))
    if is_suite(trained_on) and env is None:
        names = ", ".join(environments(trained_on))
        raise UserError(f"{path} has agents of several environments; give --env, one of {names}")
    if agent.startswith(OTHERS):
        raise UserError(
            f"--to {to}: {agent} has a network of {backend_of(agent).name}'s, which can't be "
            "exported; agents of rltune's own can"
        )
    for what, name in (("environment", trained_on), ("agent", agent)):
        if ":" in name and not own_code:
            raise UserError(
                f"--to {to} has to make the {what} {name!r}, and what only reads a run imports no "
                "code that it names; --own-code allows it."
            )
    found = load_agent(path, env=env, device="cpu")
    assert isinstance(found, Agent)
    return found


def _name(run: object, checkpoint: Path) -> str:
    """Return a name for the file: of the run, or of the checkpoint that was named."""
    if Path(place_of(run)).suffix == checkpoint.suffix and checkpoint.stem not in RUN_NAMES:
        return checkpoint.stem
    folders = [folder.name for folder in checkpoint.absolute().parents]
    skipped = ("checkpoints", "best", "trials")
    named = (name for name in folders if name not in skipped and not name.isdecimal())
    return next(named, "") or "policy"
