"""Models with dropout, on rows and on edges. No independent truth has our random numbers; all plans and engines share them."""

from __future__ import annotations

from functools import cache, partial

from lotan import nn
from lotan.tracing import trace
from planner.spec import Spec
from tests.exactness.cases import OUT, WIDTH

DROPPING = {
    "GCN": partial(nn.GCN, WIDTH, 6, 2, OUT, dropout=0.5),
    "GAT": partial(nn.GAT, WIDTH, 6, 2, OUT, dropout=0.5, heads=2),
    "GAT, four heads": partial(nn.GAT, WIDTH, 8, 2, OUT, dropout=0.5, heads=4),
}


@cache
def dropping(name: str) -> tuple[Spec, Spec]:
    """The traced model in training and in evaluation mode."""
    return trace(DROPPING[name](), WIDTH, training=True), trace(DROPPING[name](), WIDTH, training=False)
