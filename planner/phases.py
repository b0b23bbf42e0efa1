"""The phases of planning up to the steps of an epoch, each remembered by what it depends on.

Plans of one model for other engines, or with other rules left out, have most of them in common; what is left (what to keep,
evaluation beside training) is compiled anew in `planner.compiler`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

from planner.build import build
from planner.differentiate import Epoch, differentiate, mark_gradients
from planner.errors import PlanError
from planner.inference import rename_stages, without_draws
from planner.lower import Forward, insert_collects, lower, lower_columns
from planner.nodes import Dropout, Node, StaticColumn, topological, transform
from planner.optimizer import Firing, Rewritten, optimize
from planner.rules import FORWARD_RULES
from planner.rules.drop_dead_gradients import drop_dead_gradients
from planner.rules.hoist_invariant import Hoisted, hoist_invariant, read_hoisted
from planner.rules.prune_vertices import declined, prune_vertices
from planner.rules.reuse_evaluation import reuse_evaluation
from planner.rules.share_subplans import share_subplans
from planner.spec import Ability, Argument, LossSpec, Ref, Spec, instead
from planner.statistics import Statistics
from planner.steps.edge_dropout import EdgeDropout
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

ON_NODES = frozenset({share_subplans.__name__, *(rule.name for rule in FORWARD_RULES)})
TRAIN, EVALUATE = "train", "evaluate"  # in the names of stages
EVALUATES_AS_WELL = (
    "the training pass evaluates as well, on all vertices, which is estimated to take less than both apart; disable "
    "reuse_evaluation to prune it"
)
NEEDED = frozenset(rule.needs for rule in FORWARD_RULES)

Found = TypeVar("Found")
Held = tuple[tuple[Node, StaticColumn], ...]
"""What is computed once, and the column that holds it."""


@dataclass(frozen=True)
class Trained:
    """What an epoch of training runs, before it is chosen what is kept for backward."""

    forward: Forward
    epoch: Epoch
    reused: bool  # whether it evaluates as well
    unpruned: str | None  # why it runs on all vertices; None where it does not
    dead: int  # columns of gradients that were dropped


class Phases:
    """Of one model.

    Args:
        train: the model traced in training mode.
        evaluate: the same model traced in evaluation mode.
        loss: what is minimised over the training vertices.
    """

    def __init__(self, train: Spec, evaluate: Spec, loss: LossSpec) -> None:
        self.train, self.evaluate, self.loss = train, evaluate, loss
        self._known: dict[tuple[Any, ...], Any] = {}
        self._epochs: dict[tuple[Any, ...], list[Any]] = {}

    def logical(self, weighted: bool) -> tuple[Node, Node | None]:
        """The graphs of training and evaluation as they were written; None: training's, without its dropout.

        Raises:
            PlanError: the model yields something else than the loss is of.
        """
        return self._once(self._built, weighted)

    def _built(self, weighted: bool) -> tuple[Node, Node | None]:
        logical = build(self.train, weighted)
        _check_output(logical, self.loss)
        return logical, None if drops_alone(self.train, self.evaluate) else build(self.evaluate, weighted)

    def rewritten(
        self, graphs: tuple[Node, Node | None], disabled: frozenset[str], abilities: Collection[Ability]
    ) -> tuple[Rewritten, Rewritten]:
        """Both graphs after the rules on nodes. What evaluation leaves undone, nobody asks for.

        Where evaluation is training without its dropout, so is what has been made of training: most is done.
        """
        logical, inferred = graphs
        given = disabled & ON_NODES, frozenset(abilities) & NEEDED
        rewritten = self._once(_optimized, logical, *given, True)
        start = self._once(without_dropout, rewritten.root) if inferred is None else inferred
        if start is rewritten.root:
            return rewritten, rewritten
        return rewritten, self._once(_optimized, start, *given, False)

    def hoisted(self, train: Rewritten, evaluate: Rewritten) -> tuple[Rewritten, Rewritten, Held]:
        """Both graphs, reading what training hoists as static columns, and what these hold."""
        found, inferred = self._once(_hoisted, train.root, evaluate.root)
        firings = tuple(Firing(hoist_invariant.__name__, node, column) for node, column in found.columns.items())
        hoisted = replace(train, root=found.root, firings=(*train.firings, *firings))
        return hoisted, replace(evaluate, root=inferred), tuple(found.held.items())

    def lowered(self, train: Node, evaluate: Node, fuse: bool) -> tuple[Forward, Forward]:
        """Both graphs in stages and steps; where they are the same, or but for dropout, so are those."""
        forward = self._once(_lowered, train, self.loss, TRAIN, fuse)
        return forward, self._once(self._inference, train, evaluate, fuse)

    def _inference(self, train: Node, evaluate: Node, fuse: bool) -> Forward:
        found: Forward | None = None
        if evaluate is train or self._once(without_dropout, train) is evaluate:
            forward = self._once(_lowered, train, self.loss, TRAIN, fuse)
            found = forward if evaluate is train else without_draws(forward)
        return _lowered(evaluate, self.loss, EVALUATE, fuse) if found is None else rename_stages(found, TRAIN, EVALUATE)

    def lowered_columns(self, held: Held, fuse: bool) -> Forward:
        """What makes the columns that are computed once, in stages and steps."""
        return self._once(_lowered_columns, held, fuse)

    def trained(self, forward: Forward, train: Node, evaluate: Node, statistics: Statistics, *rules: bool) -> Trained:
        """The epoch of a forward pass on a graph; `rules` as of `_trained`."""
        # Neither is hashed, for that takes longer than to find by a number; who remembers these two keeps them alive.
        known = self._epochs.setdefault((id(forward), id(statistics), train is evaluate, *rules), [])
        if not known:
            known += _trained(forward, train, evaluate, statistics, *rules), forward, statistics
        found: Trained = known[0]
        return found

    def _once(self, phase: Callable[..., Found], *given: Any) -> Found:
        """What a phase makes of this, and of nothing else."""
        key = (phase, *given)
        if key not in self._known:
            self._known[key] = phase(*given)
        found: Found = self._known[key]
        return found


def drops_alone(train: Spec, evaluate: Spec) -> bool:
    """Whether training differs from evaluation in its dropout alone, call by call."""
    read: dict[str, Argument] = {}  # in place of what has been dropped from, by name
    others = iter(evaluate.calls)
    for call in train.calls:
        if call.op == "aten.dropout.default" and call.reads:
            (x,) = call.reads
            read[call.output] = read.get(x, Ref(x))
            continue
        other = next(others, None)
        if other is None or _but_arguments(other) != _but_arguments(call):
            return False
        given, meant = (call.arguments, call.keywords), (other.arguments, other.keywords)
        # Where they are equal, none is a dropout's output: evaluation has no value of that name.
        if given != meant and instead(given, read) != meant:
            return False
    output = read.get(train.output, Ref(train.output))
    same = output == Ref(evaluate.output) and train.parameters == evaluate.parameters
    return same and next(others, None) is None


_but_arguments = attrgetter("output", "op", "type", "layer", "where")


def without_dropout(root: Node) -> Node:
    """The graph that draws no random numbers."""
    order = topological(root)
    if not any(isinstance(node, (Dropout, EdgeDropout)) for node in order):
        return root
    return transform(root, lambda node: node.x if isinstance(node, (Dropout, EdgeDropout)) else None, order)


def _optimized(root: Node, disabled: frozenset[str], abilities: frozenset[Ability], says_why: bool) -> Rewritten:
    return optimize(root, disabled, abilities, says_why=says_why)


def _hoisted(train: Node, evaluate: Node) -> tuple[Hoisted, Node]:
    found = hoist_invariant(train)
    return found, found.root if evaluate is train else read_hoisted(evaluate, found.held)


def _lowered(root: Node, loss: LossSpec, prefix: str, fuse: bool) -> Forward:
    return lower(insert_collects(root), loss, prefix, fuse)


def _trained(
    forward: Forward,
    train: Node,
    evaluate: Node,
    statistics: Statistics,
    rgb: bool,
    reuses: bool,
    prunes: bool,
    drops: bool,
) -> Trained:
    """Forward with evaluation in it where that is the same, pruned, and with its backward.

    Args:
        forward: stages and steps.
        train: the graph that these are of.
        evaluate: that of evaluation.
        statistics: of the graph.
        rgb: see `differentiate`.
        reuses: whether `reuse_evaluation` is on.
        prunes: whether `prune_vertices` is.
        drops: whether `drop_dead_gradients` is.
    """
    stages = reuse_evaluation(train, evaluate, forward.stages) if reuses else None
    forward = forward if stages is None else replace(forward, stages=stages)
    unpruned = EVALUATES_AS_WELL if stages is not None and pruning_spoils(statistics) else declined(statistics)
    if prunes and unpruned is None:
        forward = replace(forward, steps=prune_vertices(forward.steps, statistics))
    naive = differentiate(forward, rgb)
    steps = drop_dead_gradients(naive.steps, naive.stages) if drops else naive.steps
    run = {step.stage for step in steps if isinstance(step, PipeStep)}
    epoch = Epoch(mark_gradients([stage for stage in naive.stages if stage.name in run], steps), steps)
    return Trained(forward, epoch, stages is not None, unpruned, _columns_made(naive.steps) - _columns_made(steps))


def pruning_spoils(statistics: Statistics) -> bool:
    """Whether a pass that evaluates as well cannot be pruned, where one that trains alone would be."""
    return statistics.targets == "train" and declined(statistics) is None


def _columns_made(steps: Sequence[Step]) -> int:
    return sum(len(step.makes) for step in steps)


def _lowered_columns(held: Held, fuse: bool) -> Forward:
    columns: Mapping[Node, str] = {insert_collects(node): column.name for node, column in held}
    return lower_columns(columns, "prepare", fuse)


def _check_output(root: Node, loss: LossSpec) -> None:
    if root.output.rows != "vertex" or root.output.shape != (loss.outputs,):
        given = f"{root.output.rows} rows of shape {root.output.shape}"
        raise PlanError(f"the model yields {given}; the task {loss.task} needs vertex rows of shape ({loss.outputs},)")
