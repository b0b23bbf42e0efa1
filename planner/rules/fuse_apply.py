"""Join neighbouring operators of the DL Engine into one stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from planner.draft import Draft
from planner.lower import Cut
from planner.nodes import GraphOperator, Node, StaticColumn, consumers
from planner.places import forward_half, stages_of
from planner.rule import DraftRule

TIMES_MOVED = 2  # times that a number of a column moves: it is written once and read once


def fuse_apply(
    stages: Mapping[Node, int], order: Sequence[Node], readers: Mapping[Node, Sequence[Node]], held: Set[Node]
) -> dict[Node, int]:
    """g(f(x)) needs one round trip, because rows are piped once between two graph operators, not once for each operator.

    The stage of an operator becomes the number of graph operators with vertex rows on its longest path from the inputs.

    Some operators move to the later stage of their first reader, so that their output needs no column. They read only
    columns that the Graph Engine holds in any case, and not many more numbers than they yield.

    Args:
        stages: The stage of every operator of the DL Engine on vertex rows, a different one for each.
        order: All nodes, children first.
        readers: The nodes that read each node.
        held: The nodes that graph operators read.

    Returns:
        The new stage of each of these operators. Lower numbers run first.
    """
    level: dict[Node, int] = {}
    movable: set[Node] = set()
    # An operator that reads one of these waits for neighbours. Operators that yield edge columns are left out, because
    # they run before the next stage in any case.
    boundaries = {node for node in order if isinstance(node, GraphOperator) and node.output.rows == "vertex"}
    for node in order:
        level[node] = max(map(level.__getitem__, node.children), default=0) + (node in boundaries)
        if node in stages and _reads_columns(node, stages.keys(), movable, held):
            movable.add(node)
    for node in reversed(order):
        if node in movable and readers[node]:  # the last level that is early enough for each reader
            level[node] = max(level[node], min(level[reader] - (reader in boundaries) for reader in readers[node]))
    return {node: level[node] for node in stages}


def _reads_columns(node: Node, staged: Set[Node], movable: Set[Node], held: Set[Node]) -> bool:
    """Return True if an operator reads only columns that exist in any case, and not too many numbers of them.

    These columns are static, or a graph operator makes or reads them. The outputs of movable operators count as such
    columns too. Numbers of static columns are not counted, nor those of values that each stage computes again from them.
    """
    fresh = 0
    for child in dict.fromkeys(node.children):
        if child.output.rows == "none" or isinstance(child, StaticColumn):
            continue
        if child.output.rows == "vertex" and child not in staged and not isinstance(child, GraphOperator):
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
    """Return the number of operators on vertices that share a stage with another one before them."""
    return sum(max(0, len(stage.on_vertices) - 1) for stage in draft.forward.stages)


def _where(draft: Draft, _: str) -> list[str]:
    """Return the names of the stages of training that hold more than one operator on vertices."""
    return [stage.name for stage in stages_of(draft.plan, forward_half(draft.plan)) if len(stage.on_vertices) > 1]


RULE = DraftRule(
    name="fuse_apply",
    phase="stages",
    apply=_apply,
    count=_count,
    where=_where,
    idle="no two operators of the DL Engine are neighbours",
)
