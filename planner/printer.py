"""Prints an operator graph as indented text: one operator per line, the output first, its inputs below it.

The input of an operator stands on the line below it. If there are several inputs, each is indented and begins with "+".
An operator that is read more than once is printed once, under a name such as r0, and its readers show the name. The
same is done for operators that lie too deep to be indented. `_` stands for the input on the next line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from planner.neighbours import OnNeighbours
from planner.nodes import (
    Aggregate,
    Apply,
    Collect,
    Dropout,
    EdgeColumn,
    EdgeSoftmax,
    EdgeWeight,
    GraphOperator,
    Node,
    OnParameters,
    Parameter,
    Propagate,
    Random,
    Scatter,
    StaticColumn,
    consumers,
    topological,
)
from planner.spec import operator_name
from planner.steps.edge_step import EdgeOperator
from planner.steps.learned_rows import LearnedRows
from planner.steps.total import ChunkSum, Total

WIDTH = 100  # columns of a line
LEVELS = (
    12  # levels of indentation; deeper operators start at the left, or text would grow with the square of the layers
)
RIGHT = 34  # columns of a line for the engine and the shape or size


def tree(root: Node) -> list[str]:
    """Return the lines of an operator graph."""
    order = topological(root)
    readers = consumers(order)
    shared = [node for node in order if len(readers[node]) > 1 and row_inputs(node)]
    names = {node: f"r{index}" for index, node in enumerate(node for node in shared if has_line(node))}
    lines: list[str] = []
    more = dict(names)
    for node, name in names.items():
        lines += _whole(node, more, f"{name} := ")
    return lines if root in names else lines + _whole(root, more, "")


def _whole(top: Node, names: dict[Node, str], prefix: str) -> list[str]:
    """Return the lines of a node and all below it. The parts that lie deepest come first, and get names."""
    found: list[list[str]] = []
    waiting = [(top, prefix)]
    while waiting:
        lines, deeper = _subtree(*waiting.pop(), names)
        found.append(lines)
        waiting += [(node, f"{names[node]} := ") for node in deeper]
    return [line for lines in reversed(found) for line in lines]


def _subtree(top: Node, prefix: str, names: dict[Node, str]) -> tuple[list[str], list[Node]]:
    """Return the lines of a node and of what is below it. No recursion, because models may be hundreds of operators deep.

    Returns:
        The lines, and the nodes that lie too deep below it, which now have names.
    """
    lines: list[str] = []
    deeper: list[Node] = []
    stack = [(top, 0, "")]
    while stack:
        node, depth, branch = stack.pop()
        inline = {child: _inline(child, names) for child in row_inputs(node)}
        below = [child for child, text in inline.items() if text is None]
        if len(below) > 1 and depth == LEVELS:
            names |= {child: f"r{len(names) + number}" for number, child in enumerate(below)}
            deeper, inline, below = deeper + below, {child: _inline(child, names) for child in inline}, []
        operands = [text or "_" for text in inline.values()] if len(below) < len(inline) else []
        lines += aligned(
            "  " * (depth - bool(branch)) + branch + prefix + label(node, operands), engine(node), shape(node)
        )
        prefix = ""
        several = len(below) > 1
        stack.extend((child, depth + several, "+ " * several) for child in reversed(below))
    return lines, deeper


def _inline(node: Node, names: dict[Node, str]) -> str | None:
    """Return the text of a node inside its reader's line, or None if the node has lines of its own."""
    if node in names:
        return names[node]
    if isinstance(node, StaticColumn):
        return node.name
    if isinstance(node, EdgeColumn):
        return f"{node.name} of {node.edges}"
    return f"weight of {node.edges}" if isinstance(node, EdgeWeight) else None


def has_line(node: Node) -> bool:
    """Return True if a node has rows. Parameters, and values computed from them alone, are shown in their reader's line."""
    return not isinstance(node, (Parameter, OnParameters))


def row_inputs(node: Node) -> list[Node]:
    """Return the inputs of a node that have rows, each once."""
    return [child for child in dict.fromkeys(node.children) if has_line(child)]


def label(node: Node, operands: list[str] | None = None) -> str:
    """Return an operator as `Name(field=value, ...)`. `operands` are inputs to write inside the parentheses."""
    fields = [*_fields(node), *(operands or [])]
    name = "Column" if isinstance(node, StaticColumn) else type(node).__name__
    return f"{name}({', '.join(fields)})"


def _fields(node: Node) -> list[str]:
    match node:
        case StaticColumn():
            return [node.name]
        case Apply():
            return [operator_name(node.op), *_parameters(node), *constants(node.arguments, node.keywords)]
        case OnNeighbours():
            return [operator_name(node.op).removeprefix("lotan."), f"edges={node.edges}", *_layer(node.layer)]
        case Dropout():
            return [f"p={node.p:g}", f"key={node.key}"]
        case Random():
            return [node.kind, *[f"p={node.p:g}"] * (node.kind == "chance"), f"key={node.key}"]
        case Scatter():
            return [f"end={node.end}", f"edges={node.edges}", *_layer(node.layer)]
        case Aggregate():
            return [f"kind={node.kind}", f"edges={node.edges}", *_layer(node.layer)]
        case Propagate():
            return ["sum", f"edges={node.edges}", *["weighted"] * node.weighted, *_layer(node.layer)]
        case Total():
            return [node.kind, "all vertices", *["scaled"] * (node.scale is not None), *_layer(node.layer)]
        case LearnedRows():
            return [node.parameter, *([] if node.of_type is None else [str(node.of_type)])]
        case ChunkSum():
            what = "products" if node.y is not None else "greatest" if node.greatest else "rows"
            return [what, *[f"groups={node.groups}"] * (node.group is not None), *_layer(node.layer)]
        case EdgeOperator():
            return [*node.shown, *_layer(getattr(node, "layer", ""))]
        case EdgeSoftmax() | Collect():
            return [f"edges={node.edges}", *_layer(node.layer)]
        case EdgeWeight():
            return [f"edges={node.edges}"]
        case EdgeColumn():
            return [node.name, f"edges={node.edges}"]
    return []


def _layer(name: str) -> list[str]:
    return [f"layer={name}"] if name else []


def constants(arguments: Sequence[object], keywords: Sequence[tuple[str, object]]) -> list[str]:
    """Return the numbers among an operator's arguments, as they were written.

    >>> constants(("x", 2, (1, 0.5)), [("alpha", 3)])
    ['2', '(1, 0.5)', 'alpha=3']
    """
    numbers = [repr(value) for value in arguments if _is_constant(value)]
    return [*numbers, *(f"{name}={value!r}" for name, value in keywords if _is_constant(value))]


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, int | float)


def _parameters(node: Apply) -> list[str]:
    """Return the names of the parameters an operator reads, also through values computed from parameters alone."""
    below = [child for child in node.children if not has_line(child)]
    return [found.name for found in topological(*below) if isinstance(found, Parameter)] if below else []


def engine(node: Node) -> str:
    """Return the engine that an operator needs: "graph" or "dl"."""
    return "graph" if isinstance(node, (GraphOperator, StaticColumn, EdgeWeight, EdgeColumn)) else "dl"


def shape(node: Node) -> str:
    """Return the shape of an operator's output as text. V and E stand for the numbers of vertices and edges."""
    rows = {"vertex": "V", "edge": "E", "none": "-"}[node.output.rows]
    return "[" + ", ".join([rows, *map(str, node.output.shape)]) + "]"


def aligned(left: str, engine_name: str, *right: str, beside: int = RIGHT) -> list[str]:
    """Return a line with the engine and estimates in columns at the right. Text that does not fit beside them goes below."""
    room = WIDTH - beside
    first, *rest = wrapped(left, room - 1)
    return [f"{first:<{room}}{engine_name:<6}{'  '.join(right)}".rstrip(), *rest]


def wrapped(text: str, room: int) -> list[str]:
    """Return text in lines that fit, broken between words. All lines but the first are indented by six more columns."""
    indent = " " * (len(text) - len(text.lstrip()))
    further = indent + " " * 6
    return textwrap.wrap(text.lstrip(), room, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)
