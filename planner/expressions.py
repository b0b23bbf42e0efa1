"""Arithmetic on edges as data: small expressions over the values at each edge, and their derivatives.

An expression is a nested tuple. Its first item says what it is:

    ("source", x), ("destination", x)   the row of a vertex column at that end of the edge
    ("edge", x)                         the row of an edge column
    ("weight",)                         the weight of the edge, 1 if the graph has no weights
    ("constant", 0.5)
    ("add", a, b), ("leaky_relu", a, 0.2), ...   an operation of OPERATIONS

All rows have the width of the result. A weight or a constant is used for each number of a row. `x` is an operator in an
operator graph, and the name of a column in a physical plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Expression = tuple[Any, ...]

ROWS = ("source", "destination", "edge")
"""The kinds of expressions that read rows of a column."""

OPERATIONS = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "exp": 1, "sigmoid": 1, "tanh": 1, "leaky_relu": 1,
    "leaky_relu_slope": 1,
}  # fmt: skip
"""The number of operands of each operation.

The two last operations also take the slope below zero. `leaky_relu_slope` is the derivative of `leaky_relu`: 1 above
zero, else the slope.
"""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def operands(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly inside one."""
    return expression[1 : 1 + OPERATIONS.get(expression[0], 0)]


def leaves(expression: Expression) -> Iterator[Expression]:
    """Yield the parts of an expression that read a value, from left to right, each as often as it is read.

    Constants read nothing and are left out.
    """
    if expression[0] in OPERATIONS:
        for operand in operands(expression):
            yield from leaves(operand)
    elif expression[0] != "constant":
        yield expression


def columns(expression: Expression) -> tuple[Any, ...]:
    """Return the columns that an expression reads, each once."""
    return tuple(dict.fromkeys(leaf[1] for leaf in leaves(expression) if leaf[0] in ROWS))


def operations(expression: Expression) -> int:
    """Return the number of operations in an expression."""
    return int(expression[0] in OPERATIONS) + sum(map(operations, operands(expression)))


def renamed(expression: Expression, name: Callable[[Any], str]) -> Expression:
    """Return the expression with every column replaced by its name."""
    if expression[0] in ROWS:
        return (expression[0], name(expression[1]))
    inner = operands(expression)
    return (expression[0], *(renamed(operand, name) for operand in inner), *expression[1 + len(inner) :])


def ends_exchanged(expression: Expression) -> Expression:
    """Return the expression in which a row at one end of the edge is that at the other end.

    >>> ends_exchanged(("mul", ("source", "a"), ("edge", "s")))
    ('mul', ('destination', 'a'), ('edge', 's'))
    """
    if expression[0] in ROWS:
        exchanged = {"source": "destination", "destination": "source"}
        return (exchanged.get(expression[0], expression[0]), expression[1])
    inner = operands(expression)
    return (expression[0], *(ends_exchanged(operand) for operand in inner), *expression[1 + len(inner) :])


def adjoint(expression: Expression, gradient: Expression) -> dict[Expression, Expression]:
    """Return the gradient of every row that an expression reads, given the gradient of its result.

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
    """Return each operand of an operation with its gradient, as torch defines the derivatives of these operations."""
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
    return []  # the caller handles rows; weights, constants and slopes have no gradient


def text(expression: Expression) -> str:
    """Return an expression as text. A column with an empty name is shown by its kind alone.

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
