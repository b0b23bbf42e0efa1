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
"""The phases of planning, in order. `planner.compiler` runs them all but "models", which `planner.batch` runs."""

Readers = Mapping[Node, Sequence[Node]]
"""The nodes that read each node."""

LACKING: dict[Ability, str] = {
    "edge_columns": "this engine holds no values of edges",
    "extremes": "this engine takes no max or min",
}
"""The reason that explain gives for a rule that did not fire because the engine lacks an ability."""


def layers(draft: Draft, rule: str) -> list[str]:
    """Return the layers of the operators that a rule replaced. The model itself stands for operators outside layers."""
    found = (firing.before for firing in draft.firings if firing.rule == rule)
    named = dict.fromkeys(node.layer or ITSELF for node in found if hasattr(node, "layer"))
    return list(named) or [ITSELF]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The fields that all rules have: a name, a phase, and the words in which `explain` speaks of the rule."""

    name: str  # the name of its function and its file, by which a user disables it
    phase: Phase  # the first phase in which it is applied
    idle: str  # the reason for explain if it neither fired nor was stopped
    in_general_plan: bool = True  # False: the paper's general plan does without it
    of_evaluation: bool = False  # True: explain compares epochs with an evaluation, not training passes
    repaid_by_epochs: bool = False  # True: a single pass, such as a prediction, takes less time without it
    unseen: str = ""  # its effect, in words, if it changes no figure that explain prints
    where: Callable[[Draft, str], list[str]] = layers  # the places where it fired, given a finished draft and its name
    count: Callable[[Draft], int] | None = None  # how often it fired on a draft; None: the draft's firings are counted
    why_not: Callable[[Draft], list[str]] | None = None  # reasons for explain in place of `idle`; []: none
    # True if the plan without the rule may be the better one, so that both are made and compared. The second argument
    # is True if memory has room for the plan with the rule.
    in_doubt: Callable[[Draft, bool], bool] | None = None

    def fired(self, draft: Draft) -> int:
        """Return how often the rule fired on a finished draft, if it was enabled."""
        if self.count is not None:
            return self.count(draft)
        return draft.firing_counts[self.name]


@dataclass(frozen=True, kw_only=True)
class NodeRule(Rule):
    """A rule on single nodes of a forward graph, applied bottom-up to a fixpoint by `planner.optimizer`."""

    phase: Phase = "nodes"
    apply: Callable[[Node], Node | None]  # returns a better node, or None
    declined: Callable[[Node], str | None] = lambda node: None  # reason why it left a node unchanged, or None
    needs: Ability | None = None  # ability without which an engine cannot run the result, so that the rule is left out
    pays: Callable[[Node, Readers], bool] | None = None  # True if firing on a node saves work; None: it always does
    on: tuple[type[Node], ...] = (Node,)  # kinds of nodes to which it is applied; it never fires on others


@dataclass(frozen=True)
class Joined:
    """A graph in which nodes that compute the same have been joined."""

    root: Node
    twins: Mapping[Node, tuple[Node, Node]]  # removed node -> the first node like it, and the node that replaces both


@dataclass(frozen=True, kw_only=True)
class GraphRule(Rule):
    """A rule that joins nodes that compute the same. It is applied in each round of the rules on single nodes."""

    phase: Phase = "nodes"
    apply: Callable[[Node, Sequence[Node], Alike], Joined]  # given the root, its nodes in order, and a search


@dataclass(frozen=True, kw_only=True)
class DraftRule(Rule):
    """A rule on the draft of a plan in a later phase."""

    apply: Callable[[Draft], Draft]  # returns a better draft, or one that says what stopped the rule
    later: tuple[Phase, Callable[[Draft], Draft]] | None = None  # a second function, for a later phase

    def steps(self, phase: Phase) -> list[Callable[[Draft], Draft]]:
        """Return the functions that the rule applies in a phase."""
        found = [self.apply] if phase == self.phase else []
        return [*found, self.later[1]] if self.later is not None and self.later[0] == phase else found


Again = Callable[[str, bool], Draft]
"""A function that makes a plan anew, without the rule of a name. If True is given, evaluation has a pass of its own."""


@dataclass(frozen=True, kw_only=True)
class ChoiceRule(Rule):
    """A choice by cost between finished plans."""

    phase: Phase = "choices"
    apply: Callable[[Draft, Again, Sequence[Rule]], Draft]  # given the usual plan and the enabled rules


@dataclass(frozen=True, kw_only=True)
class BatchRule(Rule):
    """A rule on the finished plans of the models of a batch."""

    phase: Phase = "models"
    apply: Callable[[Sequence[Plan]], Any]  # returns the stacks of the plans
