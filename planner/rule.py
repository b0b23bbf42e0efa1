"""The kinds of rules. Each rule is one object in a file of its own; `planner.rules.RULES` has them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner.draft import Draft
from planner.labels import ITSELF, Alike
from planner.nodes import Node
from planner.physical import Plan
from planner.spec import Ability

Phase = Literal["logical", "nodes", "rewritten", "stages", "steps", "epoch", "plan", "physical", "choices", "models"]
"""The phases of planning, in order; `planner.compiler` says what each begins with, and `planner.batch` has the last."""

Readers = Mapping[Node, Sequence[Node]]
"""The nodes that read each node."""

LACKING: dict[Ability, str] = {
    "edge_columns": "this engine holds no values of edges",
    "extremes": "this engine takes no max or min",
}
"""Why a rule was left out that would have fired on an engine with that ability."""


def layers(draft: Draft, rule: str) -> list[str]:
    """The layers of the operators that a rule replaced; where none has a name, the model itself."""
    found = (firing.before for firing in draft.firings if firing.rule == rule)
    named = dict.fromkeys(node.layer or ITSELF for node in found if hasattr(node, "layer"))
    return list(named) or [ITSELF]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The fields that all rules have: a name, a phase, and the words in which `explain` speaks of the rule."""

    name: str  # its function's and its file's, by which a user disables it
    phase: Phase  # the first one in which it is applied
    idle: str  # what it means that it neither fired nor was stopped by anything
    in_general_plan: bool = True  # False: the paper's general plan does without it
    of_evaluation: bool = False  # True: it is about an epoch with its evaluation, else about the training pass
    repaid_by_epochs: bool = False  # True: a single pass, such as a prediction, does better without it
    unseen: str = ""  # what it changes where it changes no figure that explain prints
    where: Callable[[Draft, str], list[str]] = layers  # the places where it fired, of a finished draft and its name
    count: Callable[[Draft], int] | None = None  # how often it fired; None: as often as the draft's firings say
    why_not: Callable[[Draft], list[str]] | None = None  # reasons for explain, where it neither fired nor was stopped
    # True: the plan without it is worth making, to compare what both cost. Takes whether memory has room for the plan.
    in_doubt: Callable[[Draft, bool], bool] | None = None

    def fired(self, draft: Draft) -> int:
        """How often it fired on a finished draft, if it was enabled."""
        if self.count is not None:
            return self.count(draft)
        return sum(firing.rule == self.name for firing in draft.firings)


@dataclass(frozen=True, kw_only=True)
class NodeRule(Rule):
    """A rule on single nodes of a forward graph, applied bottom-up to a fixpoint by `planner.optimizer`."""

    phase: Phase = "nodes"
    apply: Callable[[Node], Node | None]  # a better node, or None
    declined: Callable[[Node], str | None] = lambda node: None  # of a node in the rewritten graph: why it did not fire
    needs: Ability | None = None  # of the engine, without which the rule is left out
    pays: Callable[[Node, Readers], bool] | None = None  # True if firing spares more than it costs; None: always
    on: tuple[type[Node], ...] = (Node,)  # kinds of nodes that it is asked about; it never fires on others


@dataclass(frozen=True)
class Joined:
    """A graph in which some nodes have become one with others."""

    root: Node
    twins: Mapping[Node, tuple[Node, Node]]  # nodes that are gone; of each, the first like it, and what stands for both


@dataclass(frozen=True, kw_only=True)
class GraphRule(Rule):
    """A rule that makes one of nodes that are alike, in each round of the rules on single nodes."""

    phase: Phase = "nodes"
    apply: Callable[[Node, Sequence[Node], Alike], Joined]  # of a graph, its nodes in order, and what is known of them


@dataclass(frozen=True, kw_only=True)
class DraftRule(Rule):
    """A rule on the draft of a plan in a later phase."""

    apply: Callable[[Draft], Draft]  # a better draft, or the same one, which says what stopped the rule
    later: tuple[Phase, Callable[[Draft], Draft]] | None = None  # what the rule does in a later phase, as well

    def steps(self, phase: Phase) -> list[Callable[[Draft], Draft]]:
        """The functions that the rule applies in a phase."""
        found = [self.apply] if phase == self.phase else []
        return [*found, self.later[1]] if self.later is not None and self.later[0] == phase else found


Again = Callable[[str, bool], Draft]
"""Makes a plan anew: without the rule of that name, and with evaluation apart or not."""


@dataclass(frozen=True, kw_only=True)
class ChoiceRule(Rule):
    """A choice by cost between finished plans."""

    phase: Phase = "choices"
    apply: Callable[[Draft, Again, Sequence[Rule]], Draft]  # of the usual plan, and the rules that are enabled


@dataclass(frozen=True, kw_only=True)
class BatchRule(Rule):
    """A rule on the finished plans of the models of a batch."""

    phase: Phase = "models"
    apply: Callable[[Sequence[Plan]], Any]  # the plans' stacks
