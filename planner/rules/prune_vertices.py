"""Compute a layer of training only on the vertices that the loss depends on."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import takewhile

from planner.choices.sums import Sums
from planner.draft import Draft
from planner.places import forward_half, listed, names
from planner.rule import DraftRule
from planner.statistics import LEVELS
from planner.steps.pipe import PipeStep
from planner.steps.step import Step
from planner.steps.total import tracks
from planner.turning import sums_reversed

EVALUATES_AS_WELL = (
    "the training pass evaluates as well, on all vertices, which is estimated to take less than both apart; disable "
    "reuse_evaluation to prune it"
)
REVERSED = "a layer sums over edges turned round, whose neighbours may be at any level"
MOST_LEVELS = LEVELS - 1
"""The number of levels that may be pruned. Deeper ones are worth it only if edges are few, and then little is left out."""
LEAST_SPARED = 0.25
"""The share of a layer's seconds that pruning has to spare, at least.

A forward pass takes about a third of the seconds of a layer. Evaluation cannot share that of a pruned layer, which computes
less than evaluation needs. Engines order the vertices by level once, in 0.2 microseconds an edge on `local`. A few epochs that
are a quarter of a layer shorter repay that.
"""


def prune_vertices(steps: Sequence[Step], deepest: int | None, unpruned: Set[str] = frozenset()) -> tuple[Step, ...]:
    """The loss reads only training vertices, so a layer is needed only within as many hops of them as layers follow it.

    The *level* of a vertex is the fewest hops along edges from it to a *target*. Targets are the training vertices. If
    few more vertices are in any split, all of these are targets, and evaluation is pruned as well.

    A sampled batch is in the order of its levels as it is, so all its levels are pruned.

    The loss reads rows within level 0. If a sum over in-edges is needed within level k, the rows that it sums are needed
    within level k + 1. A column with several readers is needed within the deepest of their levels. Gradients inherit the
    levels, and are zero beyond them. Prediction and the columns that are computed once have rows for all vertices.

    A statistic over all vertices, such as BatchNorm's mean, needs the rows of all vertices, as in PyG. So nothing that
    comes before it is pruned.

    >>> from planner.physical import Column
    >>> from planner.steps.pipe import PipeStep
    >>> from planner.steps.propagate import PropagateStep
    >>> layer = PropagateStep("h", Column("sums", (4,)), "graph")
    >>> turn = PipeStep("train.1", "turn", ("sums", "label", "split"), (), (), ())
    >>> [step.within for step in prune_vertices([layer, turn], deepest=1)]
    [0, 0]
    >>> deep = PropagateStep("x", Column("h", (4,)), "graph"), layer, turn
    >>> [step.within for step in prune_vertices([PropagateStep("features", Column("x", (4,)), "graph"), *deep], deepest=1)]
    [None, 1, 0, 0]

    Args:
        steps: The steps of a forward pass. The last one is the turn, or the evaluation.
        deepest: The deepest level that is pruned, or None.
        unpruned: The names of the stages that have to run on all vertices.
    """
    needed: dict[str, int] = {}
    pruned: list[Step] = []
    for step in reversed(steps):
        level = max((needed.get(name, 0) for name in step.makes), default=0)
        if isinstance(step, PipeStep) and step.stage in unpruned:
            level = MOST_LEVELS
        for name, hops in _hops(step).items():
            needed[name] = max(needed.get(name, 0), level + hops)
        pruned.append(step.up_to(level) if deepest is not None and level <= deepest else step)
    return tuple(reversed(pruned))


def deepest_level(sums: Sums) -> int | None:
    """Return the deepest level that is pruned on a graph, or None. It does not depend on the model.

    Engines order vertices by level up to it. So the order of vertices and of sums is the same for all models on a graph.
    """
    if sums.statistics.sampled:  # a batch has the vertices of the last level for the first layer's sources alone
        return len(sums.statistics.sampled) - 2
    if not sums.statistics.training:
        return None
    levels = takewhile(lambda level: _pays(level, sums), range(MOST_LEVELS))
    return max(levels, default=None)


def declined(sums: Sums) -> str | None:
    """Return the reason why nothing is pruned, or None if at least the last layer is."""
    known = sums.statistics
    if not known.training:
        return "how many vertices are trained on is not known"
    if known.sampled or _pays(0, sums):
        return None
    spared = 1 - sums.layer(0) / sums.layer(None)
    return (
        f"{known.training:,} of {known.vertices:,} vertices are trained on: a layer is estimated to take {spared:.0%} less; "
        f"it has to be {LEAST_SPARED:.0%}"
    )


def _pays(level: int, sums: Sums) -> bool:
    """Return True if pruning a typical layer to a level spares enough seconds."""
    return sums.layer(level) < (1 - LEAST_SPARED) * sums.layer(None)


def _hops(step: Step) -> dict[str, int]:
    """Return the columns that a step reads, each with the number of hops from the rows that it makes to those it reads.

    The number is 0 or 1, or more than any level if the rows of all vertices are read.
    """
    everywhere = step.read_everywhere
    return {name: MOST_LEVELS if name in everywhere else int(name in step.hop_away) for name in step.reads}


# --- the rule --------------------------------------------------------------------------------------------------------


def _apply(draft: Draft) -> Draft:
    """Return the draft with pruned passes. `levels` is set even if nothing is pruned: see `deepest_level`."""
    known = draft.statistics
    sums = Sums(known, draft.options.pricing)
    reason, deepest = declined(sums), deepest_level(sums)
    draft = replace(draft, levels=deepest)
    if reason is None and sums_reversed(draft.forward):
        reason = REVERSED
    if reason is None and draft.evaluates_as_well and known.targets == "train":
        reason = EVALUATES_AS_WELL
    if reason is not None:
        return draft.stopped(RULE.name, reason)
    forward, inference = draft.forward, draft.inference
    unpruned = {stage.name for stage in (*forward.stages, *inference.stages) if tracks(stage)}
    if known.targets == "split":
        inference = replace(inference, steps=prune_vertices(inference.steps, deepest))
    forward = replace(forward, steps=prune_vertices(forward.steps, deepest, unpruned))
    return replace(draft, forward=forward, inference=inference)


def _count(draft: Draft) -> int:
    return sum(step.within is not None for step in draft.forward.steps)


def _where(draft: Draft, _: str) -> list[str]:
    """Return a text for each level: the steps that run within it, and the estimated number of its vertices.

    Only the steps of training's forward half and of evaluation are named. Backward inherits its levels from the former.
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
