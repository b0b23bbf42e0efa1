"""The phases of planning: what each makes of the draft of the one before, and then hands to its rules."""

from __future__ import annotations

from dataclasses import replace

from planner.build import build
from planner.collects import insert_collects
from planner.differentiate import differentiate, marked
from planner.draft import EVALUATE, PREPARE, TRAIN, Draft, Model
from planner.errors import PlanError
from planner.lower import OUTPUT, Forward, cut, cut_columns, lower, lower_columns, static_columns
from planner.nodes import Node
from planner.options import Options
from planner.physical import Column, Plan
from planner.spec import LossSpec
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.step import Step


def begin(model: Model, statistics: Statistics, options: Options) -> Draft:
    """Phase "logical": the graphs of training and evaluation as they were written.

    Raises:
        PlanError: the model yields something else than the loss is of.
    """
    logical = build(model.train, statistics.weighted)
    _check_output(logical, model.loss)
    evaluate = logical if model.evaluate == model.train else build(model.evaluate, statistics.weighted)
    return Draft(model, statistics, options, logical=logical, train=logical, evaluate=evaluate)


def _check_output(root: Node, loss: LossSpec) -> None:
    if root.output.rows != "vertex" or root.output.shape != (loss.outputs,):
        given = f"{root.output.rows} rows of shape {root.output.shape}"
        raise PlanError(f"the model yields {given}; the task {loss.task} needs vertex rows of shape ({loss.outputs},)")


def remember(draft: Draft) -> Draft:
    """Phase "rewritten": both graphs as rules on single nodes leave them, before rules look at both."""
    return replace(draft, unhoisted=draft.train)


def cut_apart(draft: Draft) -> Draft:
    """Phase "stages": the graphs with their collections, and a stage for each operator of the DL Engine."""
    cuts = {TRAIN: cut(insert_collects(draft.train))}
    cuts[EVALUATE] = cuts[TRAIN] if draft.evaluate is draft.train else cut(insert_collects(draft.evaluate))
    cuts[PREPARE] = cut_columns({insert_collects(node): column.name for node, column in draft.held.items()}, PREPARE)
    return replace(draft, cuts=cuts)


def lower_cuts(draft: Draft) -> Draft:
    """Phase "steps": the stages of each graph, and the steps of forward passes."""
    loss = draft.model.loss
    forward, inference = (lower(draft.cuts[name], loss, name) for name in (TRAIN, EVALUATE))
    return replace(
        draft,
        forward=_counting_all(forward) if draft.evaluates_as_well else forward,
        inference=Forward(inference.stages, _evaluating(inference.steps)),
        predict=_predicting(inference.steps, loss),
        once=lower_columns(draft.cuts[PREPARE], PREPARE),
    )


def _counting_all(forward: Forward) -> Forward:
    """The pass, the last stage of which counts the metrics of all splits, not of the training vertices alone."""
    *others, last = forward.stages
    return replace(forward, stages=(*others, replace(last, counts="all")))


def _evaluating(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """A forward pass that ends in metrics."""
    return (*steps[:-1], replace(_last(steps), mode="evaluate"))


def _predicting(steps: tuple[Step, ...], loss: LossSpec) -> tuple[Step, ...]:
    """A forward pass that ends in the model's output."""
    last = _last(steps)
    inputs = tuple(name for name in last.inputs if name not in ("label", "split"))
    output = Column(OUTPUT, (loss.outputs,))
    return (*steps[:-1], replace(last, mode="predict", inputs=inputs, outputs=(output,)))


def _last(steps: tuple[Step, ...]) -> PipeStep:
    last = steps[-1]
    assert isinstance(last, PipeStep)  # the last stage, see planner.lower
    return last


def add_backward(draft: Draft) -> Draft:
    """Phase "epoch": the steps of an epoch of training, forward and backward."""
    naive = differentiate(draft.forward, draft.options.rgb)
    return replace(draft, naive=naive, epoch=marked(naive))


def assemble(draft: Draft) -> Draft:
    """Phase "plan": the passes of an epoch as a plan, which takes hoisted columns for the graph's own."""
    epoch, inference = draft.epoch, draft.inference
    trainable = [parameter.name for stage in epoch.stages for parameter in stage.parameters if parameter.trainable]
    columns = {column.name: column for root in (draft.train, draft.evaluate) for column in static_columns(root)}
    labels = (Column("label", (), static=True), Column("split", (), "int8", static=True))
    plan = Plan(
        stages=(*epoch.stages, *inference.stages),
        train=epoch.steps,
        evaluate=inference.steps,
        predict=draft.predict,
        static_columns=(*columns.values(), *labels),
        trainable=tuple(dict.fromkeys(trainable)),
        source_gradients="summed" if draft.options.rgb else "per_edge",
        levels=draft.levels,
        targets=draft.statistics.targets,
    )
    return replace(draft, plan=plan)


def complete(draft: Draft) -> Draft:
    """Phase "physical": the plan with the steps that make hoisted columns."""
    plan, held = draft.plan, draft.held
    hoisted = tuple(Column(c.name, c.output.shape, c.output.dtype, static=True) for c in held.values())
    own = {column.name: column for column in plan.static_columns if column not in hoisted}
    own |= {column.name: column for node in held for column in static_columns(node)}
    plan = replace(
        plan,
        stages=(*draft.once.stages, *plan.stages),
        static_columns=tuple(own.values()),
        prepare=draft.once.steps,
        hoisted=hoisted,
    )
    return replace(draft, plan=plan)
