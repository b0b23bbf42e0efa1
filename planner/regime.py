"""The regime of training as the planner sees it: how the batches of an epoch are sampled, and how large they are.

A rule never changes the answer of a plan. A regime defines the answer: it says which vertices are the examples of a step,
and which edges are drawn for them. Full batch has one step an epoch and draws nothing. Mini-batches have one step for
each batch.

A batch is a small graph in the order of its levels. Level 0 has the examples, also called targets. Level k has the
vertices that are first met k hops away. The in-edges of every vertex are drawn once a batch, and all layers use them.
Source: Waleffe et al., MariusGNN (EuroSys 2023), section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Literal

from planner.degrees import Degrees
from planner.neighbours import NEIGHBOUR_OPERATORS, lengths
from planner.physical import Plan
from planner.spec import GROUP_TOTAL, REDUCING, TRACK, Call, Spec
from planner.statistics import Profile, Statistics
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep
from planner.steps.pipe import PipeStep
from planner.steps.score import ScoreStep
from planner.steps.step import Step

Fanout = int | Literal["all"]
"""The most in-edges that are drawn for a vertex; "all": every in-edge is taken."""

MOST_FANOUTS = 16
"""The most hops from the targets that a batch may have."""


@dataclass(frozen=True)
class Sampling:
    """The sampling of batches."""

    batch_size: int  # examples of a batch; the last batch of an epoch may have fewer
    fanouts: tuple[Fanout, ...]  # by level: the first is for the targets, the last for the vertices farthest from them
    examples: int  # examples of an epoch: the training vertices that have labels, or the training links
    targets: int | None = None  # the vertices of a batch that are no neighbours alone; None: its examples are vertices
    both: bool = False  # True if out-edges are drawn too, for a model that sums along edges turned round
    relations: int = 1  # a fanout holds for the in-edges of each relation apart, of which there are so many
    drawing_seconds: float = 0.0  # the estimated seconds of an epoch in which steps wait for draws and transport

    @property
    def batches(self) -> int:
        """The number of batches of an epoch."""
        return -(-self.examples // self.batch_size)

    @property
    def complete(self) -> bool:
        """True if every in-edge is taken, so that a batch has the loss and the gradients of its targets in the whole graph."""
        return all(fanout == "all" for fanout in self.fanouts)

    def __str__(self) -> str:
        of = "" if self.targets is None else f" links (~{self.targets:,} vertices with negatives)"
        words = batches_in_words(self.batch_size, self.fanouts, of)
        return words if self.relations == 1 else f"{words} of each relation"


def batches_in_words(batch_size: int, fanouts: Sequence[Fanout], of: str = "") -> str:
    """Return the sizes of batches in words; `of` says what the examples are.

    >>> batches_in_words(1024, (10, "all"))
    'batch size 1,024, fanouts 10, all'
    """
    return f"batch size {batch_size:,}{of}, fanouts {', '.join(map(str, fanouts)) or 'none'}"


def statistics_of_batch(known: Statistics, sampling: Sampling) -> Statistics:
    """Estimate the sizes of a batch, from the degrees of the graph.

    Args:
        known: The statistics of the graph.
        sampling: The sampling of batches.

    Returns:
        The statistics of a batch, with the sizes of its levels in `sampled`.
    """
    levels = tuple((round(rows), round(edges)) for rows, edges in _levels(known, sampling))
    return _of_levels(known, levels)


def statistics_within(of_batch: Statistics, hops: int | None) -> Statistics:
    """Return the sizes of a batch that is drawn within some hops of its targets; None: as many as there are.

    Args:
        of_batch: The statistics of a batch, of `statistics_of_batch`.
        hops: The hops that the plan of the batch needs: see `hops_of_plan`.
    """
    if hops is None or hops + 1 >= len(of_batch.sampled):
        return of_batch
    levels = of_batch.sampled[:hops]
    drawn = levels[-1][1] if levels else 0  # no edge is drawn for the vertices of the last level
    return _of_levels(of_batch, (*levels, (of_batch.sampled[hops][0], drawn)))


def _of_levels(known: Statistics, levels: tuple[tuple[int, int], ...]) -> Statistics:
    vertices, edges = levels[-1]
    even = Degrees.even(vertices, edges)
    return replace(
        known,
        vertices=vertices,
        edges=edges,
        self_loops=round(known.self_loops * edges / max(1, known.edges)),
        training=levels[0][0],
        evaluated=None,
        profile=Profile(even, even, known.density),
        sampled=levels,
    )


def _levels(known: Statistics, sampling: Sampling) -> Iterator[tuple[float, float]]:
    """Yield the vertices expected within each level, and the edges that end there.

    The source of an edge is taken as drawn in proportion to out-degrees. So the vertices of a class of out-degrees are met
    more often the higher the class is.
    """
    degrees = known.degrees()
    into = (known.profile.in_edges if known.profile is not None else ()) or degrees.edges
    classes = [one for one in zip(degrees.vertices, degrees.edges, into, strict=False) if one[0]]
    # with both directions, an edge is met from either end, and drawn from either
    ways = [out + (ends if sampling.both else 0) for _, out, ends in classes]
    targets = min(sampling.batch_size, sampling.examples) if sampling.targets is None else sampling.targets
    share = targets / max(1, known.vertices)
    before = [0.0 for _ in classes]
    within = [share * vertices for vertices, _, _ in classes]
    drawn, unmet = 0.0, 1.0 - share
    for fanout in sampling.fanouts:
        most = float("inf") if fanout == "all" else fanout * sampling.relations
        new = zip(classes, before, within, strict=True)
        drawn += sum((now - then) * min(most, ends / vertices) for (vertices, _, ends), then, now in new)
        if sampling.both:
            new = zip(classes, before, within, strict=True)
            drawn += sum((now - then) * min(most, out / vertices) for (vertices, out, _), then, now in new)
            drawn = min(drawn, float(known.edges))
        yield sum(within), drawn
        before = within
        rate = drawn / max(1, known.edges)
        met = zip(classes, ways, strict=True)
        within = [vertices * (1 - unmet * exp(-rate * way / vertices)) for (vertices, _, _), way in met]
    yield sum(within), drawn


def hops_of_plan(plan: Plan) -> int | None:
    """Return the hops from the targets that a batch's plan needs, or None if it reads edges everywhere.

    They are fewer than the model's if its first sums are computed once.
    """
    levels = [step.within for step in plan.train if not _is_row_wise(plan, step)]
    known = [level for level in levels if level is not None]
    return None if len(known) < len(levels) else max(known, default=-1) + 1


def _is_row_wise(plan: Plan, step: Step) -> bool:
    if isinstance(step, LearnedRowsStep | LearnedRowsGradientStep | ScoreStep):
        return True
    return isinstance(step, PipeStep) and not plan.stage(step.stage).edge_sets


def hops(spec: Spec) -> int | str:
    """Return how many times a model sums along edges, one sum after the other, at most.

    Layers with running statistics normalise by the rows of a batch in training. What is reduced by group is reduced over the
    vertices of each group that a batch has. Neither reads edges.

    Returns:
        The number of hops; or the name of another layer that reads the rows of all vertices, so that there is no number.
    """
    found: dict[str, int] = {}
    tracked = {layer.layer for layer in spec.tracked}
    of_sequences = lengths(spec)
    for call in spec.calls:
        reduces = call.op in (*REDUCING, TRACK) and call.op != GROUP_TOTAL
        if reduces and call.layer not in tracked and call.output not in of_sequences:
            return call.layer or "the model itself"
        found[call.output] = _hops_of(call, max((found.get(name, 0) for name in call.reads), default=0))
    return found.get(spec.output, 0)


def _hops_of(call: Call, read: int) -> int:
    """Return the hops of a call's output, if the deepest value that it reads has `read` of them.

    Rows of edges count the hop already, because a batch has an edge only if it was drawn for the edge's destination.
    """
    if call.op == "lotan.scatter":
        return read + 1
    is_of_edges = call.type.rows == "edge" or call.op in ("lotan.aggregate", *NEIGHBOUR_OPERATORS)
    return max(read, 1) if is_of_edges else read
