"""Pulling: files of a repository on the hub, of which nothing is run."""

from __future__ import annotations

import os
from pathlib import Path

from rltune.agents.errors import UserError
from rltune.hub import client

# What `push` writes. A policy is weights, loaded with weights_only=True; nothing else is loaded.
PATTERNS = ("README.md", "*.yaml", "*.json", "*.pt", "*.png", "replay.*")
LARGEST = 2_000_000_000  # bytes of all files


def pull(
    repo: str, folder: str | os.PathLike[str] | None = None, *, revision: str | None = None
) -> Path:
    """Fetch what `push` has put on the hub, and return the folder.

    Args:
        repo: USER/NAME
        folder: for the files; None: NAME in the current folder
        revision: a branch, tag or commit; None: the newest

    Raises:
        UserError: there is no such repository, it holds no policy of rltune's, or the hub refuses.
    """
    hub = client.hub_module()
    target = Path(folder) if folder is not None else Path(repo.split("/")[-1])
    with client.errors(repo):
        info = hub.HfApi().model_info(repo, revision=revision, files_metadata=True)
        sizes = [sibling.size or 0 for sibling in info.siblings]
        names = [sibling.rfilename for sibling in info.siblings]
        if "policy.pt" not in names:
            raise UserError(f"{repo} has no policy.pt: it holds no policy of rltune's")
        if sum(sizes) > LARGEST:
            raise UserError(f"{repo} has {sum(sizes) / 1e9:.1f} GB; fetch it with `hf download`")
        hub.snapshot_download(
            repo, revision=revision, local_dir=target, allow_patterns=list(PATTERNS)
        )
    return target
