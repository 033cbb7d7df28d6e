"""Redaction of secrets in the files of a run, in logs and on pages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_SECRET = r"(?:(?:api|access|auth|private|secret|wandb)[-_]?key|token|secret|password|passwd)"
SECRET_NAME = re.compile(rf"(?i)(?:^|[-_.]){_SECRET}$")
URL_PASSWORD = re.compile(r"(://[^/@:\s]*:)([^/@\s]+)(?=@)")
# In a text: a name and its value, the password of a URL, and what a key looks like.
SECRET_TEXT = (
    re.compile(rf"(?i)((?:\b|[-_.]){_SECRET}[\"']?\s*[=:]\s*[\"']?)([^\s\"',}}]+)"),
    URL_PASSWORD,
    re.compile(r"\b()([0-9a-f]{40}|wandb_v1_\w+|sk-[\w-]{16,}|gh[pousr]_\w{16,}|hf_\w{16,})\b"),
)
MASK = "***"


def masked(value: Any) -> Any:
    """Return plain data (dicts, lists, numbers, text) without secrets.

    Masked are texts under a key such as "api_key", the passwords of URLs, and the values of
    environment variables with such a name, wherever they stand.
    """
    return _masked(value, _secrets())


def masked_text(text: str) -> str:
    """Return a text such as a traceback without secrets: also without what looks like a key."""
    for pattern in SECRET_TEXT:
        text = pattern.sub(rf"\1{MASK}", text)
    return str(masked(text))


def _secrets() -> list[str]:
    """Return the values of environment variables that are secret by their names."""
    named = {text for name, text in os.environ.items() if SECRET_NAME.search(name)}
    secrets = [text for text in named if len(text) >= 8 and not text.startswith("/")]
    return sorted(secrets, key=len, reverse=True)


def _masked(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, int) else str(key): MASK
            if isinstance(item, str) and SECRET_NAME.search(str(key))
            else _masked(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_masked(item, secrets) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, list)):
        return value
    text = str(value)
    for secret in secrets:
        text = text.replace(secret, MASK)
    return URL_PASSWORD.sub(rf"\1{MASK}", text)
