"""The client of the hub: the package `huggingface_hub`, and its errors in one sentence."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from rltune.agents.errors import UserError
from rltune.common.redaction import masked_text


def hub_module() -> Any:
    """Return the module; UserError: it is not installed."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise UserError('the hub needs huggingface_hub: pip install "rltune[hub]"') from None


@contextlib.contextmanager
def errors(repo: str) -> Iterator[None]:
    """Turn what goes wrong on the way to the hub into a UserError, without a token in it."""
    errors: Any = importlib.import_module("huggingface_hub.errors")
    validation = getattr(errors, "HFValidationError", ValueError)
    try:
        yield
    except UserError:
        raise
    except validation as error:
        raise UserError(f"{repo!r} is no name of a repository; write USER/NAME ({error})") from None
    except Exception as error:  # of the network, and of whatever HTTP library it uses
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = masked_text(lines[0] if lines else type(error).__name__)
        raise UserError(
            f"the hub did not do it for {repo}: {said[:300]} (a token is given by `hf auth login`, "
            "or HF_TOKEN)"
        ) from None
