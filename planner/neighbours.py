"""Operators that read the in-edges of a vertex in their order, or each of them beside all others. Stages run them.

The order of a vertex's in-edges is that of their sources' ids. Parallel edges are ordered by weight, then by type, then by
attributes, number by number. "edge_order" is the column of edges that says so: it counts the in-edges of each vertex.

    lotan.neighbour_rows(m, o, size, edges)         edge rows [*shape] -> vertex rows [size, *shape]: the messages of the first
                                                    in-edges by o, numbers [k] of each edge, the first of which counts first;
                                                    zeros follow where there are fewer
    lotan.neighbour_sequence(m, o, steps, kind, layers, both_ways, w, edges)
                                                    edge rows [channels] -> vertex rows [size]: the last output of a recurrent
                                                    network along in-edges, followed by zeros up to `steps`, a number that all
                                                    vertices share; `kind` in SEQUENCES, w the weights
    lotan.neighbour_attention(q, k, v, edges)       edge rows [heads, channels] -> edge rows: each in-edge attends to all
                                                    in-edges of the same vertex
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from planner.nodes import Node, NodeArgument, operator
from planner.spec import Call, EdgeSet, Ref, Spec, ValueType

if TYPE_CHECKING:
    from planner.physical import Stage
    from planner.statistics import Statistics

ROWS = "lotan.neighbour_rows"
SEQUENCE = "lotan.neighbour_sequence"
ATTENTION = "lotan.neighbour_attention"
NEIGHBOUR_OPERATORS = (ROWS, SEQUENCE, ATTENTION)
"""The operators, whose last argument is the edge set."""

SEQUENCES = ("lstm", "gru")
"""The kinds of recurrent networks along in-edges."""

GATES = 8
"""The numbers that a step of a network keeps for each number of its state, at most."""

SIDE_BY_SIDE_BYTES = 64 << 20
"""The bytes of the neighbours that are put side by side at one time, if they belong to several vertices."""

MOST_BYTES = 1 << 30
"""The most bytes that the neighbours of one vertex may take."""


@operator
class OnNeighbours(Node):
    """One of `NEIGHBOUR_OPERATORS`, which combine rows of edges that end at the same vertex."""

    op: str
    arguments: tuple[NodeArgument, ...]
    type: ValueType
    layer: str = ""

    @property
    def edges(self) -> EdgeSet:
        """The edge set."""
        return str(self.arguments[-1])


def lengths(spec: Spec) -> set[str]:
    """Return the lengths of sequences, and what they are computed from: in-degrees, which a batch has as well as a graph."""
    found = {one.name for call in spec.calls if call.op == SEQUENCE and isinstance(one := call.arguments[2], Ref)}
    for call in reversed(spec.calls):
        if call.output in found:
            found |= set(call.reads)
    return found


def orders_neighbours(spec: Spec) -> bool:
    """Return True if a model takes the in-edges of a vertex in their order."""
    return any(call.op in (ROWS, SEQUENCE) for call in spec.calls)


def most_in_edges(spec: Spec) -> tuple[int, str] | None:
    """Return the most in-edges of a vertex for which a model's sequences fit into `MOST_BYTES`, and the layer that has them.

    Returns:
        None if the model has no sequences of neighbours.
    """
    shapes = {one.name: one.shape for one in spec.parameters}
    widths = {call.output: call.type.width for call in spec.calls}
    found = []
    for call in spec.calls:
        if call.op == SEQUENCE:
            messages, _, _, _, layers, both_ways, weights, _ = call.arguments
            assert isinstance(messages, Ref)
            assert isinstance(layers, int)
            assert isinstance(weights, tuple)
            second = weights[1]
            assert isinstance(second, Ref)
            size = step_bytes(widths[messages.name], shapes[second.name][1], layers * (1 + bool(both_ways)))
            found.append((MOST_BYTES // size, call.layer))
    return min(found, default=None)


def step_bytes(channels: int, size: int, networks: int) -> int:
    """Return the bytes of one step of a recurrent network, which backward reads.

    Args:
        channels: the numbers of a message.
        size: the numbers of a state.
        networks: the number of layers, times the number of directions.
    """
    return 4 * (channels + networks * GATES * size)


def operations(stage: Stage, call: Call, statistics: Statistics, within: int | None) -> float:
    """Return the multiplications of one forward run of an operator."""
    edges = str(call.arguments[-1])
    rows, count = statistics.rows_within(within), statistics.edge_count(edges, within)
    degrees = statistics.degrees(reverse=True)
    if call.op == SEQUENCE:
        matrices = [stage.parameter_shapes.get(name, ()) for name in call.reads]
        return float(rows * degrees.greatest * sum(prod(one) for one in matrices if len(one) == 2))
    if call.op == ATTENTION:
        return 2.0 * count * degrees.mean_of_ends * call.type.width
    return float(count)
