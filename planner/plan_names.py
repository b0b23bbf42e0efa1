"""Names of plans: the engine and the rules that are left out, joined by "-"."""

from __future__ import annotations

from collections.abc import Collection

from planner.rules import RULE_NAMES

GENERAL = "general"


def plan_name(engine: str, disable: Collection[str], plan: str) -> str:
    """Return the name of a plan.

    >>> plan_name("blocks", ["hoist_invariant"], "auto"), plan_name("rows", (), "general")
    ('blocks-hoist_invariant', 'rows-general')
    """
    return "-".join([engine, *[GENERAL] * (plan == GENERAL), *(rule for rule in RULE_NAMES if rule in disable)])
