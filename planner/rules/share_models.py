"""Run the graph steps of models that are trained together as one."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from planner.beside import apart, evaluated_beside
from planner.errors import PlanError
from planner.physical import Column, Part, Plan, Stage, StageInput, StageOutput, of_model
from planner.renaming import rename_plan
from planner.rule import BatchRule
from planner.steps.collect import CollectStep
from planner.steps.edge_step import EdgeStep
from planner.steps.pipe import Gradients, PipeStep
from planner.steps.step import ColumnStep, Step


@dataclass(frozen=True)
class Stack:
    """Models whose plans have the same steps, as one: but for its prepare pass, of which it knows the columns alone."""

    models: tuple[int, ...]  # their numbers in the batch
    stages: tuple[Stage, ...]
    train: tuple[Step, ...]
    train_and_evaluate: tuple[Step, ...]
    evaluate: tuple[Step, ...]
    predict: tuple[Step, ...]

    def training(self, evaluates: bool) -> tuple[Step, ...]:
        """See `Plan.training`."""
        return self.train_and_evaluate if evaluates and self.train_and_evaluate else self.train


def share_models(plans: Mapping[int, Plan], models: int) -> Stack:
    """A sum over edges of rows side by side = the sums side by side: models move and are summed together.

    So it is with all operators that take each number of a row by itself, and with attention, whose heads are those of all
    models. Stages run each model's own part. What no model makes differently, from the graph alone, is there once.

    Args:
        plans: of the same steps, see `alike`, by the models' numbers.
        models: in the batch.

    Raises:
        PlanError: a step on edges reads what models make beside what none does.
    """
    return _Stacking(plans, models).stack()


def alike(plan: Plan) -> Hashable:
    """What plans that can be stacked have in common: everything but how wide columns are, and what stages do inside.

    Steps that read edges must agree in widths too, for runs of numbers that belong together are equally long in a row.
    """
    steps = tuple(tuple(_form(step, plan.columns) for step in steps) for steps in plan.passes[1:])
    return steps, tuple(map(_interface, plan.stages)), plan.levels, plan.source_gradients


def draws_on_edges(plan: Plan) -> bool:
    """Whether a step draws random numbers, which each model has of its own."""
    return any(isinstance(step, EdgeStep) and step.DRAWS for step in plan.train)


def _form(step: Step, columns: Mapping[str, Column]) -> Hashable:
    match step:
        case EdgeStep():
            return step, tuple(columns[name].shape for name in step.columns)
        case PipeStep():
            return replace(step, outputs=tuple(map(_shapeless, step.outputs)), gradients=_places(step))
        case CollectStep():
            return step
    assert isinstance(step, ColumnStep)  # all others are above
    return step.side_by_side(_shapeless(step.output), 0)


def _places(step: PipeStep) -> tuple[Gradients, ...]:
    """Gradients without the names of values, which are a stage's own."""
    return tuple(Gradients("", gradient.columns) for gradient in step.gradients)


def _shapeless(column: Column) -> Column:
    return replace(column, shape=())


def _interface(stage: Stage) -> Hashable:
    inputs = tuple(replace(i, value="", shape=()) for i in stage.inputs)
    outputs = tuple(replace(o, value="", shape=()) for o in stage.outputs)
    return stage.name, inputs, outputs, stage.loss, stage.edge_sets, stage.counts


class _Stacking:
    """Plans of the same steps, being made one."""

    def __init__(self, plans: Mapping[int, Plan], models: int) -> None:
        self._plans, self._models = plans, models
        self._first = next(iter(plans.values()))
        self._stages = {name: [plan.stage(name) for plan in plans.values()] for name in _run(self._first)}
        # columns and collections of a pass that are the same for all models
        self._alike: set[str] = set()
        self._read_once: dict[str, set[str]] = {}  # those of them that stages read, by stage
        self._once: set[str] = set()  # stages that run once for all

    def stack(self) -> Stack:
        passes = zip(*(plan.passes[1:] for plan in self._plans.values()), strict=True)
        made = [self._pass(steps) for steps in passes]
        return Stack(tuple(self._plans), tuple(map(self._stage, self._stages)), *made)

    def _pass(self, passes: Sequence[tuple[Step, ...]]) -> tuple[Step, ...]:
        """One pass of all models. What it makes may be called as what another makes: training draws, evaluation does not."""
        self._alike = {column.name for column in (*self._first.static_columns, *self._first.hoisted)}
        for step in passes[0]:
            self._find_alike(step)
        return tuple(map(self._step, zip(*passes, strict=True)))

    def _find_alike(self, step: Step) -> None:
        """Note what a step makes, if no model makes it differently."""
        if isinstance(step, PipeStep):
            columns = {i.column for i in self._stages[step.stage][0].inputs}
            self._read_once.setdefault(step.stage, self._alike & columns)
        if not self._alike.issuperset(step.reads):
            if len(self._plans) > 1 and isinstance(step, EdgeStep) and not self._alike.isdisjoint(step.columns):
                raise PlanError(f"step {step} reads columns of models beside one of the graph: models cannot share it")
            return
        if isinstance(step, PipeStep) and step.emits and _are_one(self._stages[step.stage]):
            self._once.add(step.stage)
        if not isinstance(step, PipeStep) or step.stage in self._once:
            self._alike.update(step.makes)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _step(self, steps: tuple[Step, ...]) -> Step:
        first = steps[0]
        match first:
            case CollectStep():
                return first
            case PipeStep():
                outputs = zip(*(step.columns_made for step in steps), strict=True)
                return replace(first, outputs=tuple(map(self._column, outputs)))
        (output,) = map(self._column, zip(*(step.columns_made for step in steps), strict=True))
        assert isinstance(first, ColumnStep)  # all others are above
        return first.side_by_side(output, next(iter(self._plans)))

    def _column(self, columns: Sequence[Column]) -> Column:
        """The columns of all models as one."""
        first = columns[0]
        if first.name in self._alike or len(columns) == 1:
            return first
        return replace(first, shape=(sum(column.width for column in columns),))

    # -- stages ------------------------------------------------------------------------------------------------------

    def _stage(self, name: str) -> Stage:
        stages = self._stages[name]
        first = stages[0]
        if name in self._once:
            return first
        parts = tuple(Part(model, stage) for model, stage in zip(self._plans, stages, strict=True))
        owned = ((part.model, parameter) for part in parts for parameter in part.stage.parameters)
        return replace(
            first,
            inputs=tuple(self._input(name, inputs) for inputs in zip(*(stage.inputs for stage in stages), strict=True)),
            parameters=tuple(replace(parameter, name=of_model(model, parameter.name)) for model, parameter in owned),
            calls=(),
            outputs=tuple(map(_output, zip(*(stage.outputs for stage in stages), strict=True))),
            overflow="file" if all(stage.overflow == "file" for stage in stages) else "recompute",
            worth=min(stage.worth for stage in stages),
            parts=parts,
            models=self._models,
        )

    def _input(self, stage: str, inputs: Sequence[StageInput]) -> StageInput:
        first = inputs[0]
        if first.column in self._read_once[stage] or len(inputs) == 1:
            return first
        return replace(first, shape=(sum(i.width for i in inputs),))


def _output(outputs: Sequence[StageOutput]) -> StageOutput:
    first = outputs[0]
    return first if len(outputs) == 1 else replace(first, shape=(sum(o.width for o in outputs),))


def _are_one(stages: Sequence[Stage]) -> bool:
    """Whether stages of the same inputs compute the same, whatever the model."""
    first, *others = map(_inside, stages)
    draws = any(call.op == "lotan.dropout" for call in first.calls)
    return not (first.parameters or first.loss or draws) and all(other == first for other in others)


def _inside(stage: Stage) -> Stage:
    """Without what does not matter to what it computes."""
    return replace(stage, calls=tuple(replace(call, layer="", where="") for call in stage.calls))


def _run(plan: Plan) -> list[str]:
    """The stages that the passes of an epoch run, by name."""
    steps = chain.from_iterable(plan.passes[1:])
    run = {step.stage for step in steps if isinstance(step, PipeStep)}
    return [stage.name for stage in plan.stages if stage.name in run]


# --- the rule --------------------------------------------------------------------------------------------------------


def stacked(plans: Sequence[Plan]) -> tuple[Stack, ...]:
    """The plans of a batch, those with the same steps as one."""
    groups: dict[Hashable, dict[int, Plan]] = {}
    for model, plan in enumerate(plans):
        groups.setdefault(model if draws_on_edges(plan) else alike(apart(plan)), {})[model] = plan
    return _of_groups(list(groups.values()), len(plans))


def alone(plans: Sequence[Plan]) -> tuple[Stack, ...]:
    """The plans of a batch, each by itself."""
    return _of_groups([{model: plan} for model, plan in enumerate(plans)], len(plans))


def _of_groups(groups: Sequence[dict[int, Plan]], models: int) -> tuple[Stack, ...]:
    found: list[Stack] = []
    for group in map(_agreed, groups):
        found += _stacked(group, models, len(found) if len(groups) > 1 else None)
    return tuple(found)


def _agreed(group: dict[int, Plan]) -> dict[int, Plan]:
    """Plans of the same training and evaluation, whose passes with both are alike too: else nothing is shared in those."""
    if len({alike(plan) for plan in group.values()}) == 1:
        return group
    return {model: evaluated_beside(apart(plan), shares=False).plan for model, plan in group.items()}


def _stacked(group: Mapping[int, Plan], models: int, number: int | None) -> list[Stack]:
    """A group as one stack, or where that cannot be, each model by itself."""
    try:
        return [share_models(_prefixed(group, "" if number is None else f"{number}/"), models)]
    except PlanError:
        alone = ({model: plan} for model, plan in group.items())
        return [share_models(_prefixed(one, f"model {model}/"), models) for one in alone for model in one]


def _prefixed(group: Mapping[int, Plan], prefix: str) -> dict[int, Plan]:
    """Plans whose own columns and stages have names that no other stack has."""

    def name(old: str) -> str:
        return prefix + old

    def column(old: str, hoisted: Container[str]) -> str:
        return old if old in hoisted else name(old)

    found = {}
    for model, plan in group.items():
        kept = {made for step in plan.prepare for made in step.makes}
        found[model] = rename_plan(plan, partial(column, hoisted=kept), name)
    return found


RULE = BatchRule(
    name="share_models",
    apply=stacked,
    count=lambda _: 0,
    idle="there is one model; those of a batch share its steps",
)
