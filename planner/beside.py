"""Evaluation beside training: one pass that trains, and also evaluates the weights that it starts from.

A *token* identifies the numbers that a column or value holds. Equal tokens mean equal numbers, under any name and in
any pass. A value that depends on random numbers has no token. A value of evaluation has none if training does not
compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from planner.kernels import ACTIVATIONS, VIEWS, is_product
from planner.loss import TARGETS
from planner.physical import Column, Plan, Stage, StageInput, StageOutput
from planner.renaming import rename_stage
from planner.spec import DRAWS, Ref, operator_name
from planner.steps.collect import CollectStep
from planner.steps.edge_step import EdgeStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

BESIDE = "beside"
"""A part of the names of stages and columns that only such a combined pass has."""
Tokens = Mapping[str, str | None]
"""The tokens of values, by name."""
CHEAP = (*ACTIVATIONS, *VIEWS)
"""Operators that take less time to compute again than a column takes to write and read.

A ReLU before a dropout is not held apart either: it lies in the memory of the dropout's output.
"""


@dataclass(frozen=True)
class Beside:
    """A plan with a combined pass, and the differences between that pass and the two passes run one after the other."""

    plan: Plan
    spared: tuple[Step, ...]  # steps of the two passes that the combined pass does without
    instead: tuple[Step, ...]
    exports: bool  # True if some stages of training have more outputs in it


def evaluated_beside(plan: Plan, shares: bool = True, exports: bool = False) -> Beside:
    """Add to a plan a pass that trains and evaluates. It does not compute again what training has computed.

    Evaluation reads training's columns, and each of its steps runs as soon as its inputs are made. With dropout, the
    values before the first dropout are the same in both.

    Args:
        plan: The plan, whose evaluation is another graph than its training.
        shares: If False, evaluation computes everything that it needs itself.
        exports: If True, stages of training also output values from inside them that evaluation needs.
    """
    return _joined(plan, _Trained(plan, shares), exports)


def each_beside(plan: Plan) -> tuple[Beside, ...]:
    """Return the possible plans with such a combined pass.

    If a stage of training has more outputs in the first plan, a second one is returned in which it has not.
    """
    trained = _Trained(plan)
    found = _joined(plan, trained, exports=True)
    return (found, _joined(plan, trained, exports=False)) if found.exports else (found,)


def _joined(plan: Plan, trained: _Trained, exports: bool) -> Beside:
    inside = _Inside({})
    for stage, values in trained.inside if exports else ():
        inside.offer(stage, values)
    rest = _Rest(plan, _Walk(plan, lambda *what: trained.known.get(what)), trained.held, inside)
    for step in plan.evaluate:
        rest.take(step)
    variants = {name: _exporting(plan.stage(name), outputs) for name, outputs in inside.exported.items()}
    training = [_by_variant(step, variants, inside.exported) for step in plan.train]
    steps = tuple(_merged(training, rest.steps, set(trained.static)))
    found = replace(plan, train_and_evaluate=steps, stages=(*plan.stages, *variants.values(), *rest.stages))
    others = [(was, step) for was, step in zip(plan.train, training, strict=True) if step is not was]
    spared = (*rest.spared, *(was for was, _ in others))
    return Beside(found, spared, (*rest.instead, *(step for _, step in others)), bool(others))


def apart(plan: Plan) -> Plan:
    """Return the plan without a combined pass."""
    own = {step.stage for step in plan.train_and_evaluate if isinstance(step, PipeStep)}
    own -= {step.stage for steps in (plan.train, plan.evaluate) for step in steps if isinstance(step, PipeStep)}
    return replace(plan, train_and_evaluate=(), stages=tuple(stage for stage in plan.stages if stage.name not in own))


# --- what is the same -----------------------------------------------------------------------------------------------


class _Walk:
    """A walk over the forward steps of a pass, which finds a token for each value.

    Args:
        plan: The plan with these steps.
        token: A function that returns the token of a description, equal for equal descriptions only.
    """

    def __init__(self, plan: Plan, token: Callable[..., str | None]) -> None:
        self._plan, self._token = plan, token
        self.static = tuple(column.name for column in (*plan.static_columns, *plan.hoisted))
        self.columns = {name: token("static", name) for name in self.static}  # columns and collections
        self._levels: dict[str, int | None] = dict.fromkeys(self.static)

    def take(self, step: Step) -> Tokens:
        """Note the tokens of the values that a step makes.

        Returns:
            The tokens of the values inside the step's stage, by name. A step on the graph has none.
        """
        self._levels |= {column.name: column.within for column in step.columns_made}
        if not isinstance(step, PipeStep):
            self.columns |= dict.fromkeys(step.makes, self._made(step))
            return {}
        stage = self._plan.stage(step.stage)
        values = self._values(stage, step)
        if step.emits:
            self.columns |= {output.column: values[output.value] for output in stage.outputs}
        return values

    def _made(self, step: Step) -> str | None:
        """Return the token of the column or collection that a step on the graph makes."""
        draws = isinstance(step, EdgeStep) and step.DRAWS
        if draws or any(self.columns[name] is None for name in step.reads):
            return None
        return self._token(step.renamed(lambda name: self.columns.get(name) or ""))  # the output has no name yet

    def _values(self, stage: Stage, step: PipeStep) -> Tokens:
        if not any(self.columns[i.column] for i in stage.inputs):  # then no value computed from them has a token
            return dict.fromkeys((call.output for call in stage.calls), None)
        token, level = self._token, step.within
        collections = dict(zip(stage.edge_sets, step.collections, strict=True))
        values = {parameter.name: token("parameter", parameter.name) for parameter in stage.parameters}
        for i in stage.inputs:
            column = self.columns[i.column]
            if column is not None and i.edges is not None:
                column = token("sources", column, self.columns[collections[i.edges]])
            elif column is not None and (i.sparse or self._levels[i.column] != level):
                column = token("rows", column, level, i.sparse)
            values[i.value] = column
        for call in stage.calls:
            has_none = call.op in DRAWS or any(values[name] is None for name in call.reads)
            arguments = None if has_none else _by_token((call.arguments, call.keywords), values)
            values[call.output] = None if has_none else token(call.op, arguments, call.type, level)
        return values


def _by_token(arguments: tuple[Any, ...], values: Tokens) -> tuple[Any, ...]:
    """Return arguments with tokens in place of names. A token begins with a sign that no other string argument has."""
    return tuple(
        values[one.name] if type(one) is Ref else _by_token(one, values) if type(one) is tuple and one else one
        for one in arguments
    )


class _Trained:
    """The values that training computes before its turn, by token.

    Args:
        plan: The plan with the training pass.
        shares: If False, the pass is treated as if it had no steps.
    """

    def __init__(self, plan: Plan, shares: bool = True) -> None:
        self.known: dict[Hashable, str] = {}  # the tokens, by what they describe
        self.inside: list[tuple[Stage, Tokens]] = []  # the tokens of the values inside each stage
        walk = _Walk(plan, lambda *what: self.known.setdefault(what, f"={len(self.known)}"))
        for step in takewhile(lambda step: getattr(step, "mode", "") != "turn", plan.train if shares else ()):
            values = walk.take(step)
            if isinstance(step, PipeStep):
                self.inside.append((plan.stage(step.stage), values))
        self.static = walk.static
        self.held = {token: name for name, token in walk.columns.items() if token is not None}  # and collections


# --- what evaluation takes of training ------------------------------------------------------------------------------


@dataclass
class _Inside:
    """The values inside stages of training, which these stages could output."""

    found: dict[str, tuple[str, StageOutput]]  # by token: the stage and the output it could have
    exported: dict[str, list[StageOutput]] = field(default_factory=dict)  # by stage: the outputs that are needed

    def offer(self, stage: Stage, values: Tokens) -> None:
        """Add the values of a stage that depend on one of its matrix products, by token.

        Any other value takes less time to compute again than a column takes to write and read.
        """
        if not any(values.values()):
            return
        led_to = stage.computed_from(call.output for call in stage.on_vertices if is_product(call))
        for call in stage.on_vertices:
            token = values[call.output]
            if token is not None and call.output in led_to and operator_name(call.op) not in CHEAP:
                column = f"{BESIDE}.{stage.name}.{call.output}"  # evaluation may have another value of the same name
                output = StageOutput(call.output, column, call.type.shape)
                self.found.setdefault(token, (stage.name, output))

    def export(self, token: str) -> str:
        """Make a stage output a value, and return the name of its column."""
        stage, output = self.found[token]
        outputs = self.exported.setdefault(stage, [])
        if output not in outputs:
            outputs.append(output)
        return output.column


def _exporting(stage: Stage, outputs: Sequence[StageOutput]) -> Stage:
    return replace(stage, name=f"{stage.name}.{BESIDE}", outputs=(*stage.outputs, *outputs))


def _by_variant(step: Step, variants: Mapping[str, Stage], exported: Mapping[str, Sequence[StageOutput]]) -> Step:
    """Return a step of training with the variant of its stage that has more outputs, if there is one."""
    if not isinstance(step, PipeStep) or step.stage not in variants:
        return step
    more = [Column(o.column, o.shape, within=step.within) for o in exported[step.stage]] if step.emits else []
    return replace(step, stage=variants[step.stage].name, outputs=(*step.outputs, *more))


class _Rest:
    """The steps of evaluation that a combined pass still has to run."""

    def __init__(self, plan: Plan, walk: _Walk, held: Mapping[str, str], inside: _Inside) -> None:
        self._plan, self._walk, self._held, self._inside = plan, walk, held, inside
        self._names: dict[str, str] = {}  # new names of evaluation's columns and collections
        self._collects = {step.output: step for step in plan.train if isinstance(step, CollectStep)}
        self._collected: dict[str, dict[str, str]] = {}  # by name of a shared collection: its columns' new names
        self.steps: list[Step] = []
        self.stages: list[Stage] = []
        self.spared: list[Step] = []  # replaced steps of evaluation, as they were
        self.instead: list[Step] = []  # steps among `steps` that do a part of a replaced one

    def take(self, step: Step) -> None:
        """Take the next step of evaluation."""
        values = self._walk.take(step)
        tokens = {name: self._walk.columns[name] for name in step.makes}
        found = {name: token for name, token in tokens.items() if token is not None and self._has(token)}
        if tokens and found.keys() == tokens.keys():
            self._names |= {name: self._column(token) for name, token in found.items()}
            if isinstance(step, CollectStep):
                collected = self._collects[self._names[step.output]].columns
                self._collected[step.output] = dict(zip(step.columns, collected, strict=True))
            self.spared.append(step)
            return
        # Some of the step's columns may be training's. They are then not made here, and collections of them can be
        # shared too.
        self._names |= {name: self._column(found[name]) if name in found else f"{BESIDE}.{name}" for name in tokens}
        if isinstance(step, PipeStep):
            self._pipe(step, values, found.keys())
        else:
            self.steps.append(step.renamed(self._name))

    def _has(self, token: str) -> bool:
        """Return True if training computes the value with this token."""
        return token in self._held or token in self._inside.found

    def _column(self, token: str) -> str:
        """Return the name of training's column or collection with this token."""
        return self._held[token] if token in self._held else self._inside.export(token)

    def _name(self, name: str) -> str:
        return self._names.get(name, name)

    def _pipe(self, step: PipeStep, values: Tokens, made: Collection[str]) -> None:
        """Add a run of a stage, without the columns that training has `made`."""
        whole = self._plan.stage(step.stage)
        stage = replace(whole, outputs=tuple(o for o in whole.outputs if o.column not in made)) if made else whole
        taken: list[StageInput] = []
        if not stage.edge_sets and any(values.values()):
            stage, taken = self._cut(stage, values)
        rest = rename_stage(stage, self._name, lambda name: f"{name}.{BESIDE}")
        if taken or step.collections:
            collected = {
                edges: self._collected.get(name, {})
                for edges, name in zip(stage.edge_sets, step.collections, strict=True)
            }
            inputs = [
                new if old.edges is None else replace(new, column=collected[old.edges].get(old.column, new.column))
                for old, new in zip(stage.inputs, rest.inputs, strict=True)
            ]
            rest = replace(rest, inputs=(*inputs, *taken))
        columns = [i.column for i in rest.inputs if i.role != "source"]
        targets = [name for name in TARGETS if name in step.inputs]
        outputs = tuple(column for column in step.outputs if column.name not in made)
        renamed = replace(step, inputs=(), outputs=outputs).renamed(self._name, lambda _: rest.name)
        renamed = replace(renamed, inputs=(*columns, *targets))
        self.stages.append(rest)
        self.steps.append(renamed)
        if taken or made:
            self.spared.append(step)
            self.instead.append(renamed)

    def _cut(self, stage: Stage, values: Tokens) -> tuple[Stage, list[StageInput]]:
        """Return a stage without the calls whose values training has, and the inputs through which it reads those values."""
        needed = {output.value for output in stage.outputs}
        calls, taken = [], []
        for call in reversed(stage.calls):
            if call.output not in needed:
                continue
            token = values[call.output]
            if token is not None and call.type.rows == "vertex" and self._has(token):
                taken.append(StageInput(call.output, self._column(token), call.type.shape, dtype=call.type.dtype))
                continue
            calls.append(call)
            needed.update(call.reads)
        inputs = tuple(i for i in stage.inputs if i.value in needed)
        parameters = tuple(parameter for parameter in stage.parameters if parameter.name in needed)
        return replace(stage, inputs=inputs, parameters=parameters, calls=tuple(reversed(calls))), taken


def _merged(training: Sequence[Step], evaluation: Sequence[Step], there: set[str]) -> Iterator[Step]:
    """Yield the steps of both, each in their own order.

    A step of evaluation runs as early as it can, so that columns are freed soon.
    """
    waiting = list(reversed(evaluation))
    there |= set(TARGETS)
    for step in training:
        while waiting and there.issuperset(waiting[-1].reads):
            there.update(waiting[-1].makes)
            yield waiting.pop()
        there.update(step.makes)
        yield step
    yield from reversed(waiting)
