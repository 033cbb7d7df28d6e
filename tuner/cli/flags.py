"""Flags that are not the command's own: hyperparameters of the agent, or mistakes."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from rltune.agents.errors import UserError
from rltune.agents.reward_signals import NESTED, spelled_out
from rltune.cli.foreign import sentence

RUN = "run directory, its name in runs/, or latest"  # help of the argument of many commands


def parse_flags(
    args: argparse.Namespace, extra: Sequence[str], known: Iterable[str]
) -> dict[str, list[str]]:
    """Turn ["--learning-rate", "1e-5", "1e-2", "--gamma=0.9"] into names with their values.

    Args:
        args: the parsed part of the command line; its names are the command's own flags
        extra: the words that are left
        known: hyperparameters of the agent; ``no-`` may stand before them

    Raises:
        UserError: no flag, or neither the command nor the agent has it.
    """
    flags: dict[str, list[str]] = {}
    name = ""
    for word in extra:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if name.replace("-", "_") != NESTED:
                _check(args, name, known)
            flags[name] = [value] if equals else []
        elif not name:
            raise UserError(f"unexpected argument {word!r}; flags begin with two dashes.")
        else:
            flags[name].append(word)
    return _spelled_out(flags)


def _spelled_out(flags: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the flags with those that ``--reward-signals`` stands for: lists are ranges there."""
    found: dict[str, list[str]] = {}
    for name, words in flags.items():
        if name.replace("-", "_") != NESTED:
            found[name] = words
            continue
        nested = parse_mapping(f"--{name}", " ".join(words))
        for own, value in spelled_out({NESTED: nested}, f"--{name}").items():
            if own.replace("_", "-") in flags or own in flags:
                raise UserError(f"--{name} and --{own.replace('_', '-')} are the same; keep one")
            found[own] = [str(item) for item in (value if isinstance(value, list) else [value])]
    return found


def _check(args: argparse.Namespace, name: str, known: Iterable[str]) -> None:
    from rltune.agents.config import own_name

    plain = name.replace("-", "_")
    if own_name(plain, known) or own_name(plain.removeprefix("no_"), known):
        return
    if plain == "preset":
        raise UserError(
            "--preset: a search tries the presets for its environment by itself, in its first "
            "trials; `rltune train` takes one."
        )
    if said := sentence(name, args.agent):
        raise UserError(said)
    hint = _closest(plain, {*known, *_own(args)}) or f"see {_helps(args)}."
    raise UserError(
        f"--{name}: `rltune {args.command}` has no such flag, and {args.agent} no such "
        f"hyperparameter; {hint}"
    )


def _helps(args: argparse.Namespace) -> str:
    of_agent = f"`rltune train {args.agent} --help`"
    return of_agent if args.command == "train" else f"`rltune {args.command} --help` and {of_agent}"


def parse_mapping(flag: str, text: str) -> dict[str, Any]:
    """Read a YAML mapping from the command line."""
    from rltune.space.yaml_lines import parse_yaml

    value, _ = parse_yaml(text, flag)
    if not isinstance(value, dict):
        raise UserError(f"{flag} {text!r} is no YAML mapping; write it as '{{key: value}}'.")
    return value


def reject_extra(args: argparse.Namespace, extra: Sequence[str]) -> None:
    """Raise UserError for the first word that a command does not know."""
    if extra:
        flag = extra[0].lstrip("-").partition("=")[0].replace("-", "_")
        hint = _closest(flag, _own(args)) or f"see rltune {args.command} --help."
        raise UserError(f"`rltune {args.command}` does not know {extra[0]!r}; {hint}")


def _own(args: argparse.Namespace) -> set[str]:
    """Return the names of a command's own flags."""
    return vars(args).keys() - {"agent", "command", "main", "started", "traceback"}


def _closest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" with the known flag that is closest to ``name``, or ""."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"did you mean --{close[0].replace('_', '-')}?" if close else ""
