"""Arithmetic on edges as data: small expressions over what an edge sees, and their derivatives.

An expression is a nested tuple whose first item says what it is:
    ("source", x), ("destination", x)   the row of a vertex column at that end of the edge
    ("edge", x)                         the row of an edge column
    ("weight",)                         the weight of the edge, 1 where the graph has none
    ("constant", 0.5)
    ("add", a, b), ("leaky_relu", a, 0.2), ...   an operation of OPERATIONS
All rows have as many numbers as the result; a weight or a constant counts for each of them. `x` is an operator in an
operator graph, and a column's name in a physical plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Expression = tuple[Any, ...]

ROWS = ("source", "destination", "edge")
"""What an expression can read rows of, each with its column."""

OPERATIONS = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "exp": 1, "sigmoid": 1, "tanh": 1, "leaky_relu": 1,
    "leaky_relu_slope": 1,
}  # fmt: skip
"""How many expressions each operation takes. The two last also take the slope below zero; `leaky_relu_slope` is the
derivative of `leaky_relu`: 1 above zero, else that slope."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def operands(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside one."""
    return expression[1 : 1 + OPERATIONS.get(expression[0], 0)]


def leaves(expression: Expression) -> Iterator[Expression]:
    """What an expression reads, from left to right, each as often as it is read; constants are not read."""
    if expression[0] in OPERATIONS:
        for operand in operands(expression):
            yield from leaves(operand)
    elif expression[0] != "constant":
        yield expression


def columns(expression: Expression) -> tuple[Any, ...]:
    """The columns an expression reads, each once."""
    return tuple(dict.fromkeys(leaf[1] for leaf in leaves(expression) if leaf[0] in ROWS))


def operations(expression: Expression) -> int:
    """How many operations an expression has."""
    return int(expression[0] in OPERATIONS) + sum(map(operations, operands(expression)))


def renamed(expression: Expression, name: Callable[[Any], str]) -> Expression:
    """The expression with every column given by its name."""
    if expression[0] in ROWS:
        return (expression[0], name(expression[1]))
    inner = operands(expression)
    return (expression[0], *(renamed(operand, name) for operand in inner), *expression[1 + len(inner) :])


def adjoint(expression: Expression, gradient: Expression) -> dict[Expression, Expression]:
    """The gradient of every row that an expression reads, given that of its result.

    >>> scores = ("leaky_relu", ("add", ("source", "a"), ("destination", "b")), 0.2)
    >>> found = adjoint(scores, ("edge", "g"))
    >>> text(found["source", "a"])
    'edge.g * leaky_relu_slope(source.a + destination.b, 0.2)'
    >>> found["source", "a"] == found["destination", "b"]
    True
    """
    found: dict[Expression, Expression] = {}
    _pull(expression, gradient, found)
    return found


def _pull(expression: Expression, gradient: Expression, found: dict[Expression, Expression]) -> None:
    if expression[0] in ROWS:
        found[expression] = ("add", found[expression], gradient) if expression in found else gradient
    for operand, part in _parts(expression, gradient):
        _pull(operand, part, found)


def _parts(e: Expression, g: Expression) -> list[tuple[Expression, Expression]]:
    """Each operand of an operation with its gradient: the derivatives that torch has for these operations."""
    one = ("constant", 1.0)
    match e:
        case ("add", a, b):
            return [(a, g), (b, g)]
        case ("sub", a, b):
            return [(a, g), (b, ("neg", g))]
        case ("mul", a, b):
            return [(a, ("mul", g, b)), (b, ("mul", g, a))]
        case ("div", a, b):
            return [(a, ("div", g, b)), (b, ("neg", ("div", ("mul", g, e), b)))]
        case ("neg", a):
            return [(a, ("neg", g))]
        case ("exp", a):
            return [(a, ("mul", g, e))]
        case ("sigmoid", a):
            return [(a, ("mul", g, ("mul", e, ("sub", one, e))))]
        case ("tanh", a):
            return [(a, ("mul", g, ("sub", one, ("mul", e, e))))]
        case ("leaky_relu", a, slope):
            return [(a, ("mul", g, ("leaky_relu_slope", a, slope)))]
    return []  # rows are handled by the caller; weights, constants and slopes have no gradient


def text(expression: Expression) -> str:
    """An expression in words; columns may have empty names.

    >>> text(("mul", ("exp", ("edge", "s")), ("sub", ("weight",), ("constant", 1.0))))
    'exp(edge.s) * (weight - 1)'
    """
    match expression:
        case ("constant", value):
            return f"{value:g}"
        case ("weight",):
            return "weight"
        case (kind, name) if kind in ROWS:
            return f"{kind}.{name}" if name else kind
        case (name, a, b) if name in _INFIX:
            return f"{_enclosed(a)} {_INFIX[name]} {_enclosed(b)}"
    inner = [text(operand) for operand in operands(expression)]
    return f"{expression[0]}({', '.join([*inner, *(f'{value:g}' for value in expression[1 + len(inner) :])])})"


def _enclosed(expression: Expression) -> str:
    return f"({text(expression)})" if expression[0] in _INFIX else text(expression)
