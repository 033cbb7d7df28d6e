"""Expressions over hyperparameters: the ``derived`` values and ``constraints`` of a space.

Numbers, names, text in quotes, ``+ - * / // % **``, comparisons, ``and or not`` and the functions
below; nothing else. Python's own parser reads the text, but nothing is ever compiled or executed.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rltune.agents.errors import UserError, unknown

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sum": sum,
}
OF_A_LIST = "sum"  # the others take numbers
MAX_LENGTH = 500
MAX_DEPTH = 40
MAX_BITS = 256  # of a whole number: a power beyond it is a mistake

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


# What other languages write, and what is written here.
_FOREIGN = (
    (r"&&|&", "and"),
    (r"\|\|?", "or"),
    (r"!(?!=)|~", "not"),
    (r"\^", "**"),
    (r"(?<![<>=!:])=(?!=)", "=="),
)


@dataclass(frozen=True)
class Expression:
    """An expression such as ``n_steps * n_envs // batch_size``. UserError when it is not one.

    ``place`` is the key at which it stands in a space, for errors.
    """

    text: str
    place: tuple[str | int, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _check(self._tree, 0, self.text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the hyperparameters in it."""
        calls = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        return frozenset(
            node.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Name) and id(node) not in calls
        )

    @property
    def is_condition(self) -> bool:
        """Whether it is a comparison, or comparisons joined by ``and``, ``or``, ``not``."""
        tree = self._tree
        negation = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
        return negation or isinstance(tree, (ast.Compare, ast.BoolOp))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return its value. UserError: unknown name, division by zero, text in arithmetic."""
        try:
            result = _evaluate(self._tree, values)
        except ZeroDivisionError:
            raise self._failed("division by zero", values) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise self._failed(str(error), values) from None
        if isinstance(result, float) and not math.isfinite(result):
            raise self._failed(f"the result is {result}", values)
        return result

    def with_values(self, values: Mapping[str, Any]) -> str:
        """The expression and the values of its names, for messages."""
        known = ", ".join(f"{n}={values[n]}" for n in sorted(self.names) if n in values)
        return f"{self.text} ({known})" if known else self.text

    def substitute(self, names: Mapping[str, str]) -> Expression:
        """Return it with some names replaced by other names or by expressions."""
        if not self.names & names.keys():
            return self
        parsed = {name: ast.parse(text.strip(), mode="eval").body for name, text in names.items()}
        text = ast.unparse(_Substitution(parsed).visit(ast.parse(self.text.strip())))
        return replace(self, text=text)

    @cached_property
    def _tree(self) -> ast.expr:
        if len(self.text) > MAX_LENGTH:
            raise UserError(f"an expression of more than {MAX_LENGTH} characters")
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UserError(f"{self.text!r} is not an expression{_hint(self.text)}") from None

    def _failed(self, reason: str, values: Mapping[str, Any]) -> UserError:
        return UserError(f"{self.with_values(values)}: {reason}")


class _Substitution(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.names.get(node.id, node)


def _check(node: ast.AST, depth: int, text: str) -> None:
    """Raise a UserError for anything outside of the small language."""
    if depth > MAX_DEPTH:
        raise UserError(f"{text!r} is nested too deeply")
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.keywords or not node.args:
            raise UserError(f"{text!r}: a function is called like max(a, b)")
        if node.func.id not in FUNCTIONS:
            raise unknown("function", node.func.id, FUNCTIONS, where=repr(text))
        children: list[ast.AST] = list(node.args)
    else:
        _check_node(node, text)
        children = [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.expr_context, ast.operator, ast.cmpop, ast.boolop))
            and not isinstance(child, ast.unaryop)
        ]
    for child in children:
        _check(child, depth + 1, text)


def _check_node(node: ast.AST, text: str) -> None:
    if isinstance(node, (ast.Name, ast.BoolOp)):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
        return
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Invert):
        return
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops):
        return
    if hint := _hint(text):
        raise UserError(f"{text!r}: {ast.unparse(node)!r} is not allowed{hint}")
    raise UserError(
        f"{text!r}: {ast.unparse(node)!r} is not allowed; write numbers, names, + - * / // % **, "
        f"comparisons, and, or, not, {', '.join(sorted(FUNCTIONS))}"
    )


def _hint(text: str) -> str:
    """Say what to write instead of another language's operators, if there are some."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
    found = [(match[0], own) for pattern, own in _FOREIGN if (match := re.search(pattern, bare))]
    return "; " + ", ".join(f"write {own} for {other}" for other, own in found) if found else ""


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise unknown("name", node.id, values)
        return values[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left, values), _number(node.right, values)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            return not _evaluate(node.operand, values)
        number = _number(node.operand, values)
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.BoolOp):
        wanted = isinstance(node.op, ast.Or)
        return any(_evaluate(v, values) for v in node.values) if wanted else _all(node, values)
    if isinstance(node, ast.Compare):
        return _compare(node, values)
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    name = node.func.id
    taken = _numbers if name == OF_A_LIST else _number
    return FUNCTIONS[name](*(taken(argument, values) for argument in node.args))


def _all(node: ast.BoolOp, values: Mapping[str, Any]) -> bool:
    return all(_evaluate(v, values) for v in node.values)


def _number(node: ast.expr, values: Mapping[str, Any]) -> int | float:
    value = _evaluate(node, values)
    if not isinstance(value, (int, float)):
        raise TypeError(f"{ast.unparse(node)} is {value!r}, not a number")
    return value


def _numbers(node: ast.expr, values: Mapping[str, Any]) -> Sequence[int | float]:
    value = _evaluate(node, values)
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, (int, float)) for v in value):
        raise TypeError(f"{ast.unparse(node)} is {value!r}, not a list of numbers")
    return value


def _power(base: int | float, exponent: int | float) -> int | float:
    if isinstance(base, int) and isinstance(exponent, int):
        if base.bit_length() * abs(exponent) > MAX_BITS:
            raise OverflowError(f"{base} ** {exponent} is too large")
    elif base < 0:
        raise ValueError("a power of a negative number needs whole numbers")
    result: int | float = base**exponent
    return result


def _compare(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _evaluate(node.left, values)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(right_node, values)
        ordered = not isinstance(op, (ast.Eq, ast.NotEq))
        if ordered and not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
            text = left if not isinstance(left, (int, float)) else right
            raise TypeError(f"{text!r} is not a number and has no order")
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True
