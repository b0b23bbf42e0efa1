"""Where rules fired: those on nodes in the nodes' layers, those on stages and steps in what is found in the finished plan.

A stage goes by its name, and a step on the graph by what it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from planner.compiler import Planned
from planner.labels import ITSELF, layer_of
from planner.nodes import Node, topological
from planner.phases import TRAIN
from planner.physical import Plan, Stage
from planner.rules.choose_physical import choose_physical
from planner.rules.drop_dead_gradients import drop_dead_gradients
from planner.rules.fuse_apply import fuse_apply
from planner.rules.hoist_invariant import hoist_invariant
from planner.rules.hold_sparse import hold_sparse
from planner.rules.keep_or_recompute import keep_or_recompute
from planner.rules.prune_vertices import prune_vertices
from planner.rules.reuse_evaluation import reuse_evaluation
from planner.steps.backward import CONSTANTS
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

MOVED = " (its linear map moved behind the sum)"
SHOWN = 8
"""Places that are named; of more, how many there are."""


def listed(places: Sequence[str]) -> str:
    """Places in words.

    >>> listed(["train.0", "train.1"])
    'train.0, train.1'
    >>> listed([f"train.{number}" for number in range(17)])
    'train.0, train.1, train.2, train.3, train.4, train.5, train.6, train.7 and 9 more'
    """
    more = len(places) - SHOWN
    return ", ".join(places[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def layers(planned: Planned, rule: str) -> list[str]:
    """The layers of the operators that a rule replaced; where none has a name, the model itself."""
    found = (firing.before for firing in planned.rewritten.firings if firing.rule == rule)
    named = dict.fromkeys(node.layer or ITSELF for node in found if hasattr(node, "layer"))
    return list(named) or [ITSELF]


def hoisted(planned: Planned) -> list[str]:
    """The layers whose sums are held, and which of these are of what a linear map read."""
    before = set(topological(planned.unhoisted))
    firings = [firing for firing in planned.rewritten.firings if firing.rule == hoist_invariant.__name__]
    return list(dict.fromkeys(_hoisted(firing.before, firing.before not in before) for firing in firings))


def _hoisted(node: Node, moved: bool) -> str:
    return (layer_of(node) or ITSELF) + MOVED * moved


def fused(planned: Planned) -> list[str]:
    """The stages of training that hold more than one operator on vertices."""
    stages = _stages(planned.plan, _forward(planned.plan))
    return [stage.name for stage in stages if len(stage.on_vertices) > 1]


def pruned(planned: Planned) -> list[str]:
    """For each level, the steps that run within it, and the vertices that it is estimated to hold.

    They are those of training's forward half, from which backward has its levels, and those of evaluation.
    """
    levels: dict[int, list[Step]] = {}
    for step in (*_forward(planned.plan), *planned.plan.evaluate):
        if step.within is not None:
            levels.setdefault(step.within, []).append(step)
    known = planned.statistics
    return [
        f"{listed(_places(steps))} within level {level} (~{known.rows_within(level):,} of {known.vertices:,} vertices)"
        for level, steps in sorted(levels.items())
    ]


def without_gradient(planned: Planned) -> list[str]:
    """The columns that training reads and no trainable parameter is behind, but for those that never have a gradient."""
    plan = planned.plan
    trained: set[str] = set()
    read: dict[str, None] = {}
    for step in _forward(plan):
        if isinstance(step, PipeStep):
            stage = plan.stage(step.stage)
            read |= dict.fromkeys(i.column for i in stage.inputs if i.dtype.startswith("float"))
            trained |= _trained_outputs(stage, trained)
        else:
            read |= dict.fromkeys(step.reads)
            trained |= set(step.makes) if trained.intersection(step.reads) else set()
    return [name for name in read if name not in trained and name not in CONSTANTS]


def _trained_outputs(stage: Stage, trained: set[str]) -> set[str]:
    """The columns that a stage makes of trainable parameters, or of columns that are."""
    behind = {parameter.name for parameter in stage.parameters if parameter.trainable}
    behind |= {i.value for i in stage.inputs if i.column in trained}
    reached = stage.computed_from(behind)
    return {output.column for output in stage.outputs if output.value in reached}


def kept(planned: Planned) -> list[str]:
    """The stages of training that keep something for their backward."""
    return [stage.name for stage in _stages(planned.plan, planned.plan.train) if stage.worth > 0]


def sparse(planned: Planned) -> list[str]:
    """The stages of training and evaluation that read the features sparse."""
    plan = planned.plan
    stages = _stages(plan, (*plan.train, *plan.evaluate))
    return [stage.name for stage in stages if any(i.sparse for i in stage.inputs)]


def reused(planned: Planned) -> list[str]:
    """What of training evaluation does not compute again: all of its forward half, or what evaluation's own steps read."""
    plan = planned.plan
    if not plan.train_and_evaluate:
        return _places(_forward(plan))
    trains = [_is_of_training(step, plan) for step in plan.train_and_evaluate]
    both = list(zip(plan.train_and_evaluate, trains, strict=True))
    needed = {name for step, is_training in both if not is_training for name in step.reads}
    shared: list[Step] = []
    for step, is_training in reversed(both):
        if is_training and needed.intersection(step.makes):
            shared.append(step)
            needed.update(step.reads)
    return _places(shared[::-1]) or ["one pass for both, without common steps"]


def _is_of_training(step: Step, plan: Plan) -> bool:
    """Whether a step of the pass that trains and evaluates is of training: there, a stage may put out more."""
    return step.stage.startswith(f"{TRAIN}.") if isinstance(step, PipeStep) else step in plan.train


def chosen(planned: Planned) -> list[str]:
    """What is not as usual."""
    return [*planned.options.choices, *planned.choices]


PLACES: Mapping[str, Callable[[Planned], list[str]]] = {
    hoist_invariant.__name__: hoisted,
    reuse_evaluation.__name__: reused,
    fuse_apply.__name__: fused,
    prune_vertices.__name__: pruned,
    drop_dead_gradients.__name__: without_gradient,
    keep_or_recompute.__name__: kept,
    hold_sparse.__name__: sparse,
    choose_physical.__name__: chosen,
}
"""Where such a rule fired, if it did; of the others, see `layers`."""


def _forward(plan: Plan) -> tuple[Step, ...]:
    """The steps of training up to the turn, with it."""
    turn = next(at for at, step in enumerate(plan.train) if isinstance(step, PipeStep) and step.mode == "turn")
    return plan.train[: turn + 1]


def _places(steps: Sequence[Step]) -> list[str]:
    """The stages of steps, and what steps on the graph make."""
    return list(dict.fromkeys(step.stage if isinstance(step, PipeStep) else step.makes[0] for step in steps))


def _stages(plan: Plan, steps: Sequence[Step]) -> list[Stage]:
    """The stages that steps run, in their order."""
    names = dict.fromkeys(step.stage for step in steps if isinstance(step, PipeStep))
    return [plan.stage(name) for name in names]
