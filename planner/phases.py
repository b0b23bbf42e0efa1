"""The functions with which the phases of planning begin. Each adds to the draft of the phase before."""

from __future__ import annotations

from dataclasses import replace

from planner.build import build
from planner.collects import insert_collects
from planner.differentiate import differentiate, marked
from planner.draft import EVALUATE, PREPARE, TRAIN, Draft, Model
from planner.errors import PlanError
from planner.loss import LossSpec
from planner.lower import OUTPUT, Forward, cut, cut_columns, lower, lower_columns, static_columns
from planner.nodes import Dropout, Node, transform
from planner.options import Options
from planner.physical import Column, Plan
from planner.statistics import Statistics
from planner.steps.edge_dropout import EdgeDropout
from planner.steps.learned_rows import LearnedRowsGradientStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step
from planner.turning import turned


def begin(model: Model, statistics: Statistics, options: Options) -> Draft:
    """Begin phase "logical" with the graphs of training and evaluation as they were written.

    Raises:
        PlanError: If the model does not yield the output that the loss needs.
    """
    logical = build(model.train, statistics.weighted)
    _check_output(logical, model.loss)
    is_alike = model.evaluate == model.train.without_dropout()
    evaluate = logical if is_alike else build(model.evaluate, statistics.weighted)
    return Draft(model, statistics, options, logical=logical, train=logical, evaluate=evaluate)


def _check_output(root: Node, loss: LossSpec) -> None:
    if root.output.rows != "vertex" or root.output.shape != (loss.row_width,):
        given = f"{root.output.rows} rows of shape {root.output.shape}"
        raise PlanError(
            f"the model yields {given}; the task {loss.task} needs vertex rows of shape ({loss.row_width},)"
        )


def without_dropout(root: Node) -> Node:
    """Return the graph without its random draws: what reads a dropout reads what the dropout read."""
    return transform(root, lambda node: node.x if isinstance(node, (Dropout, EdgeDropout)) else None)


def remember(draft: Draft) -> Draft:
    """Begin phase "rewritten", whose rules look at both graphs. Remember the graph of training as it was before."""
    return replace(draft, unhoisted=draft.train)


def cut_apart(draft: Draft) -> Draft:
    """Begin phase "stages": insert collections into the graphs, and give each operator of the DL Engine a stage."""
    cuts = {TRAIN: cut(insert_collects(draft.train))}
    cuts[EVALUATE] = cuts[TRAIN] if draft.evaluate is draft.train else cut(insert_collects(draft.evaluate))
    cuts[PREPARE] = cut_columns({insert_collects(node): column.name for node, column in draft.held.items()}, PREPARE)
    return replace(draft, cuts=cuts)


def lower_cuts(draft: Draft) -> Draft:
    """Begin phase "steps" with the stages of each graph and the steps of the forward passes."""
    loss = draft.model.loss
    forward, inference = (lower(draft.cuts[name], loss, name) for name in (TRAIN, EVALUATE))
    predict = _predicting(inference.steps, loss)
    return replace(
        draft,
        forward=_counting_all(forward) if draft.evaluates_as_well else forward,
        inference=Forward(inference.stages, predict if loss.of_pairs else _evaluating(inference.steps)),
        predict=predict,
        once=lower_columns(draft.cuts[PREPARE], PREPARE),
    )


def _counting_all(forward: Forward) -> Forward:
    """Return the pass with a last stage that counts the metrics of all splits, and not of the training split alone."""
    *others, last = forward.stages
    return replace(forward, stages=(*others, replace(last, counts="all")))


def _evaluating(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps of a forward pass with a last step that yields metrics."""
    return (*steps[:-1], replace(_last(steps), mode="evaluate"))


def _predicting(steps: tuple[Step, ...], loss: LossSpec) -> tuple[Step, ...]:
    """Return the steps of a forward pass with a last step that yields the model's output. They score no pairs."""
    steps = steps[:-1] if loss.of_pairs else steps
    last = _last(steps)
    inputs = tuple(name for name in last.inputs if name not in loss.targets)
    output = Column(OUTPUT, (loss.row_width,))
    return (*steps[:-1], replace(last, mode="predict", inputs=inputs, outputs=(output,)))


def _last(steps: tuple[Step, ...]) -> PipeStep:
    last = steps[-1]
    assert isinstance(last, PipeStep)  # the last step runs the last stage, see planner.lower
    return last


def add_backward(draft: Draft) -> Draft:
    """Begin phase "epoch" with the steps of a training epoch, forward and backward."""
    naive = differentiate(draft.forward, draft.options.rgb)
    return replace(draft, naive=naive, epoch=marked(naive))


def assemble(draft: Draft) -> Draft:
    """Begin phase "plan" with the passes of an epoch as a plan, in which hoisted columns still count as the graph's."""
    epoch, inference = draft.epoch, draft.inference
    # batches train by the plan of a batch, and are evaluated by another plan, on the whole graph
    trains, evaluates = draft.is_batch or draft.options.sampling is None, not draft.is_batch
    trainable = [parameter.name for stage in epoch.stages for parameter in stage.parameters if parameter.trainable]
    trainable += [step.parameter for step in epoch.steps if isinstance(step, LearnedRowsGradientStep)]
    roots = (*[draft.train] * trains, *[draft.evaluate] * evaluates)
    columns = {column.name: column for root in roots for column in static_columns(root)}
    labels = [Column("label", (), static=True), Column("split", (), "int8", static=True)]
    labels += [Column("vertex_weight", (1,), static=True)] * draft.model.loss.vertex_weights
    plan = Plan(
        stages=(*(epoch.stages if trains else ()), *(inference.stages if evaluates else ())),
        train=turned(epoch.steps) if trains else (),
        evaluate=turned(inference.steps) if evaluates else (),
        predict=turned(draft.predict) if evaluates else (),
        static_columns=(*columns.values(), *labels),
        trainable=tuple(dict.fromkeys(trainable)) if trains else (),
        source_gradients="summed" if draft.options.rgb else "per_edge",
        levels=draft.levels,
        targets=draft.statistics.targets,
    )
    return replace(draft, plan=plan)


def complete(draft: Draft) -> Draft:
    """Begin phase "physical": add the steps that make hoisted columns to the plan."""
    plan, held = draft.plan, draft.held
    hoisted = tuple(Column(c.name, c.output.shape, c.output.dtype, static=True) for c in held.values())
    made = set(hoisted)
    own = {column.name: column for column in plan.static_columns if column not in made}
    own |= {column.name: column for node in held for column in static_columns(node)}
    plan = replace(
        plan,
        stages=(*draft.once.stages, *plan.stages),
        static_columns=tuple(own.values()),
        prepare=turned(draft.once.steps),
        hoisted=hoisted,
    )
    return replace(draft, plan=plan)
