"""Changing a search space: to an agent's names and types, and as the command line says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rltune.agents.config import NETWORK_FIELDS, Hyperparameter, own_name
from rltune.agents.errors import UserError, unknown
from rltune.space.checks import can_be, check, check_names, check_reach, start_error, unreachable
from rltune.space.core import Start
from rltune.space.dimensions import Dimension, checked_value, fit, own_dimension, parse_dimension
from rltune.space.expressions import Expression
from rltune.space.surroundings import Searchable, is_helper
from rltune.space.yaml_lines import KeyPath, SourceText

if TYPE_CHECKING:
    from rltune.space.core import SpaceCore

SpaceT = TypeVar("SpaceT", bound="SpaceCore")
# Hyperparameters that are seldom worth a search unless the user asks for it.
SELDOM_SEARCHED = {
    "activation",
    "activation_fn",
    "clip_range_vf",
    "encoder",
    "goal_selection_strategy",
    "weight_init",
    "frame_stack",
    "log_std_init",
    "n_envs",
    "n_minibatches",
    "noise_type",
    "optimizer",
    "optimizer_eps",
    "rms_alpha",
    "sde_sample_freq",
    "target_kl",
    "train_freq_unit",
    "vectorization",
}


def own_parts(hyperparameters: Mapping[str, Hyperparameter]) -> dict[str, Any]:
    """The parts of a space that searches every hyperparameter with a range or choices."""
    dimensions = {
        name: own_dimension(parameter)
        for name, parameter in hyperparameters.items()
        if name not in SELDOM_SEARCHED
        and (parameter.choices or None not in (parameter.low, parameter.high))
    }
    parts: dict[str, Any] = {"dimensions": dimensions}
    if {"batch_size", "n_steps"} <= dimensions.keys() and "n_envs" in hyperparameters:
        parts["fixed"] = {"n_envs": hyperparameters["n_envs"].default}
        parts["constraints"] = (Expression("batch_size <= n_steps * n_envs"),)
    return parts


# -- an agent's names and types


def bind(space: SpaceT, known: Mapping[str, Hyperparameter]) -> SpaceT:
    """See `Space.checked_against`."""
    known = Searchable(known)
    space = _with_unsaid(_renamed(space, known), known)
    check_names(space, known)
    _check_helpers(space)
    space = _without_auxiliaries(space, known)

    def value(name: str, item: Any, *path: str | int) -> Any:
        return _located(space, path, checked_value, known[name], item)

    dimensions = {}
    for name, dimension in space.dimensions.items():
        when = {
            parent: tuple(value(parent, item, "space", name) for item in wanted)
            for parent, wanted in dimension.when.items()
        }
        fitted = _located(space, ("space", name), fit, dimension, known[name])
        dimensions[name] = replace(fitted, when=when)
    starts = tuple(
        replace(start, values={n: value(n, v, *start.place, n) for n, v in start.values.items()})
        for start in space.starts
    )
    fixed = {name: value(name, item, "fixed", name) for name, item in space.fixed.items()}
    space = replace(space, fixed=fixed, dimensions=dimensions, starts=starts)
    check(space)
    check_reach(space)
    _check_model_files(space, known)
    return space


def _check_model_files(space: SpaceCore, known: Mapping[str, Hyperparameter]) -> None:
    """Refuse to search what a model file says: every trial with another value would fail."""
    given = [
        name
        for name in (*space.fixed, *space.dimensions)
        if known[name].outputs and space.fixed.get(name) != ""
    ]
    for name, dimension in space.dimensions.items():
        if given and name in NETWORK_FIELDS and not dimension.when:
            raise space.source.error(
                ("space", name),
                f"{given[0]} describes the network, so {name} can't be searched; remove one",
            )


def _located(space: SpaceCore, path: KeyPath, function: Any, *arguments: Any) -> Any:
    """Call the function; its error gets the place in the file."""
    try:
        return function(*arguments)
    except UserError as failure:
        raise space.source.error(path, str(failure)) from None


def _renamed(space: SpaceT, known: Mapping[str, Hyperparameter]) -> SpaceT:
    """The space under the agent's own names."""
    names: dict[str, str] = {}  # as written -> ours

    def own_keys(values: Mapping[str, Any], *path: str | int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in values.items():
            own = own_name(name, known)
            if own is None:
                text = str(unknown("hyperparameter", name, known))
                if path == ("space",) and name in _used(space):
                    text += f" A value that only serves other values begins with _: _{name}."
                raise space.source.error((*path, name), text)
            if own in result:
                other = next(n for n in values if names.get(n) == own)
                raise space.source.error(
                    (*path, name), f"{other} and {name} mean the same hyperparameter; keep one"
                )
            names[name] = own
            result[own] = value
        return result

    fixed = own_keys(space.fixed, "fixed")
    dimensions = own_keys(space.dimensions, "space")
    starts = tuple(
        replace(start, values=own_keys(start.values, *start.place)) for start in space.starts
    )
    for name in space.derived:
        names[name] = own_name(name, known) or name
    for name in _used(space) - names.keys():
        names[name] = own_name(name, known) or name
    return replace(
        space,
        fixed=fixed,
        dimensions={
            name: replace(d, name=name, when={names[k]: v for k, v in d.when.items()})
            for name, d in dimensions.items()
        },
        derived={names[n]: e.substitute(names) for n, e in space.derived.items()},
        constraints=tuple(c.substitute(names) for c in space.constraints),
        starts=starts,
    )


def _used(space: SpaceCore) -> set[str]:
    """The names in the expressions."""
    return set().union(*(e.names for e in (*space.derived.values(), *space.constraints)))


def _check_helpers(space: SpaceCore) -> None:
    """Refuse a helper value that serves nothing: every configuration would appear many times."""
    used = _used(space).union(*(dimension.when for dimension in space.dimensions.values()))
    for part, names in (("space", space.dimensions), ("fixed", space.fixed)):
        for name in names:
            if is_helper(name) and name not in used:
                raise space.source.error(
                    (part, name), f"{name} is a helper value, and nothing here uses it"
                )


def _with_unsaid(space: SpaceT, known: Mapping[str, Hyperparameter]) -> SpaceT:
    """Give the hyperparameters that only expressions name the agent's defaults."""
    said = {*space.fixed, *space.dimensions, *space.derived}
    unsaid = [name for name in known if name in _used(space) - said]
    defaults = {name: checked_value(known[name], known[name].default) for name in unsaid}
    return replace(space, fixed={**space.fixed, **defaults})


def _without_auxiliaries(space: SpaceT, known: Mapping[str, Hyperparameter]) -> SpaceT:
    """Put the derived values that are no hyperparameters into the expressions that use them."""
    used = _used(space)
    texts: dict[str, str] = {}
    derived: dict[str, Expression] = {}
    for name in space.derived_order:
        expression = space.derived[name].substitute(texts)
        if name in known:
            derived[name] = expression
        elif name in used:
            texts[name] = expression.text
        else:
            error = unknown("hyperparameter", name, known)
            raise space.source.error(("derived", name), f"{error} (and nothing here uses it)")
    return replace(
        space,
        derived={name: derived[name] for name in space.derived if name in derived},
        constraints=tuple(c.substitute(texts) for c in space.constraints),
    )


# -- the command line


def override(space: SpaceT, overrides: Mapping[str, Any]) -> SpaceT:
    """See `Space.with_overrides`."""
    fixed, dimensions = dict(space.fixed), dict(space.dimensions)
    frozen = set()
    for name, new in overrides.items():
        if isinstance(new, Mapping):
            new = parse_dimension(name, new, SourceText("dimensions"), (name,))
        if isinstance(new, Dimension):
            fixed.pop(name, None)
            old = dimensions.get(name)
            dimensions[name] = replace(new, when=old.when) if old and not new.when else new
        else:
            dimensions.pop(name, None)
            fixed[name] = new
            frozen.add(name)
    derived = {name: e for name, e in space.derived.items() if name not in overrides}
    space = _without_dead(replace(space, fixed=fixed, dimensions=dimensions, derived=derived))
    lost = frozen | (set(dimensions) - set(space.dimensions))
    starts = (held(space, start, lost) for start in space.starts)
    space = replace(space, starts=tuple(start for start in starts if start is not None))
    check(space)
    check_names(space)
    return space


def held(space: SpaceCore, start: Start, lost: Collection[str]) -> Start | None:
    """The start without lost and inactive values; None when it is no start any more."""
    values = {name: value for name, value in start.values.items() if name not in lost}
    active = space.active(values)
    values = {n: v for n, v in values.items() if n not in space.dimensions or n in active}
    trimmed = replace(start, values=values)
    return trimmed if values and start_error(space, trimmed) is None else None


def _without_dead(space: SpaceT) -> SpaceT:
    """Drop the dimensions whose condition can't come true, and what is computed from them."""
    dimensions = {}
    for name, dimension in space.dimensions.items():
        when = {
            parent: tuple(value for value in wanted if can_be(space, parent, value))
            for parent, wanted in dimension.when.items()
        }
        if all(when.values()) and not unreachable(space, [name]):
            dimensions[name] = replace(dimension, when=when)
    gone = set(space.dimensions) - set(dimensions)
    for name in space.derived_order:
        if space.derived[name].names & gone or unreachable(space, [name]):
            gone.add(name)
    derived = {name: e for name, e in space.derived.items() if name not in gone}
    constraints = tuple(
        c for c in space.constraints if not c.names & gone and not unreachable(space, c.names)
    )
    space = replace(space, dimensions=dimensions, derived=derived, constraints=constraints)
    return _without_dead(space) if gone else space
