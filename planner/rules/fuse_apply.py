"""Join neighbouring operators of the DL Engine into one stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from planner.draft import Draft
from planner.lower import Cut
from planner.nodes import GraphOperator, Node, StaticColumn, consumers
from planner.places import forward_half, stages_of
from planner.rule import DraftRule

TIMES_MOVED = 2  # a column of its own would be written once and read once


def fuse_apply(
    stages: Mapping[Node, int], order: Sequence[Node], readers: Mapping[Node, Sequence[Node]], held: Set[Node]
) -> dict[Node, int]:
    """g(f(x)) in one round trip: rows are piped once between two graph operators, not once per operator.

    The stage of an operator becomes the number of graph operators with vertex rows on its longest path from the inputs.
    An operator that reads nothing but columns the Graph Engine holds anyway, and not many more numbers than it yields,
    moves down to its first reader: what it yields then needs no column of its own.

    Args:
        stages: the stage of every operator of the DL Engine on vertex rows, one each.
        order: all nodes, children first.
        readers: the nodes that read each node.
        held: what graph operators read.
    """
    level: dict[Node, int] = {}
    movable: set[Node] = set()
    # What reads these waits for neighbours; arithmetic on edges is done before the next stage in any case.
    boundaries = {node for node in order if isinstance(node, GraphOperator) and node.output.rows == "vertex"}
    for node in order:
        level[node] = max(map(level.__getitem__, node.children), default=0) + (node in boundaries)
        if node in stages and _reads_columns(node, movable, held):
            movable.add(node)
    for node in reversed(order):
        if node in movable and readers[node]:  # the last level at which an input of each reader can be computed
            level[node] = max(level[node], min(level[reader] - (reader in boundaries) for reader in readers[node]))
    return {node: level[node] for node in stages}


def _reads_columns(node: Node, movable: Set[Node], held: Set[Node]) -> bool:
    """Whether all rows an operator reads are columns anyway: static, made by a graph operator, or `held` as read by one."""
    fresh = 0
    for child in dict.fromkeys(node.children):
        if child.output.rows == "none" or isinstance(child, StaticColumn):
            continue
        if not (child in movable or child in held or isinstance(child, GraphOperator)):
            return False
        fresh += child.output.width
    return fresh <= TIMES_MOVED * node.output.width


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    return replace(draft, cuts={name: _fused(cut) for name, cut in draft.cuts.items()})


def _fused(cut: Cut) -> Cut:
    order = tuple(cut.names)
    return replace(cut, assignment=fuse_apply(cut.assignment, order, consumers(order), cut.read_by_graph_operators))


def _count(draft: Draft) -> int:
    """Operators on vertices that share a stage with one before them."""
    return sum(max(0, len(stage.on_vertices) - 1) for stage in draft.forward.stages)


def _where(draft: Draft, _: str) -> list[str]:
    """The stages of training that hold more than one operator on vertices."""
    return [stage.name for stage in stages_of(draft.plan, forward_half(draft.plan)) if len(stage.on_vertices) > 1]


RULE = DraftRule(
    name="fuse_apply",
    phase="stages",
    apply=_apply,
    count=_count,
    where=_where,
    idle="no two operators of the DL Engine are neighbours",
)
