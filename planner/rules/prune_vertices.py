"""Compute a layer of training only on the vertices that the loss depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from planner.draft import Draft
from planner.places import forward_half, listed, names
from planner.rule import DraftRule
from planner.statistics import LEVELS, PRUNED_SHARE, Statistics
from planner.steps.step import Step

EVALUATES_AS_WELL = (
    "the training pass evaluates as well, on all vertices, which is estimated to take less than both apart; disable "
    "reuse_evaluation to prune it"
)
MOST_LEVELS = LEVELS - 1
"""That are told apart: more pay only where edges are few, and there little is left to prune."""


def prune_vertices(steps: Sequence[Step], statistics: Statistics) -> tuple[Step, ...]:
    """The loss reads training vertices alone: the last layer is needed there, the one before also at their in-neighbours.

    The *level* of a vertex is the fewest hops along edges from it to a *target*: a training vertex, or where a graph has few
    more vertices in any split, one of these, and then evaluation is pruned as well. What the loss reads is needed
    within level 0; where a sum over in-edges is needed within level k, what it sums is needed within k + 1; what several
    read, within the deepest level of theirs. Gradients inherit the levels: beyond, they are zero. A level is pruned where
    it is estimated to hold few enough of all vertices. Prediction and what is computed once have rows for all vertices.

    >>> from planner.physical import Column
    >>> from planner.steps.pipe import PipeStep
    >>> from planner.steps.propagate import PropagateStep
    >>> layer = PropagateStep("h", Column("sums", (4,)), "graph")
    >>> turn = PipeStep("train.1", "turn", ("sums", "label", "split"), (), (), ())
    >>> few = Statistics(vertices=1000, edges=4000, width=8, training=100)
    >>> [step.within for step in prune_vertices([layer, turn], few)]
    [0, 0]
    >>> deep = PropagateStep("x", Column("h", (4,)), "graph"), layer, turn  # 100, then 410, then 890 vertices
    >>> [step.within for step in prune_vertices([PropagateStep("features", Column("x", (4,)), "graph"), *deep], few)]
    [None, 1, 0, 0]

    Args:
        steps: of a forward pass; the last is the turn, or the evaluation.
        statistics: of the graph.
    """
    needed: dict[str, int] = {}
    pruned: list[Step] = []
    for step in reversed(steps):
        level = max((needed.get(name, 0) for name in step.makes), default=0)
        for name, hops in _hops(step).items():
            needed[name] = max(needed.get(name, 0), level + hops)
        pruned.append(step.up_to(level) if _pays(level, statistics) else step)
    return tuple(reversed(pruned))


def deepest_level(statistics: Statistics) -> int | None:
    """The deepest level that is pruned on a graph, whatever the model; None: none is.

    Engines lay vertices out by it, so that all models on a graph find them in one order, and sum in one order too.
    """
    levels = takewhile(lambda level: _pays(level, statistics), range(MOST_LEVELS))
    return max(levels, default=None)


def declined(statistics: Statistics) -> str | None:
    """Why nothing is pruned, or None where the last layer is."""
    if not statistics.training:
        return "how many vertices are trained on is not known"
    if not _pays(0, statistics):
        share = f"{statistics.training:,} of {statistics.vertices:,} vertices"
        return f"{share} are trained on; it pays below {PRUNED_SHARE:.0%}"
    return None


def _pays(level: int, statistics: Statistics) -> bool:
    if level >= MOST_LEVELS or not statistics.training:
        return False
    return statistics.rows_within(level) < PRUNED_SHARE * statistics.vertices


def _hops(step: Step) -> dict[str, int]:
    """What a step reads, with how much farther off the rows may be than those that it makes."""
    return {name: int(name in step.hop_away) for name in step.reads}


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    """Levels are the same for every model that is planned so, whether its own plan is pruned or not."""
    known = draft.statistics
    reason = declined(known)
    draft = replace(draft, levels=deepest_level(known))
    if reason is None and draft.evaluates_as_well and known.targets == "train":
        reason = EVALUATES_AS_WELL
    if reason is not None:
        return draft.stopped(RULE.name, reason)
    forward, inference = draft.forward, draft.inference
    if known.targets == "split":
        inference = replace(inference, steps=prune_vertices(inference.steps, known))
    forward = replace(forward, steps=prune_vertices(forward.steps, known))
    return replace(draft, forward=forward, inference=inference)


def _count(draft: Draft) -> int:
    return sum(step.within is not None for step in draft.forward.steps)


def _where(draft: Draft, _: str) -> list[str]:
    """For each level, the steps that run within it, and the vertices that it is estimated to hold.

    They are those of training's forward half, from which backward has its levels, and those of evaluation.
    """
    levels: dict[int, list[Step]] = {}
    for step in (*forward_half(draft.plan), *draft.plan.evaluate):
        if step.within is not None:
            levels.setdefault(step.within, []).append(step)
    known = draft.statistics
    return [
        f"{listed(names(steps))} within level {level} (~{known.rows_within(level):,} of {known.vertices:,} vertices)"
        for level, steps in sorted(levels.items())
    ]


RULE = DraftRule(
    name="prune_vertices",
    phase="steps",
    apply=_apply,
    count=_count,
    where=_where,
    idle="the model's output is needed on too many vertices",
    in_general_plan=False,
    repaid_by_epochs=True,
)
