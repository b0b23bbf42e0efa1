"""What a plan is called: an engine and, each behind a "-", the rules that the plan does without."""

from __future__ import annotations

from collections.abc import Collection

from planner.rules import RULE_NAMES

GENERAL = "general"


def plan_name(engine: str, disable: Collection[str], plan: str) -> str:
    """The name of a plan.

    >>> plan_name("blocks", ["hoist_invariant"], "auto"), plan_name("rows", (), "general")
    ('blocks-hoist_invariant', 'rows-general')
    """
    return "-".join([engine, *[GENERAL] * (plan == GENERAL), *(rule for rule in RULE_NAMES if rule in disable)])
