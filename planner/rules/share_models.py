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
from planner.spec import DRAWS
from planner.steps.collect import CollectStep
from planner.steps.edge_step import EdgeStep
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep, learned_parameters
from planner.steps.pipe import Gradients, PipeStep
from planner.steps.step import ColumnStep, Step


@dataclass(frozen=True)
class Stack:
    """One plan for models whose plans have the same steps. It has no prepare pass, but reads the columns that one makes."""

    models: tuple[int, ...]  # the numbers of its models in the batch
    stages: tuple[Stage, ...]
    train: tuple[Step, ...]
    train_and_evaluate: tuple[Step, ...]
    evaluate: tuple[Step, ...]
    predict: tuple[Step, ...]

    def training(self, evaluates: bool) -> tuple[Step, ...]:
        """Return the training pass, or the pass that also evaluates, as `Plan.training` does."""
        return self.train_and_evaluate if evaluates and self.train_and_evaluate else self.train


def share_models(plans: Mapping[int, Plan], models: int) -> Stack:
    """A sum over edges of rows side by side = the sums side by side, so rows of several models are summed together.

    The same holds for all operators that treat each number of a row by itself, and for attention over the heads of all
    models. A stage runs a part for each model. Values that all models compute alike, from the graph alone, exist once.

    Args:
        plans: The plans, which are `alike`, by their models' numbers in the batch.
        models: The number of models in the batch.

    Raises:
        PlanError: If a step on edges reads columns of the models together with a column that all models share.
    """
    return _Stacking(plans, models).stack()


def alike(plan: Plan) -> Hashable:
    """Return a key that is equal for plans that can be stacked.

    It leaves out the widths of columns and the calls inside stages. Steps on edges are the exception: the key has the
    shapes of the columns that they read, because all heads in a row must be equally long.
    """
    steps = tuple(tuple(_form(step, plan.columns) for step in steps) for steps in plan.passes[1:])
    return steps, tuple(map(_interface, plan.stages)), plan.levels, plan.source_gradients


def draws_on_edges(plan: Plan) -> bool:
    """Return True if a step on edges of the training pass draws random numbers. Each model has random numbers of its own."""
    return any(isinstance(step, EdgeStep) and step.DRAWS for step in plan.train)


def _form(step: Step, columns: Mapping[str, Column]) -> Hashable:
    match step:
        case EdgeStep():
            return step, tuple(columns[name].shape for name in step.columns)
        case PipeStep():
            return replace(step, outputs=tuple(map(_shapeless, step.outputs)), gradients=_places(step))
        case CollectStep() | LearnedRowsGradientStep():
            return step
    assert isinstance(step, ColumnStep)  # all others are above
    return step.side_by_side(_shapeless(step.output), 0)


def _places(step: PipeStep) -> tuple[Gradients, ...]:
    """Return the gradients of a step without the names of values, which may differ between models."""
    return tuple(Gradients("", gradient.columns) for gradient in step.gradients)


def _shapeless(column: Column) -> Column:
    return replace(column, shape=())


def _interface(stage: Stage) -> Hashable:
    inputs = tuple(replace(i, value="", shape=()) for i in stage.inputs)
    outputs = tuple(replace(o, value="", shape=()) for o in stage.outputs)
    return stage.name, inputs, outputs, stage.loss, stage.edge_sets, stage.counts


class _Stacking:
    """The making of one plan from plans with the same steps."""

    def __init__(self, plans: Mapping[int, Plan], models: int) -> None:
        self._plans, self._models = plans, models
        self._first = next(iter(plans.values()))
        self._stages = {name: [plan.stage(name) for plan in plans.values()] for name in _run(self._first)}
        # columns and collections of the pass at hand that are the same for all models
        self._alike: set[str] = set()
        self._read_once: dict[str, set[str]] = {}  # columns among these that a stage reads, by stage
        self._once: set[str] = set()  # stages that run once for all models

    def stack(self) -> Stack:
        passes = zip(*(plan.passes[1:] for plan in self._plans.values()), strict=True)
        made = [self._pass(steps) for steps in passes]
        return Stack(tuple(self._plans), tuple(map(self._stage, self._stages)), *made)

    def _pass(self, passes: Sequence[tuple[Step, ...]]) -> tuple[Step, ...]:
        """Return one pass for all models.

        The search for columns that are the same begins anew in each pass, because passes share names. A column may differ
        between models in training, which draws random numbers, and be the same in evaluation.
        """
        self._alike = {column.name for column in (*self._first.static_columns, *self._first.hoisted)}
        for step in passes[0]:
            self._find_alike(step)
        return tuple(map(self._step, zip(*passes, strict=True)))

    def _find_alike(self, step: Step) -> None:
        """Note the columns that a step makes, if they are the same for all models."""
        if isinstance(step, LearnedRowsStep):
            return
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
            case LearnedRowsGradientStep():
                return first.of_model(next(iter(self._plans)))
        (output,) = map(self._column, zip(*(step.columns_made for step in steps), strict=True))
        assert isinstance(first, ColumnStep)  # all others are above
        return first.side_by_side(output, next(iter(self._plans)))

    def _column(self, columns: Sequence[Column]) -> Column:
        """Return one column for the columns of all models."""
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
    """Return True if stages of several models compute the same from the same inputs."""
    first, *others = map(_inside, stages)
    draws = any(call.op in DRAWS for call in first.calls)
    return not (first.parameters or first.loss or draws) and all(other == first for other in others)


def _inside(stage: Stage) -> Stage:
    """Return a stage without the layers and source lines of its calls, which do not change what it computes."""
    return replace(stage, calls=tuple(replace(call, layer="", where="") for call in stage.calls))


def _run(plan: Plan) -> list[str]:
    """Return the names of the stages that passes after `prepare` run, in the plan's order."""
    steps = chain.from_iterable(plan.passes[1:])
    run = {step.stage for step in steps if isinstance(step, PipeStep)}
    return [stage.name for stage in plan.stages if stage.name in run]


# --- the rule --------------------------------------------------------------------------------------------------------


def stacked(plans: Sequence[Plan]) -> tuple[Stack, ...]:
    """Return the stacks of a batch, in which plans with the same steps are one."""
    groups: dict[Hashable, dict[int, Plan]] = {}
    for model, plan in enumerate(plans):
        own = draws_on_edges(plan) or bool(learned_parameters(plan))  # learned rows belong to one model
        groups.setdefault(model if own else alike(apart(plan)), {})[model] = plan
    return _of_groups(list(groups.values()), len(plans))


def alone(plans: Sequence[Plan]) -> tuple[Stack, ...]:
    """Return the stacks of a batch, with one plan in each."""
    return _of_groups([{model: plan} for model, plan in enumerate(plans)], len(plans))


def _of_groups(groups: Sequence[dict[int, Plan]], models: int) -> tuple[Stack, ...]:
    found: list[Stack] = []
    for group in map(_agreed, groups):
        found += _stacked(group, models, len(found) if len(groups) > 1 else None)
    return tuple(found)


def _agreed(group: dict[int, Plan]) -> dict[int, Plan]:
    """Return plans that are alike in all passes, given plans whose training and evaluation are alike.

    If their passes that train and evaluate differ, they get new ones, in which evaluation takes nothing from training.
    """
    if len({alike(plan) for plan in group.values()}) == 1:
        return group
    return {model: evaluated_beside(apart(plan), shares=False).plan for model, plan in group.items()}


def _stacked(group: Mapping[int, Plan], models: int, number: int | None) -> list[Stack]:
    """Return a group as one stack, or each of its models as a stack if models cannot share a step."""
    try:
        return [share_models(_prefixed(group, "" if number is None else f"{number}/"), models)]
    except PlanError:
        alone = ({model: plan} for model, plan in group.items())
        return [share_models(_prefixed(one, f"model {model}/"), models) for one in alone for model in one]


def _prefixed(group: Mapping[int, Plan], prefix: str) -> dict[int, Plan]:
    """Return the plans with a prefix before the names of their columns and stages, so that stacks have different names.

    Columns that the prepare pass makes keep their names.
    """

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
    idle="there is one model; those of a batch share steps if that is estimated to take less time",
)
