"""The rules, in the order in which they are applied.

Each rule is an object beside its function, in a file of its own. A user can disable every rule by its name. The numbers
that training computes do not depend on it, but for rounding.
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
    push_down_totals,
    reuse_evaluation,
    share_models,
    share_subplans,
    split_ends,
    split_relations,
    sum_in_stages,
)

RULES: tuple[Rule, ...] = (
    # On the whole graph, before each round of the rules on single nodes. They ask which nodes read a value, and they make
    # more nodes alike.
    share_subplans.RULE,
    # Before the rules that look for plain copies of a source's row: a copy times a weight of 1 would not be one.
    drop_unit_weight.RULE,
    # Before the rules that push down: a message f(x_j) becomes a plain copy of f(x), which they can push down.
    lift_message.RULE,
    # Before the rules that push down: a copy that is masked would not be a plain one.
    split_relations.RULE,
    # After lifting, which leaves single copies of both ends, and before pushing down, because it makes plain copies as well.
    split_ends.RULE,
    # After lifting, which makes the plain copies. It takes whole aggregates out of the DL Engine.
    push_down.RULE,
    # After lifting as well, which leaves few numbers for each edge. Messages that push_down takes need no edge columns,
    # and are left to it.
    push_down_edges.RULE,
    push_down_extremes.RULE,
    # After push_down, which makes the sums that change places with linear maps.
    commute_linear.RULE,
    # After the rules that make sums along edges and that leave scalings behind them.
    push_down_totals.RULE,
    # After that, which makes better totals: they need no stage at all.
    sum_in_stages.RULE,
    # On the rewritten graph, where the parts that can be hoisted are as large as they get.
    hoist_invariant.RULE,
    # After all rules on both graphs, which it compares, and before these become steps.
    reuse_evaluation.RULE,
    # After all rewrites, because only then is it known which operators stand between two graph operators.
    fuse_apply.RULE,
    # On the steps of forward, before backward is derived from them and inherits their levels.
    prune_vertices.RULE,
    # On the whole epoch, because gradients exist only once backward has been derived.
    drop_dead_gradients.RULE,
    # After that, because only then is it known which stages run backward, and what these read.
    keep_or_recompute.RULE,
    # On the plan of all passes, because only then is it known what every stage reads.
    hold_sparse.RULE,
    # On finished plans, because it takes one of them.
    choose_physical.RULE,
    # On the finished plans of all models of a batch.
    share_models.RULE,
)

RULE_NAMES: tuple[str, ...] = tuple(rule.name for rule in RULES)
"""The names by which a user can disable rules, in the same order."""

REPAID_BY_EPOCHS: tuple[str, ...] = tuple(rule.name for rule in RULES if rule.repaid_by_epochs)
"""The names of the rules without which a single pass, such as a prediction, takes less time."""


def enabled(disabled: Collection[str], plan: str = "auto", rules: Collection[Rule] = RULES) -> tuple[Rule, ...]:
    """Return the rules that are enabled, in order.

    Args:
        disabled: The names of the rules to leave out.
        plan: "auto", or "general" for the paper's plan.
        rules: All rules.

    Raises:
        PlanError: If there is no rule or no plan of a given name.
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
