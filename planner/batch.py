"""Makes one plan for many models. Values that they all compute alike are computed once, and others side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from planner.beside import apart, evaluated_beside
from planner.choices.evaluation import anywhere
from planner.cost.seconds import Pricing, pass_seconds
from planner.differentiate import mark_gradients
from planner.errors import PlanError
from planner.physical import Plan, Stage, of_model
from planner.renaming import rename_plan, rename_stage
from planner.rule import BatchRule
from planner.rules import RULES
from planner.rules.drop_dead_gradients import drop_dead_gradients
from planner.rules.share_models import Stack, alone
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.step import Step
from planner.validate import validate

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """The plan of several models, and the stacks that make it up."""

    plan: Plan
    stacks: tuple[Stack, ...]
    if_shared: float | None = (
        None  # if models do not share steps to save time: how many times as long a training pass would take
    )

    def train(self, evaluated: frozenset[int]) -> tuple[Step, ...]:
        """Return a training pass that also evaluates these models, if their stacks have such a pass.

        Other models of the same stacks are evaluated too.
        """
        return tuple(step for stack in self.stacks for step in stack.training(not evaluated.isdisjoint(stack.models)))

    def evaluate(self, models: frozenset[int]) -> tuple[Step, ...]:
        """Return a pass that evaluates these models, and all other models of their stacks."""
        chosen = [stack for stack in self.stacks if not models.isdisjoint(stack.models)]
        return tuple(step for stack in chosen for step in stack.evaluate)


def compile_batch(plans: Sequence[Plan], share: bool = True) -> Batch:
    """Make one plan for all models of a batch.

    Gradients that reach no parameter are left out, even if the rule drop_dead_gradients is disabled. Otherwise each model
    would make its own gradient of a column that exists once for all models.

    Args:
        plans: The plans of models on one graph, for one engine and one loss. A model's number is its place.
        share: False: models share only the columns that are computed once, as without the rule share_models.

    Raises:
        PlanError: If the plans are for different graphs, engines or losses.
    """
    named = [by_content(_without_dead_gradients(plan)) for plan in plans]
    if len({(plan.levels, plan.targets, plan.source_gradients) for plan in named}) > 1:
        raise PlanError("all models of a batch must be planned for one engine, with the same rules disabled")
    if len({stage.loss for plan in named for stage in plan.stages if stage.loss is not None}) > 1:
        raise PlanError("all models of a batch must have the same loss and the same number of outputs")
    shared = [rule for rule in RULES if share and isinstance(rule, BatchRule)]
    stacks = shared[0].apply(named) if shared else alone(named)
    first = named[0]
    hoisted = _once(column for plan in named for column in plan.hoisted)
    prepare = _once(step for plan in named for step in plan.prepare)
    prepared = {step.stage for step in prepare if isinstance(step, PipeStep)}
    # by name, because equal stages of two models may differ in the source lines of their calls
    stages = {stage.name: stage for plan in reversed(named) for stage in plan.stages if stage.name in prepared}
    plan = replace(
        first,
        stages=(*stages.values(), *(stage for stack in stacks for stage in stack.stages)),
        train=tuple(step for stack in stacks for step in stack.train),
        train_and_evaluate=_both(stacks),
        evaluate=tuple(step for stack in stacks for step in stack.evaluate),
        predict=tuple(step for stack in stacks for step in stack.predict),
        static_columns=_once(column for plan in named for column in plan.static_columns),
        trainable=tuple(of_model(model, name) for model, plan in enumerate(named) for name in plan.trainable),
        prepare=prepare,
        hoisted=hoisted,
        fired=_once(rule for plan in named for rule in plan.fired)
        + tuple(rule.name for rule in shared if len(stacks) < len(named)),
        models=len(named),
    )
    validate(plan)
    return Batch(plan, stacks)


def compile_cheapest(plans: Sequence[Plan], statistics: Statistics, pricing: Pricing) -> Batch:
    """Make one plan for all models of a batch, in which models share steps if that is estimated to take less time.

    Sharing takes more time if the columns of one model fit into the processors' caches, and those of all models together do
    not. The models share all steps that they can, or none.

    Args:
        plans: The plans of the models, as in `compile_batch`.
        statistics: The statistics of the graph.
        pricing: The pricing of the engine. Nothing of it that was learnt on this machine counts.

    Raises:
        PlanError: If the plans are for different graphs, engines or losses.
    """
    shared = compile_batch(plans)
    if len(shared.stacks) == len(plans):
        return shared
    unshared = compile_batch(plans, share=False)
    together, each = (
        pass_seconds(one.plan, one.plan.train, statistics, anywhere(pricing)).seconds for one in (shared, unshared)
    )
    return shared if together <= each else replace(unshared, if_shared=together / each)


def _without_dead_gradients(plan: Plan) -> Plan:
    steps = drop_dead_gradients(plan.train, plan.stages) if plan.train else ()
    if steps == plan.train:
        return plan
    evaluates, plan = bool(plan.train_and_evaluate), apart(plan)
    trained = {step.stage for step in steps if isinstance(step, PipeStep)}
    marked = {stage.name: stage for stage in mark_gradients([s for s in plan.stages if s.name in trained], steps)}
    plan = replace(plan, train=steps, stages=tuple(marked.get(stage.name, stage) for stage in plan.stages))
    return evaluated_beside(plan, shares=False).plan if evaluates else plan


def _both(stacks: Sequence[Stack]) -> tuple[Step, ...]:
    """Return the pass that trains all stacks and evaluates those that can be evaluated meanwhile, or () if none can."""
    if not any(stack.train_and_evaluate for stack in stacks):
        return ()
    return tuple(step for stack in stacks for step in stack.training(True))


def content_names(plan: Plan) -> tuple[dict[str, str], dict[str, str]]:
    """Return names by content for the columns that a plan computes once, and for the stages that make them.

    On one graph, two columns with the same name by content hold the same numbers.

    Returns:
        The new names of columns by their old names, and the new names of stages by their old names.
    """
    names: dict[str, str] = {}
    stages: dict[str, str] = {}

    def to(old: str) -> str:
        return names.get(old, old)

    for step in plan.prepare:
        stage = plan.stage(step.stage) if isinstance(step, PipeStep) else None
        digest = _digest(step.renamed(to), None if stage is None else rename_stage(stage, to))
        names |= {name: _named(name, digest) for name in step.makes}
        if stage is not None:
            stages[stage.name] = _named(stage.name, digest)
    return names, stages


def by_content(plan: Plan) -> Plan:
    """Return the plan with names by content for all that it computes once: see `content_names`."""
    if not plan.prepare:
        return plan
    names, stages = content_names(plan)
    return rename_plan(plan, lambda old: names.get(old, old), lambda old: stages.get(old, old))


def _named(name: str, digest: str) -> str:
    """Return a name by content. An earlier digest in the name is replaced, so naming a plan twice changes nothing."""
    return f"{name.split('#')[0]}#{digest}"


def _digest(step: Step, stage: Stage | None) -> str:
    """Return a digest of what a step computes. It depends neither on the names of its outputs, nor on source lines."""
    own = {*step.makes, *((stage.name,) if stage is not None else ())}

    def to(name: str) -> str:
        return "" if name in own else name

    inside = None
    if stage is not None:
        calls = tuple(replace(call, layer="", where="") for call in stage.calls)
        inside = rename_stage(replace(stage, calls=calls), to, to)
    return hashlib.sha256(repr((step.renamed(to, to), inside)).encode()).hexdigest()[:16]


def _once(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))
