"""Random numbers on edges that are drawn again for the same edges in another set, such as one with added self-loops.

In an epoch, the random numbers of an edge follow from the key of the draw and from the edge itself: its ends, and its place
among parallel edges. So a draw of the same key for another set has the same numbers for the edges that both sets have. This
does not hold for edges that are turned round.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.fx import Node
from torch.fx.experimental import proxy_tensor

from planner.edge_sets import has_added_loops, is_reversed
from planner.spec import Call

DRAW = "lotan_draw"
"""The entry in the `meta` of a recorded node that names the first of the nodes with the same random numbers."""

BOTH_WAYS = (
    "reads random numbers of edges both for the edges and for the edges turned round, where they would differ; draw them once "
    "for each direction"
)
_DRAWING = ("rand", "randn", "rand_like", "randn_like", "bernoulli", "dropout")


def drawing_node(value: Tensor) -> Node | None:
    """Return the node that has drawn a tensor in the recording that runs, or None if several nodes have made it."""
    mode = proxy_tensor.get_proxy_mode()
    held = None if mode is None else mode.tracer.tensor_tracker.get(value)
    node: Node | None = None if held is None else held.proxy.node
    return node if node is not None and str(node.target).split(".")[1:2] in [[name] for name in _DRAWING] else None


def note_same(first: Node, again: Node) -> None:
    """Note that two nodes have the same random numbers."""
    first.meta.setdefault(DRAW, first.name)
    again.meta[DRAW] = first.meta[DRAW]


def draws_both_ways(calls: Sequence[Call]) -> Call | None:
    """Return a call that draws for edges turned round what another call draws for the edges, or None."""
    forward = {call.draw for call in calls if call.draw and not is_reversed(str(call.type.edges))}
    return next((call for call in calls if call.draw in forward and is_reversed(str(call.type.edges))), None)


def draws_for_other_edges(calls: Sequence[Call]) -> bool:
    """Return True if a call draws for edges with self-loops what the model draws for other edges."""
    return any(call.draw not in ("", call.output) and has_added_loops(str(call.type.edges)) for call in calls)
