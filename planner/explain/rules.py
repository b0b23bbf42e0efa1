"""The part of explain about rules: where each rule fired and what it gained, or why it did not fire."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from planner.collector import collector_paused
from planner.compiler import Planned, without
from planner.explain.sizes import counted, duration, size
from planner.history import Firing
from planner.labels import layer_of, place
from planner.nodes import Node
from planner.physical import Plan
from planner.places import listed
from planner.printer import WIDTH, has_line, label, row_inputs, shape
from planner.rule import Rule
from planner.rules import RULES
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

SAME, GAIN, LOSS = "=", "+", "!"  # marks before the line on what a rule gains


@collector_paused()
def rule_lines(planned: Planned) -> list[str]:
    """Return lines on every rule: how often it fired, where, and what that gained, or why it did not fire."""
    lines: list[str] = []
    for fact in _rule_facts(planned, ablations(planned)):
        state = _state(fact["enabled"], fact["fired"])
        where = f": {listed(fact['where'])}" if fact["where"] else ""
        lines += textwrap.wrap(
            f"{fact['name']:<22}{state}{where}", WIDTH, subsequent_indent=" " * 24, break_on_hyphens=False
        )
        gain = fact["gain"]
        lines += _wrapped(gain_mark(gain), gain_words(gain)) if gain else []
        lines += [piece for reason in fact["declined"] for piece in _wrapped("-", reason)]
    return lines


def rule_state(planned: Planned, name: str) -> str:
    """Return the state of a rule, in two or three words."""
    (rule,) = (rule for rule in RULES if rule.name == name)
    return _state(_enabled(planned, rule), planned.fired(rule))


def _state(enabled: bool, fired: int) -> str:
    return "off" if not enabled else f"fired {fired}x" if fired else "did not fire"


def _enabled(planned: Planned, rule: Rule) -> bool:
    options = planned.options
    return rule.name not in options.disabled and (options.plan != "general" or rule.in_general_plan)


def _wrapped(mark: str, reason: str) -> list[str]:
    return textwrap.wrap(reason, WIDTH - 4, initial_indent=f"  {mark} ", subsequent_indent="    ")


def gain_words(gain: Mapping[str, Any]) -> str:
    """Return a sentence that compares the training pass with and without a rule.

    If the rule is about evaluation, the sentence compares an epoch with its evaluation.
    """
    with_it, taken = _told(gain, ""), _told(gain, "_without")
    of_what = "an epoch with its evaluation" if gain["evaluated"] else "the training pass"
    steps = "step" if gain["steps"] == 1 else "steps"
    if gain_mark(gain) == SAME:
        to_what, why = " to an epoch with its evaluation" * gain["evaluated"], gain["same_because"]
        return f"no difference{to_what}: {with_it} {steps}{'; ' * bool(why)}{why}"
    percent = _percent_spared(gain)
    change = f" is {abs(percent):.0f}% {'shorter' if percent > 0 else 'longer'}" if abs(percent) >= 1 else ""
    return f"{of_what}{change}: {with_it} {steps}; without it, {taken}"


def gain_mark(gain: Mapping[str, Any]) -> str:
    """Return `SAME` if a rule changes no printed figure, `LOSS` if it takes at least 1 % more time, else `GAIN`."""
    if _told(gain, "") == _told(gain, "_without"):
        return SAME
    return LOSS if _percent_spared(gain) <= -1 else GAIN


def _told(gain: Mapping[str, Any], suffix: str) -> str:
    return f"{duration(gain[f'seconds{suffix}'])}, {size(gain[f'bytes{suffix}'])} in {gain[f'steps{suffix}']}"


def _percent_spared(gain: Mapping[str, Any]) -> float:
    """Return the seconds that a rule spares, in percent of the seconds without it."""
    ours, others = gain["seconds"], gain["seconds_without"]
    return 100 * (1 - ours / others) if others else 0.0


def ablations(planned: Planned) -> dict[str, Planned]:
    """Return the plans without each rule that fired on the plan, by the name of the rule."""
    return {rule.name: without(planned, rule.name) for rule in RULES if planned.firings[rule.name]}


@collector_paused()
def rule_facts(planned: Planned, less: Mapping[str, Planned] | None = None) -> list[dict[str, Any]]:
    """Return the facts about every rule as plain data, in the order of RULES.

    Args:
        planned: The plan.
        less: The result of `ablations(planned)`, or None to compute it here.
    """
    less = ablations(planned) if less is None else less
    below = _Below()
    return [
        fact | {"rewrites": [_rewrite(firing, below) for firing in _firings(planned, fact["name"])]}
        for fact in _rule_facts(planned, less)
    ]


def _firings(planned: Planned, name: str) -> list[Firing]:
    return [firing for firing in planned.rewritten.firings if firing.rule == name]


def _rule_facts(planned: Planned, less: Mapping[str, Planned]) -> list[dict[str, Any]]:
    """Return the facts about every rule, without its rewrites.

    The first rule that leaves neighbourhoods to be collected has one more reason: the time that collected
    neighbourhoods take in all layers.
    """
    ours = {kind: _walked(planned, kind, "") for kind in {rule.of_evaluation for rule in RULES if rule.name in less}}
    facts = [_rule_fact(planned, rule, less.get(rule.name), ours) for rule in RULES]
    leaving = [entry.rule for entry in planned.rewritten.declined if entry.collects]
    first = next((fact for fact in facts if fact["name"] in leaving), None)
    if first is not None and (said := _collecting(planned)):
        first["declined"].append(said)
    return facts


def _rule_fact(
    planned: Planned, rule: Rule, less: Planned | None, ours: Mapping[bool, Mapping[str, float]]
) -> dict[str, Any]:
    """Return the facts about one rule. `ours` holds the figures of the plan with all rules, by kind of pass."""
    enabled, fired = _enabled(planned, rule), planned.fired(rule)
    declined = [entry.reason for entry in planned.rewritten.declined if entry.rule == rule.name]
    if enabled and not (fired or declined):
        declined = (rule.why_not(planned.draft) if rule.why_not is not None else []) or [rule.idle]
    return {
        "name": rule.name,
        "enabled": enabled,
        "fired": fired,
        "where": _where(planned, rule) if fired else [],
        "declined": declined,
        "gain": _gain(planned, less, rule, ours[rule.of_evaluation]) if less is not None else None,
    }


def _where(planned: Planned, rule: Rule) -> list[str]:
    """Return the places where a rule fired."""
    return rule.where(planned.draft, rule.name)


def _collecting(planned: Planned) -> str:
    """Return the time that neighbourhoods take, in a sentence, or "" if none is collected.

    It is the time to bring them to the DL Engine, to compute on them there, and to take their gradients back.
    """
    cost = planned.cost(planned.plan.train)
    costs = zip(planned.plan.train, cost.steps, strict=True)
    seconds = sum(cost.seconds for step, cost in costs if _is_of_neighbourhoods(step))
    if not seconds:
        return ""
    told, of_all = duration(seconds), duration(cost.seconds)
    return f"all that is collected, and what is computed on it, takes {told} of the {of_all} of the training pass"


def _is_of_neighbourhoods(step: Step) -> bool:
    return isinstance(step, CollectStep | GatherStep) or (isinstance(step, PipeStep) and bool(step.collections))


def _gain(planned: Planned, less: Planned, rule: Rule, ours: Mapping[str, float]) -> dict[str, Any]:
    """Return the steps, bytes and estimated seconds of a training pass with and without a rule.

    If the rule is about evaluation, they are those of an epoch with its evaluation.
    """
    gain = {"evaluated": rule.of_evaluation, **ours, **_walked(less, rule.of_evaluation, "_without")}
    return gain | {"same_because": _why_same(planned, less, rule) if gain_mark(gain) == SAME else ""}


def _walked(planned: Planned, evaluated: bool, suffix: str) -> dict[str, float]:
    """Return the figures of an epoch with its evaluation, or of the training pass, under names with a suffix."""
    passes = planned.plan.epoch(evaluates=True) if evaluated else (planned.plan.train,)
    return {
        f"steps{suffix}": sum(map(len, passes)),
        f"bytes{suffix}": sum(moved_bytes(planned, steps) for steps in passes),
        f"seconds{suffix}": sum(planned.cost(steps).seconds for steps in passes),
    }


def moved_bytes(planned: Planned, steps: Sequence[Step]) -> int:
    """Return the bytes that the steps of a pass hand on together."""
    return sum(step.bytes(planned.statistics, planned.plan) for step in steps)


def _why_same(planned: Planned, less: Planned, rule: Rule) -> str:
    """Return the reason, in words, why a rule that fired changes no printed figure of its passes."""
    if replace(planned.plan, fired=()) == replace(less.plan, fired=()):
        return _said_of_others([other.name for other in RULES if other != rule and _does_more(less, planned, other)])
    changed = [words for words, steps in _WALKS.items() if steps(planned.plan) != steps(less.plan)]
    if changed:
        its_own = list(_WALKS)[: 3 if rule.of_evaluation else 1]
        is_small = bool({*changed} & {*its_own})
        return "it changes less than these figures show" if is_small else f"it changes {' and '.join(changed)}"
    if rule.unseen:
        return rule.unseen
    spared = _calls(less.plan) - _calls(planned.plan)
    how_many = (
        f"{counted(abs(spared), 'operator')} {'fewer' if spared > 0 else 'more'}" if spared else "as many operators"
    )
    return f"the same steps, with {how_many} in their stages"


_WALKS: Mapping[str, Callable[[Plan], Sequence[Step]]] = {
    "the training pass": lambda plan: plan.train,
    "an evaluation": lambda plan: plan.evaluate,
    "the pass that trains and evaluates": lambda plan: plan.train_and_evaluate,
    "what is computed once": lambda plan: plan.prepare,
}


def _does_more(one: Planned, other: Planned, rule: Rule) -> bool:
    """Return True if a rule fires more often on one plan than on the other, or as often but in other places."""
    ours, others = one.fired(rule), other.fired(rule)
    return ours > others or (ours == others > 0 and _where(one, rule) != _where(other, rule))


def _said_of_others(rules: Sequence[str]) -> str:
    if not rules:
        return "the plan without it is the same"
    return f"without it, {' and '.join(rules)} {'comes' if len(rules) == 1 else 'come'} to the same plan"


def _calls(plan: Plan) -> int:
    return sum(len(stage.calls) for stage in plan.stages)


# --- rewrites -------------------------------------------------------------------------------------------------------


class _Below:
    """The sets of nodes at or below each node, as bits of an integer.

    Models are deep, and hundreds of rewrites of one model go down to its inputs, so sets of nodes would take long.
    """

    def __init__(self) -> None:
        self._places: dict[Node, int] = {}
        self._bits: dict[Node, int] = {}

    def has(self, root: Node, node: Node) -> bool:
        """Return True if `node` is at or below `root`. Both must have been given to `learn`."""
        return bool(self._bits[root] >> self._places[node] & 1)

    def learn(self, root: Node) -> None:
        """Note the nodes at and below a node."""
        stack = [root]
        while stack:
            node = stack[-1]
            unknown = [child for child in node.children if child not in self._bits]
            stack.extend(unknown)
            if not unknown:
                self._note(stack.pop())

    def _note(self, node: Node) -> None:
        place = self._places.setdefault(node, len(self._places))
        self._bits[node] = reduce(or_, (self._bits[child] for child in node.children), 1 << place)


def _rewrite(firing: Firing, below: _Below) -> dict[str, Any]:
    if firing.beside is not None:
        return _joining(firing.beside, firing.before, firing.after)
    below.learn(firing.before)
    below.learn(firing.after)
    return {"layer": layer_of(firing.before), "before": _lines(firing.before, firing.after, below),
            "after": _lines(firing.after, firing.before, below)}  # fmt: skip


def _joining(first: Node, twin: Node, after: Node) -> dict[str, Any]:
    """Return the facts about two operators that were joined.

    Their inputs are left out, because both have the same ones.
    """
    return {"layer": layer_of(twin), "before": [_placed(first), _placed(twin)], "after": [_placed(after)]}


def _placed(node: Node) -> str:
    """Return the line of an operator with its layer. The labels of some operators name it already."""
    words = label(node)
    return f"{words} {shape(node)}" + ("" if "layer=" in words else f", {place(node)}")


def _lines(root: Node, other: Node, below: _Below) -> list[str]:
    """Return lines with the operators that only one side of a rewrite has, inputs indented below.

    An operator that both sides have begins with `...`, and its inputs are left out.
    """
    lines, stack, shown = [], [(root, 0)], set()
    while stack:
        node, depth = stack.pop()
        new = not below.has(other, node)
        lines.append("  " * depth + ("" if new else "... ") + f"{label(node)} {shape(node)}")
        if new and node not in shown:
            stack.extend((child, depth + 1) for child in reversed(row_inputs(node)) if has_line(child))
        shown.add(node)
    return lines
