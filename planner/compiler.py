"""The planner's entry: two specs of a model to a plan, stage by stage.

spec -> logical -> rewritten -> hoisted -> stages and forward steps -> steps of the epoch -> plan
"""

from __future__ import annotations

import difflib
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.cost import PassCost, Pricing, pass_seconds
from planner.differentiate import Epoch
from planner.errors import PlanError
from planner.footprint import footprint
from planner.lower import OUTPUT, Forward, static_columns
from planner.nodes import Node, StaticColumn
from planner.optimizer import Declined, Rewritten
from planner.phases import Held, Phases, Trained, pruning_spoils
from planner.physical import Column, Plan
from planner.rules import GENERAL_PLAN_WITHOUT, RULES
from planner.rules.choose_physical import LEAST_GAIN, Candidate, choose_physical, doubtful, why_without
from planner.rules.drop_dead_gradients import drop_dead_gradients
from planner.rules.fuse_apply import fuse_apply
from planner.rules.hoist_invariant import hoist_invariant
from planner.rules.hold_sparse import declined as not_sparse
from planner.rules.hold_sparse import held as inputs_held
from planner.rules.hold_sparse import hold_sparse
from planner.rules.keep_or_recompute import keep_or_recompute
from planner.rules.prune_vertices import declined, deepest_level, prune_vertices
from planner.rules.reuse_evaluation import PRUNED_APART, beside_training, reuse_evaluation
from planner.spec import Ability, LossSpec, Spec
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.step import Step
from planner.traits import EngineTraits
from planner.validate import validate

EVALUATES_APART = "evaluation in a pass of its own, for training to be pruned"
ALL_KEPT = "on local, what backward reads stays in memory"


@dataclass(frozen=True)
class Options:
    """What a user may ask of the planner."""

    plan: Literal["auto", "general"] = "auto"  # "general": the paper's plan without pushdown
    disabled: tuple[str, ...] = ()  # rules by name
    rgb: bool = True  # Reverse Graph Backpropagation; False is the naive way
    eval_every: int = 1  # epochs between evaluations; 0: at the end only
    engine_reason: str = ""  # why the engine that `pricing` names
    free_bytes: int | None = None  # memory that was free when the engine was chosen, if that decided
    memory: str = ""  # what it is estimated to take, in words
    peak_bytes: int | None = None  # the same of all processes on this host; None: as without a limit
    memory_limit: int | None = None  # bytes that all processes may take; None: no limit
    pricing: Pricing = field(default_factory=Pricing)  # the engine that will run the plan, and its seconds
    choices: tuple[str, ...] = ()  # what choose_physical took beside the plan, otherwise than usual

    @property
    def traits(self) -> EngineTraits:
        """The traits of the engine that will run the plan."""
        return self.pricing.traits


@dataclass(frozen=True)
class Planned:
    """A plan and all that led to it, for explain."""

    plan: Plan
    logical: Node
    rewritten: Rewritten
    statistics: Statistics
    options: Options
    firings: Mapping[str, int]  # of every rule, how often it fired; 0 where it did not
    choices: tuple[str, ...]  # where choose_physical took another plan than the usual one
    phases: Phases = field(
        repr=False, compare=False
    )  # of the model, which other plans of it have in common with this one

    @property
    def given(self) -> tuple[Spec, Spec, LossSpec]:
        """What was planned: the model in training and in evaluation, and its loss."""
        return self.phases.train, self.phases.evaluate, self.phases.loss

    @property
    def unhoisted(self) -> Node:
        """The graph of training as it was before `hoist_invariant`."""
        graphs = self.phases.logical(self.statistics.weighted)
        return self.phases.rewritten(graphs, _disabled(self.options), self.options.traits.abilities)[0].root

    @property
    def peak_bytes(self) -> int:
        """What all processes on this host are estimated to take together."""
        options = self.options
        if options.peak_bytes is not None:
            return options.peak_bytes
        return footprint(options.traits, self.plan, self.statistics, options.pricing.layout).peak

    def fired(self, rule: str) -> int:
        """How often a rule fired, on this plan or on how it is run."""
        return self.firings[rule] + len(self.options.choices) * (rule == choose_physical.__name__)

    def cost(self, steps: Sequence[Step]) -> PassCost:
        """What a walk over steps of the plan is estimated to take."""
        return pass_seconds(self.plan, steps, self.statistics, self.options.pricing)

    @property
    def seconds(self) -> float:
        """What an epoch is estimated to take, with its part of an evaluation."""
        return self.seconds_at(self.options.pricing)

    def seconds_at(self, pricing: Pricing) -> float:
        """The same at another pricing than that of the plan."""

        def cost(steps: Sequence[Step]) -> float:
            return pass_seconds(self.plan, steps, self.statistics, pricing).seconds

        every = self.options.eval_every
        if not every:
            return cost(self.plan.train)
        evaluated = sum(cost(steps) for steps in self.plan.epoch(evaluates=True))
        return evaluated if every == 1 else (evaluated + (every - 1) * cost(self.plan.train)) / every

    def with_options(self, options: Options) -> Planned:
        """The plan of the same model for the same graph with other options; it takes less time than the first."""
        return compile_plan(*self.given, self.statistics, options, self.phases)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Planning makes thousands of objects and no cycles; a walk of the garbage collector over all others takes as long.

    Freezing and thawing puts what was made among the old objects, without a walk over it: else one followed at once.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if not gc.get_freeze_count():  # what somebody has frozen stays so
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@_collecting_later()
def compile_plan(
    train: Spec,
    evaluate: Spec,
    loss: LossSpec,
    statistics: Statistics,
    options: Options | None = None,
    phases: Phases | None = None,
) -> Planned:
    """Plan the training, evaluation and prediction of a model.

    Args:
        train: the model traced in training mode.
        evaluate: the same model traced in evaluation mode.
        loss: what is minimised over the training vertices.
        statistics: of the graph.
        options: what the user asks for, and what the engine can do and costs.
        phases: of another plan of the same model, which this one then has in common with it as far as it can.

    Raises:
        PlanError: an unknown rule, or a model that cannot be planned.
    """
    options, phases = options or Options(), phases or Phases(train, evaluate, loss)
    found = _chosen(phases, statistics, options)
    validate(found.plan)
    return found


def _chosen(phases: Phases, statistics: Statistics, options: Options) -> Planned:
    """The plan with all rules that fire, or the one without a doubtful rule, if that is estimated to take less."""
    planned = _in_passes(phases, statistics, options)
    if choose_physical.__name__ in options.disabled:
        return planned
    doubts = [*doubtful(planned.plan, statistics, options.traits.abilities, _fits(planned))]
    if not doubts:
        return planned
    usual = _candidate(planned)
    others = {rule: _candidate(_in_passes(phases, statistics, options, rule)) for rule in doubts}
    found = choose_physical([usual, *others.values()], LEAST_GAIN * usual.cost)
    planned = found.what
    for rule in (rule for rule, other in others.items() if other is found):
        planned = replace(planned, rewritten=_declining(planned.rewritten, rule, why_without(usual, found)))
    return planned


def _in_passes(phases: Phases, statistics: Statistics, options: Options, without: str = "") -> Planned:
    """The plan whose training evaluates as well, or the one where it is pruned: whichever is estimated to take less."""
    found = _compiled(phases, statistics, options, without)
    evaluates_whole = found.plan.reuses_evaluation and not found.plan.train_and_evaluate and pruning_spoils(statistics)
    if not evaluates_whole or {prune_vertices.__name__, choose_physical.__name__} & _disabled(options):
        return found
    both = [found, _compiled(phases, statistics, options, without, apart=True)]
    return choose_physical([*map(_candidate, both)]).what


def _candidate(planned: Planned) -> Candidate[Planned]:
    """A plan with whether it fits, and what an epoch costs as on any machine and in any run, however work is spread there.

    For last digits depend on what is chosen.
    """
    return Candidate(planned, planned.seconds_at(_anywhere(planned.options.pricing)), _fits(planned))


def _fits(planned: Planned) -> bool:
    """Whether memory has room for a plan. Where it has too little on Spark, columns go to the disk, and partitions are more."""
    options = planned.options
    if options.memory_limit is None or options.traits.memory != "process":
        return True
    return (
        footprint(options.traits, planned.plan, planned.statistics, options.pricing.layout).least
        <= options.memory_limit
    )


def _anywhere(pricing: Pricing) -> Pricing:
    return Pricing(pricing.traits)


def _compiled(
    phases: Phases, statistics: Statistics, options: Options, without: str = "", apart: bool = False
) -> Planned:
    """One of the plans there are.

    Args:
        phases: see `compile_plan`.
        statistics: see there.
        options: see there.
        without: a rule that is left out by choice.
        apart: whether training leaves evaluation alone also where both are the same graph.
    """
    draft = _Draft(_disabled(options) | {without})
    graphs = phases.logical(statistics.weighted)
    rewritten, evaluation = phases.rewritten(graphs, draft.disabled, options.traits.abilities)
    held: Held = ()
    if draft.allows(hoist_invariant):
        rewritten, evaluation, held = phases.hoisted(rewritten, evaluation)
    fuse, prunes = draft.allows(fuse_apply), draft.allows(prune_vertices)
    drops = draft.allows(drop_dead_gradients)
    once = phases.lowered_columns(held, fuse)
    forward, inference = phases.lowered(rewritten.root, evaluation.root, fuse)
    reuses = not apart and draft.allows(reuse_evaluation)
    trained = phases.trained(forward, rewritten.root, evaluation.root, statistics, options.rgb, reuses, prunes, drops)
    draft.note(trained, fuse)
    epoch = draft.keeping(trained.epoch, statistics, options.traits)
    plan = _plan(epoch, inference, (rewritten, evaluation), options)
    if prunes and statistics.targets == "split" and declined(statistics) is None:
        plan = replace(plan, evaluate=prune_vertices(plan.evaluate, statistics))
    plan = draft.sparse(plan, statistics, options.traits.abilities, [column.name for _, column in held])
    plan = _with_columns(plan, once, dict(held))
    if not trained.reused:
        plan = draft.beside(plan, statistics, options.pricing, apart)
    draft.fired(reuse_evaluation, plan.reuses_evaluation)
    choices = (*[f"without {without}"] * bool(without), *[EVALUATES_APART] * apart)
    draft.fired(choose_physical, len(choices))
    # The same for every model that is planned so, whether its own plan prunes or not.
    levels = deepest_level(statistics) if prunes else None
    rewritten = replace(rewritten, declined=(*rewritten.declined, *draft.declined))
    firings = draft.firings(rewritten)
    fired = tuple(name for name, count in firings.items() if count)
    plan = replace(plan, levels=levels, targets=statistics.targets, fired=fired)
    return Planned(plan, graphs[0], rewritten, statistics, options, firings, choices, phases)


class _Draft:
    """What becomes of the rules on stages, steps and plans while a plan is made."""

    def __init__(self, disabled: frozenset[str]) -> None:
        self.disabled = disabled
        self.declined: list[Declined] = []
        self._counts: Counter[str] = Counter()

    def allows(self, rule: Callable[..., object]) -> bool:
        """Whether a rule is not disabled."""
        return rule.__name__ not in self.disabled

    def fired(self, rule: Callable[..., object], count: int) -> None:
        """Note how often a rule fired."""
        self._counts[rule.__name__] = count

    def stopped(self, rule: Callable[..., object], reason: str) -> None:
        """Note why a rule did not fire."""
        self.declined.append(Declined(rule.__name__, reason))

    def firings(self, rewritten: Rewritten) -> dict[str, int]:
        """How often each rule fired, those on single nodes among them."""
        counts = self._counts + Counter(firing.rule for firing in rewritten.firings)
        return {name: counts[name] for name in RULES}

    def note(self, trained: Trained, fuse: bool) -> None:
        """What `Phases.trained` has done."""
        if self.allows(prune_vertices) and trained.unpruned is not None:
            self.stopped(prune_vertices, trained.unpruned)
        self.fired(fuse_apply, _operators_joined(trained.forward) if fuse else 0)
        self.fired(prune_vertices, sum(step.within is not None for step in trained.forward.steps))
        self.fired(drop_dead_gradients, trained.dead)

    def keeping(self, epoch: Epoch, statistics: Statistics, traits: EngineTraits) -> Epoch:
        """The epoch, its stages that run backward with what is to become of what they keep."""
        if not self.allows(keep_or_recompute):
            return epoch
        if traits.memory == "process":
            self.stopped(keep_or_recompute, ALL_KEPT)
            return epoch
        backward = {step.stage for step in epoch.steps if isinstance(step, PipeStep) and step.mode == "backward"}
        stages = [keep_or_recompute(one, statistics) if one.name in backward else one for one in epoch.stages]
        self.fired(keep_or_recompute, sum(stage.worth > 0 for stage in stages))
        return replace(epoch, stages=tuple(stages))

    def sparse(self, plan: Plan, statistics: Statistics, abilities: Sequence[Ability], hoisted: Sequence[str]) -> Plan:
        """The plan with the features sparse where that pays."""
        if not self.allows(hold_sparse):
            return plan
        reason = not_sparse(plan, statistics, abilities, hoisted)
        if reason is not None:
            self.stopped(hold_sparse, reason)
            return plan
        plan = hold_sparse(plan)
        self.fired(hold_sparse, inputs_held(plan))
        return plan

    def beside(self, plan: Plan, statistics: Statistics, pricing: Pricing, apart: bool) -> Plan:
        """The plan with a pass that trains and evaluates where that pays."""
        if not self.allows(reuse_evaluation):
            return plan
        if apart:  # what is compared with another plan is the same anywhere, too
            pricing = _anywhere(pricing)
        own = pricing.rates.passes * pricing.corrections.fixed  # of a pass, whatever its steps

        def seconds(plan: Plan, steps: Sequence[Step]) -> float:
            return pass_seconds(plan, steps, statistics, pricing).seconds - own if steps else 0.0

        found = beside_training(plan, seconds, 0.0 if pricing.traits.in_process else own)
        if isinstance(found, Plan):
            return found
        self.stopped(reuse_evaluation, PRUNED_APART if apart else found)
        return plan


def without(planned: Planned, rule: str) -> Planned:
    """The plan of the same model with one rule less."""
    return planned.with_options(replace(planned.options, disabled=(*planned.options.disabled, rule)))


def _declining(rewritten: Rewritten, rule: str, reason: str) -> Rewritten:
    """With one more place where a rule did not fire."""
    return replace(rewritten, declined=(*rewritten.declined, Declined(rule, reason)))


def _with_columns(plan: Plan, once: Forward, held: Mapping[Node, StaticColumn]) -> Plan:
    """The plan with the steps that make hoisted columns, which it has taken for the graph's own."""
    hoisted = tuple(Column(c.name, c.output.shape, c.output.dtype, static=True) for c in held.values())
    own = {column.name: column for column in plan.static_columns if column not in hoisted}
    own |= {column.name: column for node in held for column in static_columns(node)}
    return replace(
        plan,
        stages=(*once.stages, *plan.stages),
        static_columns=tuple(own.values()),
        prepare=once.steps,
        hoisted=hoisted,
    )


def _operators_joined(forward: Forward) -> int:
    """Operators on vertices that share a stage with one before them."""
    return sum(max(0, len(stage.on_vertices) - 1) for stage in forward.stages)


def _disabled(options: Options) -> frozenset[str]:
    for name in options.disabled:
        if name not in RULES:
            near = difflib.get_close_matches(name, RULES, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise PlanError(f"there is no rule {name!r}{hint}; the rules are {', '.join(RULES)}")
    if options.plan not in ("auto", "general"):
        raise PlanError(f"there is no plan {options.plan!r}; expected 'auto' or 'general'")
    return frozenset(options.disabled) | frozenset(GENERAL_PLAN_WITHOUT if options.plan == "general" else ())


def _plan(
    epoch: Epoch,
    inference: Forward,
    graphs: tuple[Rewritten, ...],
    options: Options,
) -> Plan:
    trainable = [parameter.name for stage in epoch.stages for parameter in stage.parameters if parameter.trainable]
    columns = {column.name: column for graph in graphs for column in static_columns(graph.root)}
    labels = (Column("label", (), static=True), Column("split", (), "int8", static=True))
    return Plan(
        stages=(*epoch.stages, *inference.stages),
        train=epoch.steps,
        evaluate=_last_as(inference.steps, "evaluate"),
        predict=_last_as(inference.steps, "predict", inference.stages[-1].loss),
        static_columns=(*columns.values(), *labels),
        trainable=tuple(dict.fromkeys(trainable)),
        source_gradients="summed" if options.rgb else "per_edge",
    )


def _last_as(
    steps: tuple[Step, ...], mode: Literal["evaluate", "predict"], loss: LossSpec | None = None
) -> tuple[Step, ...]:
    """The same pass with another end."""
    last = steps[-1]
    assert isinstance(last, PipeStep)  # the last stage, see planner.lower
    if mode == "evaluate":
        return (*steps[:-1], replace(last, mode=mode))
    assert loss is not None  # the last stage has it
    inputs = tuple(name for name in last.inputs if name not in ("label", "split"))
    return (*steps[:-1], replace(last, mode=mode, inputs=inputs, outputs=(Column(OUTPUT, (loss.outputs,)),)))
