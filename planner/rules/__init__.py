"""The rules, in the order in which they are applied: the table of contents of what the planner does to a plan.

Each is an object beside its function, in a file of its own. Every rule can be disabled by its name; the answer never changes.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from planner.choices import choose_physical
from planner.errors import PlanError
from planner.rule import Rule
from planner.rules import (
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

RULES: tuple[Rule, ...] = (
    # On the whole graph, before each round of those on single nodes: they see who reads a value, and make values alike.
    share_subplans.RULE,
    # Before the others, to which a message that is weighted by 1 is not a plain copy.
    drop_unit_weight.RULE,
    # Before those that push down: a message that is f(x_j) becomes a plain copy of f(x).
    lift_message.RULE,
    # After lifting; takes whole neighbourhood aggregates out of the DL Engine.
    push_down.RULE,
    # After lifting too, which leaves a few numbers for each edge, and beside push_down, which needs no edge columns.
    push_down_edges.RULE,
    push_down_extremes.RULE,
    # On what push_down makes.
    commute_linear.RULE,
    # On the rewritten graph: what is hoisted is as large as can be.
    hoist_invariant.RULE,
    # When both graphs are what they will be, and before they are steps, which are no nodes that can be compared.
    reuse_evaluation.RULE,
    # After all rewrites: only then is it known which operators stand between two graph operators.
    fuse_apply.RULE,
    # On the steps of forward, from which backward then inherits what it leaves out.
    prune_vertices.RULE,
    # On the whole epoch: what is dead shows once backward has been derived.
    drop_dead_gradients.RULE,
    # After that: only then is it known which stages run backward, and what these read.
    keep_or_recompute.RULE,
    # On all passes as a plan: only then is it known what every stage reads.
    hold_sparse.RULE,
    # On finished plans, of which it takes one.
    choose_physical.RULE,
    # On the finished plans of all models of a batch.
    share_models.RULE,
)

RULE_NAMES: tuple[str, ...] = tuple(rule.name for rule in RULES)
"""What a user can disable, in the same order."""

REPAID_BY_EPOCHS: tuple[str, ...] = tuple(rule.name for rule in RULES if rule.repaid_by_epochs)
"""The rules that a single pass, such as a prediction, does better without."""


def enabled(disabled: Collection[str], plan: str = "auto", rules: Collection[Rule] = RULES) -> tuple[Rule, ...]:
    """The rules that are left.

    Args:
        disabled: names of rules to leave out.
        plan: "auto", or "general" for the paper's plan.
        rules: all of them.

    Raises:
        PlanError: there is no such rule, or no such plan.
    """
    names = [rule.name for rule in rules]
    for name in disabled:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise PlanError(f"there is no rule {name!r}{hint}; the rules are {', '.join(names)}")
    if plan not in ("auto", "general"):
        raise PlanError(f"there is no plan {plan!r}; expected 'auto' or 'general'")
    return tuple(rule for rule in rules if rule.name not in disabled and (plan == "auto" or rule.in_general_plan))
