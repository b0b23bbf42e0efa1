"""The draft of a plan: all that is known of it after a phase of planning, which the next phase adds to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.cost.seconds import PassCost, Pricing, pass_seconds
from planner.differentiate import Epoch
from planner.history import Declined, Firing, Rewritten
from planner.loss import LossSpec
from planner.lower import Cut, Forward
from planner.nodes import Node, StaticColumn
from planner.options import Options
from planner.physical import Plan
from planner.spec import Spec
from planner.statistics import Statistics
from planner.steps.step import Step

TRAIN, EVALUATE, PREPARE = "train", "evaluate", "prepare"
"""The first parts of the names of stages, and the keys of `Draft.cuts`."""

NO_STEPS, NO_EPOCH = Forward((), ()), Epoch((), ())
NO_PLAN = Plan((), (), (), (), (), ())


@dataclass(frozen=True)
class Model:
    """The model that is planned, and its loss."""

    train: Spec  # the model in training mode
    evaluate: Spec  # the model in evaluation mode
    loss: LossSpec


@dataclass(frozen=True)
class Draft:
    """A plan in the making. Fields that a later phase sets are empty until then."""

    model: Model
    statistics: Statistics
    options: Options
    without: str = ""  # the rule that is left out by choice
    apart: bool = False  # True: evaluation has a pass of its own by choice, even if both are the same graph

    # phase "logical": the graphs as they were written; rules replace `train` and `evaluate` later
    logical: Node = field(kw_only=True)  # the graph of training, which no rule replaces
    train: Node = field(kw_only=True)
    # the graph of evaluation; until the end of phase "nodes", `train` stands for it if only dropouts differ
    evaluate: Node = field(kw_only=True)
    firings: tuple[Firing, ...] = ()  # firings of rules on graphs
    declined: tuple[Declined, ...] = ()  # reasons why rules did not fire, in all phases

    # phase "rewritten"
    unhoisted: Node | None = None  # the graph of training before the rules of this phase
    held: Mapping[Node, StaticColumn] = field(
        default_factory=dict
    )  # the values that are computed once, each with the column that holds it
    may_evaluate_as_well: bool = False  # True: a training pass can count the metrics of all splits, if not apart

    # phase "stages"
    cuts: Mapping[str, Cut] = field(default_factory=dict)

    # phase "steps"
    forward: Forward = NO_STEPS  # the forward pass of training
    inference: Forward = NO_STEPS  # the forward pass of evaluation
    predict: tuple[Step, ...] = ()
    once: Forward = NO_STEPS  # the pass that makes the columns that are computed once
    levels: int | None = None  # level up to which vertices are ordered by level; None: all are ordered by id

    # phase "epoch"
    naive: Epoch = NO_EPOCH  # the epoch with all gradients
    epoch: Epoch = NO_EPOCH  # the epoch after the rules of this phase

    # phases "plan" and "physical"
    plan: Plan = NO_PLAN

    @property
    def is_batch(self) -> bool:
        """True if this is the plan of one sampled batch, which trains and does not evaluate."""
        return bool(self.statistics.sampled)

    @property
    def evaluates_as_well(self) -> bool:
        """True if a training pass counts the metrics of all splits, as an evaluation does."""
        return self.may_evaluate_as_well and not self.apart

    @cached_property
    def firing_counts(self) -> Counter[str]:
        """The number of firings of each rule on graphs, by its name."""
        return Counter(firing.rule for firing in self.firings)

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
        """Return the estimated cost of steps of the finished plan, at the plan's pricing or another."""
        return pass_seconds(self.plan, steps, self.statistics, pricing or self.options.pricing)

    def seconds(self, pricing: Pricing | None = None) -> float:
        """Return the estimated seconds of an epoch with its share of the evaluations, at the plan's pricing or another.

        For the plan of a sampled batch, they are the seconds of the batch.
        """
        every, train = self.options.eval_every, self.plan.train
        if self.is_batch:
            return self.cost(train, pricing).seconds
        if not every:
            return self.cost(train, pricing).seconds
        evaluated = sum(self.cost(steps, pricing).seconds for steps in self.plan.epoch(evaluates=True))
        if every == 1:
            return evaluated
        return (evaluated + (every - 1) * self.cost(train, pricing).seconds) / every

    def stopped(self, rule: str, reason: str) -> Draft:
        """Return the draft with one more reason why a rule did not fire."""
        return replace(self, declined=(*self.declined, Declined(rule, reason)))
