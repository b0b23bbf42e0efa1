"""Names of plans: an engine, followed by the rules that the plan does without, each after a "-".

`blocks-hoist_invariant` is the plan for blocks without `hoist_invariant`, and `rows-general` is the general plan on
rows. A name means the same for every model and graph. It can be used in place of the settings `engine`, `disable` and
`plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lotan.arguments import nearest
from lotan.errors import ConfigurationError
from planner.plan_names import GENERAL
from planner.rules import RULE_NAMES

ENGINES = ("local", "rows", "blocks")


@dataclass(frozen=True)
class ForcedPlan:
    """The settings that the name of a plan stands for."""

    engine: str
    disable: tuple[str, ...] = ()
    plan: Literal["auto", "general"] = "auto"


def named_plan(name: str) -> ForcedPlan:
    """Return the settings that the name of a plan stands for.

    >>> named_plan("blocks-hoist_invariant-fuse_apply")
    ForcedPlan(engine='blocks', disable=('hoist_invariant', 'fuse_apply'), plan='auto')

    Raises:
        ConfigurationError: If there is no such plan.
    """
    engine, *parts = name.split("-")
    rules = tuple(part for part in parts if part != GENERAL)
    if engine not in ENGINES or not set(rules) <= set(RULE_NAMES):
        raise ConfigurationError(_unknown(name))
    return ForcedPlan(engine, rules, "general" if GENERAL in parts else "auto")


def _unknown(name: str) -> str:
    single = [f"{engine}-{part}" for engine in ENGINES for part in (GENERAL, *RULE_NAMES)]
    near = nearest(name, ["auto", GENERAL, *ENGINES, *single])
    hint = f" (did you mean {near!r}?)" if near else ""
    return (
        f"there is no plan {name[:80]!r}{hint}; expected 'auto', 'general', or one that `lotan explain --alternatives` lists: "
        f"an engine ({', '.join(ENGINES)}), followed by '-{GENERAL}' or by rules that the plan does without, each after a '-'. "
        f"The rules are {', '.join(RULE_NAMES)}"
    )
