"""The draft of a plan: all that is known of it after a phase of planning, which the next phase adds to."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.cost import PassCost, Pricing, pass_seconds
from planner.differentiate import Epoch
from planner.history import Declined, Firing, Rewritten
from planner.lower import Cut, Forward
from planner.nodes import Node, StaticColumn
from planner.options import Options
from planner.physical import Plan
from planner.spec import LossSpec, Spec
from planner.statistics import Statistics
from planner.steps.step import Step

TRAIN, EVALUATE, PREPARE = "train", "evaluate", "prepare"
"""In the names of stages; `Draft.cuts` has a graph for each."""

NO_STEPS, NO_EPOCH = Forward((), ()), Epoch((), ())
NO_PLAN = Plan((), (), (), (), (), ())


@dataclass(frozen=True)
class Model:
    """The model that is planned, and its loss."""

    train: Spec  # the model in training mode
    evaluate: Spec  # and in evaluation mode
    loss: LossSpec


@dataclass(frozen=True)
class Draft:
    """A plan in the making. Fields that a later phase sets are empty until then."""

    model: Model
    statistics: Statistics
    options: Options
    without: str = ""  # the rule that is left out by choice
    apart: bool = False  # whether training leaves evaluation alone, by choice, also where both are the same graph

    # phase "logical": graphs as they were written; rules then replace `train` and `evaluate`
    logical: Node = field(kw_only=True)  # that of training
    train: Node = field(kw_only=True)
    evaluate: Node = field(kw_only=True)
    firings: tuple[Firing, ...] = ()  # of rules on graphs
    declined: tuple[Declined, ...] = ()

    # phase "rewritten"
    unhoisted: Node | None = None  # the graph of training before it
    held: Mapping[Node, StaticColumn] = field(
        default_factory=dict
    )  # what is computed once, and the column that holds it
    evaluates_as_well: bool = False  # whether a training pass counts all that an evaluation would

    # phase "stages"
    cuts: Mapping[str, Cut] = field(default_factory=dict)

    # phase "steps"
    forward: Forward = NO_STEPS  # of training
    inference: Forward = NO_STEPS  # of evaluation
    predict: tuple[Step, ...] = ()
    once: Forward = NO_STEPS  # what makes the columns that are computed once
    levels: int | None = None  # up to which vertices lie in the order of their levels

    # phase "epoch"
    naive: Epoch = NO_EPOCH  # with all gradients
    epoch: Epoch = NO_EPOCH

    # phases "plan" and "physical"
    plan: Plan = NO_PLAN

    @property
    def rewritten(self) -> Rewritten:
        """The graph of training and its history."""
        return Rewritten(self.train, self.firings, self.declined)

    @property
    def schema(self) -> Hashable:
        """The properties that no rule may change: what graphs and passes yield, and which parameters have gradients."""
        ends = (forward.stages[-1] for forward in (self.forward, self.inference) if forward.stages)
        yields = tuple((end.name, end.outputs, end.loss) for end in ends)
        stages = (stage for stage in self.epoch.stages if stage.parameters)
        trained = frozenset(parameter.name for stage in stages for parameter in stage.parameters if parameter.trainable)
        return self.train.output, self.evaluate.output, yields, trained, self.plan.trainable

    def cost(self, steps: Sequence[Step], pricing: Pricing | None = None) -> PassCost:
        """The estimated cost of a walk over steps of the finished plan, at the plan's pricing or another."""
        return pass_seconds(self.plan, steps, self.statistics, pricing or self.options.pricing)

    def seconds(self, pricing: Pricing | None = None) -> float:
        """The estimated seconds of an epoch with its part of an evaluation, at the plan's pricing or another."""
        every, train = self.options.eval_every, self.plan.train
        if not every:
            return self.cost(train, pricing).seconds
        evaluated = sum(self.cost(steps, pricing).seconds for steps in self.plan.epoch(evaluates=True))
        if every == 1:
            return evaluated
        return (evaluated + (every - 1) * self.cost(train, pricing).seconds) / every

    def stopped(self, rule: str, reason: str) -> Draft:
        """The draft with one more reason why a rule did not fire."""
        return replace(self, declined=(*self.declined, Declined(rule, reason)))
