"""The estimated seconds of sums along edges, and of layers, for rules that fire before there is a plan to be priced."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.choices.evaluation import anywhere
from planner.cost.counting import step_work
from planner.cost.seconds import Pricing, work_seconds
from planner.draft import NO_PLAN
from planner.nodes import Node, Propagate
from planner.physical import Column
from planner.spec import EdgeSet
from planner.statistics import Statistics
from planner.steps.propagate import PropagateStep
from planner.work import Work

REPAID_BY = 50
"""The number of epochs within which work that is done once, before the first epoch, has to be repaid."""
WIDTH = 64
"""The width of a typical layer. A rule that decides for all models on a graph alike cannot ask a model for its own."""


@dataclass(frozen=True)
class Sums:
    """Estimates the seconds of sums along a graph's edges, and of a layer. They are the same on every machine: see `anywhere`."""

    statistics: Statistics
    pricing: Pricing  # the engine's; what it has learnt on this machine is left out

    def seconds(self, width: int, edges: EdgeSet = "graph", within: int | None = None) -> float:
        """Return the seconds to sum rows of a width along edges, for the vertices within a level, or for all."""
        return work_seconds(self._work(width, edges, within), anywhere(self.pricing))

    def of_chain(self, chain: list[Node], width: int) -> float:
        """Return the seconds of those aggregates of a chain that sum along edges, for rows of a width."""
        return sum(self.seconds(width, node.edges) for node in chain if isinstance(node, Propagate))

    def layer(self, within: int | None) -> float:
        """Return the seconds that a typical layer takes in an epoch on the vertices within a level, or on all.

        The layer is a sum along edges, a linear map and an activation, forward and backward. Seconds that do not depend on
        the number of rows are left out.
        """
        rows = self.statistics.rows_within(within)
        # the product makes its output, and the gradients of its input and of its weight
        products = Work(multiply_adds=WIDTH * WIDTH, product_numbers=2 * WIDTH, numbers=WIDTH) * (3 * rows)
        sums = replace(self._work(WIDTH, "graph", within), steps=0.0)
        return work_seconds(sums * 2 + products, anywhere(self.pricing))

    def _work(self, width: int, edges: EdgeSet, within: int | None) -> Work:
        step = PropagateStep("", Column("", (width,)), edges, within=within)
        return step_work(step, NO_PLAN, self.statistics, self.pricing.traits, anywhere(self.pricing).layout)
