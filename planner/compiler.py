"""The entry of the planner. It compiles a model, in training and in evaluation, to a plan, phase by phase.

Each phase adds to the draft of the phase before. Then the rules of the phase change the draft, in the order of `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.choices.choose_physical import choices
from planner.collector import collector_paused
from planner.cost.seconds import PassCost, Pricing
from planner.draft import Draft, Model
from planner.errors import PlanError
from planner.footprint import footprint
from planner.history import Hook, Rewritten
from planner.loss import LossSpec
from planner.nodes import Node
from planner.optimizer import optimize
from planner.options import Options
from planner.phases import (
    add_backward,
    assemble,
    begin,
    complete,
    cut_apart,
    lower_cuts,
    remember,
    without_dropout,
)
from planner.physical import Plan
from planner.rule import ChoiceRule, DraftRule, NodeRule, Phase, Rule
from planner.rules import RULES, enabled
from planner.spec import Spec
from planner.statistics import Statistics
from planner.steps.step import Step
from planner.validate import validate

PIPELINE: Mapping[Phase, Callable[[Draft], Draft]] = {
    "nodes": lambda draft: draft,
    "rewritten": remember,
    "stages": cut_apart,
    "steps": lower_cuts,
    "epoch": add_backward,
    "plan": assemble,
    "physical": complete,
}
"""The function that each phase after "logical" begins with, in order."""

Trail = Mapping[tuple[Hashable, ...], Draft]
"""The drafts after each phase, by the keys of that phase and of all phases before it, see `_key`."""


@dataclass(frozen=True)
class Planned:
    """A plan and its history, for explain."""

    draft: Draft
    firings: Mapping[str, int]  # for every rule, how often it fired; 0 if it did not
    trail: Trail = field(repr=False, compare=False)  # drafts that other plans of the model may begin with

    @property
    def plan(self) -> Plan:
        """The plan that an engine runs."""
        return self.draft.plan

    @property
    def logical(self) -> Node:
        """The graph of training as it was written."""
        return self.draft.logical

    @property
    def rewritten(self) -> Rewritten:
        """The graph of training after all rules on graphs, and its history."""
        return self.draft.rewritten

    @property
    def statistics(self) -> Statistics:
        """The statistics of the graph."""
        return self.draft.statistics

    @property
    def options(self) -> Options:
        """The options with which the plan was made."""
        return self.draft.options

    @property
    def choices(self) -> tuple[str, ...]:
        """The ways in which the plan differs from the usual one because that takes less time or memory, in words."""
        return choices(self.draft)

    @property
    def given(self) -> tuple[Spec, Spec, LossSpec]:
        """The model in training mode and in evaluation mode, and its loss."""
        model = self.draft.model
        return model.train, model.evaluate, model.loss

    @property
    def peak_bytes(self) -> int:
        """The estimated bytes of memory that all processes on this host take together."""
        options = self.options
        if options.peak_bytes is not None:
            return options.peak_bytes
        return footprint(options.traits, self.plan, self.statistics, options.pricing.layout).peak

    def fired(self, rule: Rule) -> int:
        """Return how often a rule fired. Choices of the way to run the plan count too."""
        return self.firings[rule.name] + len(self.options.choices) * (rule.phase == "choices")

    def cost(self, steps: Sequence[Step]) -> PassCost:
        """Return the estimated cost of steps of the plan."""
        return self.draft.cost(steps)

    @property
    def seconds(self) -> float:
        """The estimated seconds of an epoch, with its share of the evaluations."""
        return self.draft.seconds()

    def seconds_at(self, pricing: Pricing) -> float:
        """Return the estimated seconds of an epoch, as `seconds`, at another pricing."""
        return self.draft.seconds(pricing)

    def with_options(self, options: Options) -> Planned:
        """Return the plan of the same model for the same graph with other options.

        Planning it takes less time than the first plan, because it begins with drafts of that plan.
        """
        return _Compilation(self.draft.model, self.statistics, options, self.trail).chosen()

    def described(self, **changes: Any) -> Planned:
        """Return the same plan with changed options. They may only describe how it is run and what that takes.

        Args:
            changes: New values of the fields of `Options`, by name.
        """
        return replace(self, draft=replace(self.draft, options=replace(self.options, **changes)))

    def with_statistics(self, statistics: Statistics) -> Planned:
        """Return the same plan with other sizes of the graph that it runs on, which estimates then follow."""
        return replace(self, draft=replace(self.draft, statistics=statistics))

    def with_plan(self, plan: Plan) -> Planned:
        """Return the same with a plan that has the same steps in another order."""
        return replace(self, draft=replace(self.draft, plan=plan))


def compile_plan(
    train: Spec,
    evaluate: Spec,
    loss: LossSpec,
    statistics: Statistics,
    options: Options | None = None,
    hook: Hook | None = None,
) -> Planned:
    """Plan the training, evaluation and prediction of a model.

    Args:
        train: The model traced in training mode.
        evaluate: The same model traced in evaluation mode.
        loss: The loss that is minimised over the training vertices.
        statistics: The statistics of the graph.
        options: The user's options, with the abilities and the prices of the engine. None: the defaults.
        hook: A function that is called after each firing of a rule.

    Raises:
        PlanError: If an option names an unknown rule, or the model cannot be planned.
    """
    return _Compilation(Model(train, evaluate, loss), statistics, options or Options(), {}, hook).chosen()


def compile_until(
    phase: Phase,
    train: Spec,
    evaluate: Spec,
    loss: LossSpec,
    statistics: Statistics,
    options: Options | None = None,
    hook: Hook | None = None,
) -> Draft:
    """Return the draft of a plan after a phase, before any choice between plans.

    Args:
        phase: The last phase, "logical" or one of `PIPELINE`. Its rules are applied.
        train: The model traced in training mode.
        evaluate: The same model traced in evaluation mode.
        loss: The loss that is minimised over the training vertices.
        statistics: The statistics of the graph.
        options: The user's options, with the abilities and the prices of the engine. None: the defaults.
        hook: A function that is called after each firing of a rule.

    Raises:
        PlanError: If an option names an unknown rule, or the model cannot be planned.
    """
    return _Compilation(Model(train, evaluate, loss), statistics, options or Options(), {}, hook).until(phase)


class _Compilation:
    """The making of a plan: a loop over phases and their rules."""

    def __init__(
        self, model: Model, statistics: Statistics, options: Options, trail: Trail, hook: Hook | None = None
    ) -> None:
        self._model, self._statistics, self._options, self._hook = model, statistics, options, hook
        self._rules = enabled(options.disabled, options.plan)
        self._trail = dict(trail)

    @collector_paused()
    def chosen(self) -> Planned:
        """Return the finished plan that is chosen by its estimated cost."""
        draft = self._finished("", False)
        for rule in self._rules:
            if isinstance(rule, ChoiceRule):
                draft = rule.apply(draft, self._finished, self._rules)
        validate(draft.plan)
        return Planned(draft, _firings(draft, self._rules), self._trail)

    def _finished(self, without: str, apart: bool) -> Draft:
        draft = self.until("physical", without, apart)
        rules = [rule for rule in self._rules if rule.name != without]
        fired = tuple(name for name, count in _firings(draft, rules).items() if count)
        return replace(draft, plan=replace(draft.plan, fired=fired))

    def until(self, last: Phase, without: str = "", apart: bool = False) -> Draft:
        """Return the draft after a phase.

        Args:
            last: The phase.
            without: The name of a rule that is left out by choice, or "".
            apart: True if evaluation has a pass of its own by choice.
        """
        rules = [rule for rule in self._rules if rule.name != without]
        keys: tuple[Hashable, ...] = ()
        if keys not in self._trail:
            self._trail[keys] = begin(self._model, self._statistics, self._options)
        draft = replace(self._trail[keys], options=self._options, without=without, apart=apart)
        for phase, make in PIPELINE.items():
            if last == "logical":
                break
            keys = (*keys, _key(phase, rules, draft))
            if keys in self._trail:
                draft = replace(self._trail[keys], options=self._options, without=without, apart=apart)
            else:
                draft = self._trail[keys] = self._ruled(make(draft), phase, rules)
            if phase == last:
                break
        return draft

    def _ruled(self, draft: Draft, phase: Phase, rules: Sequence[Rule]) -> Draft:
        """Return the draft after the rules of a phase."""
        if phase == "nodes":
            return _settled(draft, rules, self._hook)
        for rule in rules:
            for apply in rule.steps(phase) if isinstance(rule, DraftRule) else ():
                draft = self._applied(rule, apply, draft)
        return draft

    def _applied(self, rule: Rule, apply: Callable[[Draft], Draft], draft: Draft) -> Draft:
        """Return the draft after a rule. Raises PlanError if the rule changes what the plan yields."""
        after = apply(draft)
        if after.schema != draft.schema:
            raise PlanError(f"rule {rule.name} changed what the plan yields, from {draft.schema} to {after.schema}")
        if self._hook is not None and after is not draft and after.declined == draft.declined:
            self._hook(rule.name, draft, after)
        return after


def _settled(draft: Draft, rules: Sequence[Rule], hook: Hook | None) -> Draft:
    """Return the draft after the rules on nodes. Reasons why rules did not fire are given for training only.

    If evaluation differs from training by its dropouts alone, it begins with what the rules have made of training. Then
    little is left to do.
    """
    abilities = draft.options.traits.abilities
    train = optimize(draft.train, (), abilities, rules, hook=hook)
    evaluate = without_dropout(train.root) if draft.evaluate is draft.train else draft.evaluate
    if evaluate is train.root:
        return replace(draft, train=train.root, evaluate=evaluate, firings=train.firings, declined=train.declined)
    evaluate = optimize(evaluate, (), abilities, rules, says_why=False, hook=hook).root
    return replace(draft, train=train.root, evaluate=evaluate, firings=train.firings, declined=train.declined)


def _key(phase: Phase, rules: Sequence[Rule], draft: Draft) -> Hashable:
    """Return a key of everything that a phase depends on, besides the draft before it: rules, choices and options."""
    options = draft.options
    names = tuple(rule.name for rule in rules if phase == rule.phase)
    match phase:
        case "nodes":
            needs = {rule.needs for rule in rules if isinstance(rule, NodeRule)}
            return names, frozenset(needs.intersection(options.traits.abilities))
        case "rewritten":
            return names, options.traits, options.sampling
        case "stages":
            return names
        case "steps":
            return names, draft.apart, options.traits, options.sampling
    return names, draft.without, replace(options, disabled=(), plan="auto")


def _firings(draft: Draft, rules: Sequence[Rule]) -> dict[str, int]:
    """Return how often each rule fired. Rules that were left out have 0."""
    return {rule.name: int(rule.fired(draft)) if rule in rules else 0 for rule in RULES}


def without(planned: Planned, rule: str) -> Planned:
    """Return the plan of the same model with one more rule disabled."""
    return planned.with_options(replace(planned.options, disabled=(*planned.options.disabled, rule)))
