"""Plans to draw, made once."""

from __future__ import annotations

from functools import cache

from planner import Options, Planned
from tests.planner.engines import ON_EDGES
from tests.planner.specs import FEATURES, SpecWriter, attention, gcn, jumping, planned

PLAIN = Options(disabled=("commute_linear", "hoist_invariant"))  # every layer as in the model
EDGES = Options(pricing=ON_EDGES)


def _row_wise() -> Planned:
    writer = SpecWriter()
    return planned(writer.spec(writer.linear(FEATURES, "lin", 8, 3)))


MAKERS = {
    "gcn": lambda: planned(gcn(), gcn(training=False)),
    "plain": lambda: planned(gcn(), gcn(training=False), options=PLAIN),
    "deep": lambda: planned(gcn(layers=16), gcn(layers=16, training=False)),
    "attention": lambda: planned(attention(dropout=True), attention(), options=EDGES),
    "collected": lambda: planned(attention(dropout=True), attention(), options=Options(plan="general")),
    "jumping": lambda: planned(jumping()),
    "row_wise": _row_wise,
}


@cache
def plan(name: str) -> Planned:
    """One of MAKERS' plans."""
    return MAKERS[name]()
