"""Evaluation beside training: one walk over steps that trains, and evaluates the weights it starts from.

What columns and values are is told by *tokens*: equal ones are the same numbers, by whatever names and in whichever pass.
What depends on random numbers has none, nor has in evaluation what training does not compute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from planner.kernels import ACTIVATIONS, VIEWS, is_product
from planner.physical import Column, Plan, Stage, StageInput, StageOutput
from planner.renaming import rename_stage
from planner.spec import Ref, operator_name
from planner.steps.collect import CollectStep
from planner.steps.edge_step import EdgeStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

BESIDE = "beside"
"""In the names of stages and columns that only a pass with both has."""
Tokens = Mapping[str, str | None]
"""By name of a value."""
CHEAP = (*ACTIVATIONS, *VIEWS)
"""Not worth a column; and a ReLU that is none lies in the memory of the dropout behind it."""


@dataclass(frozen=True)
class Beside:
    """A plan with a pass that trains and evaluates, and in what that differs from both, one after the other."""

    plan: Plan
    spared: tuple[Step, ...]  # of the plan before
    instead: tuple[Step, ...]
    exports: bool  # whether stages of training put out more in it


def evaluated_beside(plan: Plan, shares: bool = True, exports: bool = False) -> Beside:
    """A pass that trains and evaluates, without what of evaluation training computes anyway.

    Evaluation goes on from training's columns, each step as soon as what it reads is there. With dropout, what stands before
    the first is the same in both.

    Args:
        plan: whose evaluation is another graph than its training.
        shares: False: evaluation computes all that it needs itself.
        exports: whether stages of training also put out what evaluation needs of their insides.
    """
    return _joined(plan, _Trained(plan, shares), exports)


def each_beside(plan: Plan) -> tuple[Beside, ...]:
    """The passes there are that train and evaluate: where some stage could put out more in one, also that without."""
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
    """The plan without a pass that trains and evaluates."""
    own = {step.stage for step in plan.train_and_evaluate if isinstance(step, PipeStep)}
    own -= {step.stage for steps in (plan.train, plan.evaluate) for step in steps if isinstance(step, PipeStep)}
    return replace(plan, train_and_evaluate=(), stages=tuple(stage for stage in plan.stages if stage.name not in own))


# --- what is the same -----------------------------------------------------------------------------------------------


class _Walk:
    """Over the forward steps of a pass, to tell what they make.

    Args:
        plan: that they are of.
        token: of what something is: the same for the same, and for nothing else.
    """

    def __init__(self, plan: Plan, token: Callable[..., str | None]) -> None:
        self._plan, self._token = plan, token
        self.static = tuple(column.name for column in (*plan.static_columns, *plan.hoisted))
        self.columns = {name: token("static", name) for name in self.static}  # and collections
        self._levels: dict[str, int | None] = dict.fromkeys(self.static)

    def take(self, step: Step) -> Tokens:
        """Note what a step makes.

        Returns:
            The tokens of the values inside its stage, by name; of a step on the graph, none.
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
        """The token of what a step on the graph makes."""
        draws = isinstance(step, EdgeStep) and step.DRAWS
        if draws or any(self.columns[name] is None for name in step.reads):
            return None
        return self._token(step.renamed(lambda name: self.columns.get(name) or ""))  # the output has no name yet

    def _values(self, stage: Stage, step: PipeStep) -> Tokens:
        if not any(self.columns[i.column] for i in stage.inputs):  # so no row of it has one
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
            has_none = call.op == "lotan.dropout" or any(values[name] is None for name in call.reads)
            arguments = None if has_none else _by_token((call.arguments, call.keywords), values)
            values[call.output] = None if has_none else token(call.op, arguments, call.type, level)
        return values


def _by_token(arguments: tuple[Any, ...], values: Tokens) -> tuple[Any, ...]:
    """Arguments with tokens in place of names; there is a sign before a token that no other string has."""
    return tuple(
        values[one.name] if type(one) is Ref else _by_token(one, values) if type(one) is tuple and one else one
        for one in arguments
    )


class _Trained:
    """What training computes before its turn.

    Args:
        plan: that it is of.
        shares: False: it is as if that were nothing.
    """

    def __init__(self, plan: Plan, shares: bool = True) -> None:
        self.known: dict[Hashable, str] = {}  # tokens
        self.inside: list[tuple[Stage, Tokens]] = []  # of the values inside stages
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
    """What stages of training compute and could put out."""

    found: dict[str, tuple[str, StageOutput]]  # by token; of which stage
    exported: dict[str, list[StageOutput]] = field(default_factory=dict)  # by stage, what is asked for

    def offer(self, stage: Stage, values: Tokens) -> None:
        """Know of a stage's values, by their tokens: of those that a matrix product of it leads to.

        Any other is made again in less time than it takes to write it and to read it.
        """
        if not any(values.values()):
            return
        led_to = stage.computed_from(call.output for call in stage.on_vertices if is_product(call))
        for call in stage.on_vertices:
            token = values[call.output]
            if token is not None and call.output in led_to and operator_name(call.op) not in CHEAP:
                column = f"{BESIDE}.{stage.name}.{call.output}"  # evaluation may have another value of that name
                output = StageOutput(call.output, column, call.type.shape)
                self.found.setdefault(token, (stage.name, output))

    def export(self, token: str) -> str:
        """The column in which its stage puts out a value from now on."""
        stage, output = self.found[token]
        outputs = self.exported.setdefault(stage, [])
        if output not in outputs:
            outputs.append(output)
        return output.column


def _exporting(stage: Stage, outputs: Sequence[StageOutput]) -> Stage:
    return replace(stage, name=f"{stage.name}.{BESIDE}", outputs=(*stage.outputs, *outputs))


def _by_variant(step: Step, variants: Mapping[str, Stage], exported: Mapping[str, Sequence[StageOutput]]) -> Step:
    """A step of training, by the stage that puts out more."""
    if not isinstance(step, PipeStep) or step.stage not in variants:
        return step
    more = [Column(o.column, o.shape, within=step.within) for o in exported[step.stage]] if step.emits else []
    return replace(step, stage=variants[step.stage].name, outputs=(*step.outputs, *more))


class _Rest:
    """The steps of evaluation that are left."""

    def __init__(self, plan: Plan, walk: _Walk, held: Mapping[str, str], inside: _Inside) -> None:
        self._plan, self._walk, self._held, self._inside = plan, walk, held, inside
        self._names: dict[str, str] = {}  # of evaluation's columns and collections, here
        self._collects = {step.output: step for step in plan.train if isinstance(step, CollectStep)}
        self._collected: dict[str, dict[str, str]] = {}  # by collection that is training's, the names of columns there
        self.steps: list[Step] = []
        self.stages: list[Stage] = []
        self.spared: list[Step] = []  # of evaluation, as it was
        self.instead: list[Step] = []  # those of `steps` that are a part of one spared

    def take(self, step: Step) -> None:
        """The next step of evaluation."""
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
        # One of several columns that training has is made there alone: what is collected of it may be training's, too.
        self._names |= {name: self._column(found[name]) if name in found else f"{BESIDE}.{name}" for name in tokens}
        if isinstance(step, PipeStep):
            self._pipe(step, values, found.keys())
        else:
            self.steps.append(step.renamed(self._name))

    def _has(self, token: str) -> bool:
        """Whether training makes this."""
        return token in self._held or token in self._inside.found

    def _column(self, token: str) -> str:
        """Training's column or collection that holds it."""
        return self._held[token] if token in self._held else self._inside.export(token)

    def _name(self, name: str) -> str:
        return self._names.get(name, name)

    def _pipe(self, step: PipeStep, values: Tokens, made: Collection[str]) -> None:
        """A run of a stage, without the columns that training has `made`."""
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
        columns = [i.column for i in rest.inputs if i.role == "vertex"]
        targets = [name for name in ("label", "split") if name in step.inputs]
        outputs = tuple(column for column in step.outputs if column.name not in made)
        renamed = replace(step, inputs=(), outputs=outputs).renamed(self._name, lambda _: rest.name)
        renamed = replace(renamed, inputs=(*columns, *targets))
        self.stages.append(rest)
        self.steps.append(renamed)
        if taken or made:
            self.spared.append(step)
            self.instead.append(renamed)

    def _cut(self, stage: Stage, values: Tokens) -> tuple[Stage, list[StageInput]]:
        """A stage without what training has, and the inputs that this comes by."""
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
    """Both in their orders; evaluation goes first as far as it can, so that columns are let go soon."""
    waiting = list(reversed(evaluation))
    there |= {"label", "split"}
    for step in training:
        while waiting and there.issuperset(waiting[-1].reads):
            there.update(waiting[-1].makes)
            yield waiting.pop()
        there.update(step.makes)
        yield step
    yield from reversed(waiting)
