"""Checks of a search space: its dimensions, conditions, expressions and starts go together."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rltune.agents.errors import UserError, unknown
from rltune.space.core import Start
from rltune.space.dimensions import CONTINUOUS, same, show
from rltune.space.expressions import Expression
from rltune.space.yaml_lines import KeyPath, SourceText

if TYPE_CHECKING:
    from rltune.space.core import SpaceCore


def check(space: SpaceCore) -> None:
    """Raise a UserError when the parts of the space don't go together."""
    for name in space.dimensions:
        for other, part in (("fixed", space.fixed), ("derived", space.derived)):
            if name in part:
                raise space.source.error(
                    (other, name), f"{name} is searched too (under space); keep one of the two"
                )
    for name in space.derived:
        if name in space.fixed:
            raise space.source.error(("derived", name), f"{name} is fixed too; keep one of the two")
    _check_conditions(space)
    _check_order(space)
    for start in space.starts:
        if wrong := start_error(space, start):
            path = (*start.place, wrong[0]) if wrong[0] else start.place
            raise space.source.error(path, wrong[1])


def _check_conditions(space: SpaceCore) -> None:
    for name, dimension in space.dimensions.items():
        for parent, wanted in dimension.when.items():
            path = ("space", name, "when", parent)
            if parent in space.fixed:
                continue
            if parent not in space.dimensions:
                known = {**space.dimensions, **space.fixed}
                raise space.source.error(path, str(unknown("name", parent, known)))
            asked = space.dimensions[parent]
            if asked.kind in CONTINUOUS:
                raise space.source.error(
                    path,
                    f"{parent} is searched in {asked.describe()}, where a sample is never exactly "
                    f"{show(wanted[0])}; give {parent} a choice, or leave the condition out",
                )
            for value in wanted:
                if not asked.contains(value):
                    lists = any(isinstance(choice, list) for choice in asked.choices)
                    raise space.source.error(
                        path,
                        f"{parent} is never {show(value)}; its values are {asked.describe()}"
                        + ("; a list as a value is written [[64, 64]]" if lists else ""),
                    )
    try:
        _ = space.order
    except graphlib.CycleError as error:
        raise _cycle(error, "space", "the conditions", space.source) from None


def check_names(space: SpaceCore, hyperparameters: Iterable[str] = ()) -> None:
    """Raise a UserError when an expression uses a name that nothing has a value for.

    Args:
        space: in the names of an agent where there is one
        hyperparameters: of the agent
    """
    said = {*space.fixed, *space.dimensions, *space.derived}
    for path, expression in places(space):
        for name in sorted(expression.names - said):
            error = unknown("name", name, {*said, *hyperparameters})
            raise space.source.error(path, f"{expression.text!r}: {error}")


def places(space: SpaceCore) -> Iterator[tuple[KeyPath, Expression]]:
    """The expressions of a space, and where they stand."""
    for name, expression in space.derived.items():
        yield expression.place or ("derived", name), expression
    for i, constraint in enumerate(space.constraints):
        yield constraint.place or ("constraints", i), constraint


def check_reach(space: SpaceCore) -> None:
    """Raise a UserError when something in the space can never be, in an agent's types."""
    for name, dimension in space.dimensions.items():
        if parent := unreachable(space, [name]):
            raise space.source.error(
                ("space", name, *(["when"] if dimension.when else [])),
                f"{name} is never there: {parent} is never what it and its conditions ask for",
            )
    for path, expression in places(space):
        if parent := unreachable(space, expression.names):
            raise space.source.error(
                path,
                f"{expression.text!r} never applies: {parent} is never what the conditions of "
                f"{' and '.join(sorted(expression.names))} ask for",
            )


def unreachable(space: SpaceCore, names: Iterable[str]) -> str:
    """The name that would need a value that it never has for all of ``names`` to be there."""
    asked: dict[str, list[Any]] = {}
    todo, seen = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        when = space.dimensions[name].when if name in space.dimensions else {}
        for parent, wanted in when.items():
            before = asked.get(parent, wanted)
            asked[parent] = [v for v in before if any(same(v, value) for value in wanted)]
        todo += [*when, *(space.derived[name].names if name in space.derived else ())]
    for parent, values in asked.items():
        if not any(can_be(space, parent, value) for value in values):
            return parent
    return ""


def can_be(space: SpaceCore, name: str, value: Any) -> bool:
    """Whether a sample may be exactly the value, which no point of a continuous range ever is."""
    if name in space.fixed:
        return same(space.fixed[name], value)
    dimension = space.dimensions.get(name)
    return bool(dimension and dimension.kind not in CONTINUOUS and dimension.contains(value))


def _check_order(space: SpaceCore) -> None:
    try:
        _ = space.derived_order
    except graphlib.CycleError as error:
        raise _cycle(error, "derived", "the derived values", space.source) from None


def start_error(space: SpaceCore, start: Start) -> tuple[str, str] | None:
    """Return the fault of a start: its key (empty: the whole) and a sentence; None: no fault."""
    active = space.active(start.values)
    for name in start.values:
        if name in space.derived:
            return name, f"{name} is derived; leave it out"
        if name in space.dimensions and name not in active:
            when = _condition_text(space.dimensions[name].when)
            return name, f"{name} is only there when {when}; say so in this start"
    space = replace(space, source=SourceText())  # the error is the start's
    try:
        broken = space.violations(space.resolve(start.values))
    except UserError as error:
        return "", str(error)
    return ("", f"breaks the constraint {broken[0]}") if broken else None


def _condition_text(when: Mapping[str, Iterable[Any]]) -> str:
    parts = (f"{name} is {' or '.join(map(show, wanted))}" for name, wanted in when.items())
    return " and ".join(parts)


def _cycle(error: graphlib.CycleError, key: str, what: str, source: SourceText) -> UserError:
    names = list(reversed(error.args[1]))
    return source.error((key, names[0]), f"{what} go in a circle: {' -> '.join(names)}")
