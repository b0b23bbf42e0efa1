"""The rules, in order: the table of contents of what the planner does to a plan.

A forward rule maps a node of the forward graph to a better one, or None. The others work on that graph as a whole, and on
what it is turned into. Every rule can be disabled by its name; the answer never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from planner.nodes import Aggregate, Apply, Dropout, Node, Propagate
from planner.rules import (
    choose_physical,
    commute_linear,
    drop_dead_gradients,
    drop_unit_weight,
    fuse_apply,
    hoist_invariant,
    hold_sparse,
    keep_or_recompute,
    lift_message,
    prune_vertices,
    push_down,
    push_down_edges,
    push_down_extremes,
    reuse_evaluation,
    share_models,
    share_subplans,
)
from planner.spec import Ability

Readers = Mapping[Node, Sequence[Node]]
"""The nodes that read each node."""


@dataclass(frozen=True)
class ForwardRule:
    """A rule on single nodes, applied bottom-up to a fixpoint by `planner.optimizer`."""

    apply: Callable[[Node], Node | None]
    declined: Callable[[Node], str | None]  # for such a node that is left in the rewritten graph: why it did not fire
    needs: Ability | None = None  # of the engine, without which the rule is left out
    pays: Callable[[Node, Readers], bool] | None = None  # whether firing there spares more than it costs; None: always
    on: tuple[type[Node], ...] = (Node,)  # kinds of nodes that it is asked about; it never fires on others

    @property
    def name(self) -> str:
        """The function's name, by which the rule is disabled."""
        return self.apply.__name__


FORWARD_RULES = (
    # Before the others, to which a message that is weighted by 1 is not a plain copy.
    ForwardRule(drop_unit_weight.drop_unit_weight, drop_unit_weight.declined, on=(Apply,)),
    # First, so that a message that is f(x_j) becomes a plain copy of f(x), which can then be pushed down.
    ForwardRule(lift_message.lift_message, lift_message.declined, on=(Apply, Dropout)),
    # After lifting; takes whole neighbourhood aggregates out of the DL Engine.
    ForwardRule(push_down.push_down, push_down.declined, on=(Aggregate,)),
    # After lifting too, which leaves a few numbers for each edge, and beside push_down, which needs no edge columns.
    ForwardRule(push_down_edges.push_down_edges, push_down_edges.declined, needs="edge_columns", on=(Aggregate,)),
    ForwardRule(push_down_extremes.push_down_extremes, push_down_extremes.declined, needs="extremes", on=(Aggregate,)),
    # On what push_down makes.
    ForwardRule(
        commute_linear.commute_linear, commute_linear.declined, pays=commute_linear.pays, on=(Apply, Propagate)
    ),
)

LACKING: dict[Ability, str] = {
    "edge_columns": "this engine holds no values of edges",
    "extremes": "this engine takes no max or min",
}
"""Why a rule was left out that would have fired."""

RULES: tuple[str, ...] = (
    # On the whole graph, before each round of those on single nodes: they see who reads a value, and make values alike.
    share_subplans.share_subplans.__name__,
    *(rule.name for rule in FORWARD_RULES),
    # On the rewritten graph: what is hoisted is as large as can be.
    hoist_invariant.hoist_invariant.__name__,
    # When both graphs are what they will be, and before they are steps, which are no nodes that can be compared.
    reuse_evaluation.reuse_evaluation.__name__,
    # After all rewrites: only then is it known which operators stand between two graph operators.
    fuse_apply.fuse_apply.__name__,
    # On the steps of forward, from which backward then inherits what it leaves out.
    prune_vertices.prune_vertices.__name__,
    # On the whole epoch: what is dead shows once backward has been derived.
    drop_dead_gradients.drop_dead_gradients.__name__,
    # After that: only then is it known which stages run backward, and what these read.
    keep_or_recompute.keep_or_recompute.__name__,
    # On the finished plan: only then is it known what every stage reads.
    hold_sparse.hold_sparse.__name__,
    # On finished plans, of which it takes one.
    choose_physical.choose_physical.__name__,
    # On the finished plans of all models of a batch.
    share_models.share_models.__name__,
)

IDLE = {
    "share_subplans": "no two layers compute the same from the same inputs",
    "drop_unit_weight": "no message reads an edge's weight",
    "lift_message": "no message computes anything from one end of an edge alone",
    "push_down": "the model sums no plain rows over edges",
    "push_down_edges": "the model sums nothing over edges but rows of sources, as they are or times the edge's weight",
    "push_down_extremes": "the model takes no max or min over edges",
    "commute_linear": "no sum would move fewer numbers on the other side of a linear map, with all that reads it counted",
    "hoist_invariant": "no sum over edges is the same in every epoch",
    "reuse_evaluation": "training and evaluation compute nothing alike",
    "fuse_apply": "no two operators of the DL Engine are neighbours",
    "prune_vertices": "the model's output is needed on too many vertices",
    "drop_dead_gradients": "every gradient leads to a parameter",
    "keep_or_recompute": "no stage keeps anything for its backward",
    "hold_sparse": "no stage reads the features for linear maps alone",
    "choose_physical": "the usual plan is estimated to take no more than the others in question",
    "share_models": "there is one model; those of a batch share its steps",
}
"""What it means that an enabled rule neither fired nor was stopped by anything."""

GENERAL_PLAN_WITHOUT = (
    "share_subplans",
    "lift_message",
    "push_down",
    "push_down_edges",
    "push_down_extremes",
    "commute_linear",
    "hoist_invariant",
    "reuse_evaluation",
    "prune_vertices",
    "hold_sparse",
)
"""The rules that the paper's general plan does without: every neighbourhood is collected, messages run in the DL Engine."""
