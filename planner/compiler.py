"""The planner's entry: a model in training and in evaluation to a plan, phase by phase.

Each phase makes something of the draft of the one before; then the rules of that phase change it, in the order of `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.choices.choose_physical import choices
from planner.cost import PassCost, Pricing
from planner.draft import Draft, Model
from planner.errors import PlanError
from planner.footprint import footprint
from planner.history import Hook, Rewritten
from planner.nodes import Node
from planner.optimizer import optimize
from planner.options import Options
from planner.phases import add_backward, assemble, begin, complete, cut_apart, lower_cuts, remember
from planner.physical import Plan
from planner.rule import ChoiceRule, DraftRule, NodeRule, Phase, Rule
from planner.rules import RULES, enabled
from planner.spec import LossSpec, Spec
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
"""What each phase after "logical" begins with, in order."""

Trail = Mapping[Phase, tuple[Hashable, Draft]]
"""The draft after each phase, and what it depends on beside the draft before."""


@dataclass(frozen=True)
class Planned:
    """A plan and all that led to it, for explain."""

    draft: Draft
    firings: Mapping[str, int]  # of every rule, how often it fired; 0 where it did not
    trail: Trail = field(repr=False, compare=False)  # which other plans of the model begin with

    @property
    def plan(self) -> Plan:
        """What an engine runs."""
        return self.draft.plan

    @property
    def logical(self) -> Node:
        """The graph of training as it was written."""
        return self.draft.logical

    @property
    def rewritten(self) -> Rewritten:
        """The graph of training after all rules on graphs, and what these did."""
        return self.draft.rewritten

    @property
    def statistics(self) -> Statistics:
        """What was known of the graph."""
        return self.draft.statistics

    @property
    def options(self) -> Options:
        """What was asked for."""
        return self.draft.options

    @property
    def choices(self) -> tuple[str, ...]:
        """Where another plan than the usual one was chosen by its cost."""
        return choices(self.draft)

    @property
    def given(self) -> tuple[Spec, Spec, LossSpec]:
        """What was planned: the model in training and in evaluation, and its loss."""
        model = self.draft.model
        return model.train, model.evaluate, model.loss

    @property
    def peak_bytes(self) -> int:
        """What all processes on this host are estimated to take together."""
        options = self.options
        if options.peak_bytes is not None:
            return options.peak_bytes
        return footprint(options.traits, self.plan, self.statistics, options.pricing.layout).peak

    def fired(self, rule: Rule) -> int:
        """How often a rule fired, on this plan or on how it is run."""
        return self.firings[rule.name] + len(self.options.choices) * (rule.phase == "choices")

    def cost(self, steps: Sequence[Step]) -> PassCost:
        """What a walk over steps of the plan is estimated to take."""
        return self.draft.cost(steps)

    @property
    def seconds(self) -> float:
        """What an epoch is estimated to take, with its part of an evaluation."""
        return self.draft.seconds()

    def seconds_at(self, pricing: Pricing) -> float:
        """The same at another pricing than that of the plan."""
        return self.draft.seconds(pricing)

    def with_options(self, options: Options) -> Planned:
        """The plan of the same model for the same graph with other options; it takes less time than the first."""
        return _Compilation(self.draft.model, self.statistics, options, self.trail).chosen()

    def described(self, **changes: Any) -> Planned:
        """The same plan with other options, which only say how it is run and what that takes."""
        return replace(self, draft=replace(self.draft, options=replace(self.options, **changes)))


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
        train: the model traced in training mode.
        evaluate: the same model traced in evaluation mode.
        loss: what is minimised over the training vertices.
        statistics: of the graph.
        options: what the user asks for, and what the engine can do and costs.
        hook: called after each firing of a rule.

    Raises:
        PlanError: an unknown rule, or a model that cannot be planned.
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
    """The draft of a plan after a phase, "logical" or one of `PIPELINE`, before any choice between plans.

    Args:
        phase: the last one; its rules are applied.
        train: see `compile_plan` for this and the other arguments.
        evaluate: see above.
        loss: see above.
        statistics: see above.
        options: see above.
        hook: see above.

    Raises:
        PlanError: an unknown rule, or a model that cannot be planned.
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

    def chosen(self) -> Planned:
        """The finished plan that is estimated to take least, of those in question."""
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
        """The draft after a phase.

        Args:
            last: the phase.
            without: a rule that is left out by choice.
            apart: whether training leaves evaluation alone by choice.
        """
        rules = [rule for rule in self._rules if rule.name != without]
        if "logical" not in self._trail:
            self._trail["logical"] = ((), begin(self._model, self._statistics, self._options))
        draft = replace(self._trail["logical"][1], options=self._options, without=without, apart=apart)
        is_known = True  # whether the phases so far are those of the trail
        for phase, make in PIPELINE.items():
            if last == "logical":
                break
            key = _key(phase, rules, draft)
            is_known = is_known and phase in self._trail and self._trail[phase][0] == key
            if is_known:
                draft = replace(self._trail[phase][1], options=self._options, without=without, apart=apart)
            else:
                draft = self._ruled(make(draft), phase, rules)
                if not (without or apart):  # the usual plan: others go on from its drafts
                    self._trail[phase] = key, draft
            if phase == last:
                break
        return draft

    def _ruled(self, draft: Draft, phase: Phase, rules: Sequence[Rule]) -> Draft:
        """The draft after the rules of a phase."""
        if phase == "nodes":
            return _settled(draft, rules, self._hook)
        for rule in rules:
            for apply in rule.steps(phase) if isinstance(rule, DraftRule) else ():
                draft = self._applied(rule, apply, draft)
        return draft

    def _applied(self, rule: Rule, apply: Callable[[Draft], Draft], draft: Draft) -> Draft:
        """The draft after a rule, which may not change what the plan yields."""
        after = apply(draft)
        if after.schema != draft.schema:
            raise PlanError(f"rule {rule.name} changed what the plan yields, from {draft.schema} to {after.schema}")
        if self._hook is not None and after is not draft and after.declined == draft.declined:
            self._hook(rule.name, draft, after)
        return after


def _settled(draft: Draft, rules: Sequence[Rule], hook: Hook | None) -> Draft:
    """The draft after the rules on nodes. What they leave undone in evaluation, nobody asks for."""
    abilities = draft.options.traits.abilities
    train = optimize(draft.train, (), abilities, rules, hook=hook)
    if draft.evaluate is draft.train:
        evaluate = train.root
    else:
        evaluate = optimize(draft.evaluate, (), abilities, rules, says_why=False, hook=hook).root
    return replace(draft, train=train.root, evaluate=evaluate, firings=train.firings, declined=train.declined)


def _key(phase: Phase, rules: Sequence[Rule], draft: Draft) -> Hashable:
    """What the draft after a phase depends on beside the draft before it: its rules, choices and options."""
    options = draft.options
    names = tuple(rule.name for rule in rules if phase == rule.phase)
    match phase:
        case "nodes":
            needs = {rule.needs for rule in rules if isinstance(rule, NodeRule)}
            return names, needs.intersection(options.traits.abilities)
        case "rewritten":
            return names, draft.apart
        case "stages" | "steps":
            return names
    return names, draft.without, replace(options, disabled=(), plan="auto")


def _firings(draft: Draft, rules: Sequence[Rule]) -> dict[str, int]:
    """How often each rule fired."""
    return {rule.name: int(rule.fired(draft)) if rule in rules else 0 for rule in RULES}


def without(planned: Planned, rule: str) -> Planned:
    """The plan of the same model with one rule less."""
    return planned.with_options(replace(planned.options, disabled=(*planned.options.disabled, rule)))
