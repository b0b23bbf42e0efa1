"""A plan in at most 40 lines: its graph and engine, the rules that fired and what each gained, and the steps of an epoch.

Every rule and every step has one line, and a stage has one line for its operators. `text` writes the long form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from planner.compiler import Planned
from planner.explain.rules import GAIN, LOSS, gain_mark, rule_facts
from planner.explain.sizes import counted, duration, size
from planner.explain.text import head_text, own_line
from planner.printer import WIDTH
from planner.rules import RULES
from planner.spec import operator_name
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

MORE = 'Everything else, such as operator graphs and other passes: --verbose, or stage="all".'
STEP_ROOM = WIDTH - 43  # columns of a line for a step, beside its engine and its estimates
GAIN_ROOM = 42  # columns of a line for the gain of a rule


def brief_text(planned: Planned) -> str:
    """Return the plan in short, in lines of at most 100 columns. The text is deterministic."""
    training = planned.plan.train
    sections = [
        head_text(planned),
        "\n".join(["== rules that fired ==", *_rule_lines(planned), ""]),
        "\n".join(
            [f"== {'one batch' if planned.draft.is_batch else 'one epoch'} ==", *_step_lines(planned, training), ""]
        ),
    ]
    return "\n".join([*sections, MORE, ""])


def evaluation_text(planned: Planned) -> str:
    """Return the steps of evaluation on the whole graph, for a plan that trains on sampled batches."""
    known = planned.statistics
    title = f"== evaluation, on all {known.vertices:,} vertices and {known.edges:,} edges =="
    return "\n".join([title, *_step_lines(planned, planned.plan.evaluate), ""])


def rules_line(planned: Planned, room: int = WIDTH) -> str:
    """Return the names of the rules that fired, as many as fit in a line, and the number of the others."""
    return _fitting([rule.name for rule in RULES if planned.fired(rule)], room) or "none fired"


def _rule_lines(planned: Planned) -> list[str]:
    """Return a line for every rule that fired: how often, what it gained, and where."""
    fired = [fact for fact in rule_facts(planned) if fact["fired"]]
    if not fired:
        return ["none"]
    lines = []
    for fact in fired:
        gained = _gained(fact["gain"]) if fact["gain"] else ""
        start = f"{fact['name']:<22}{fact['fired']}x".ljust(28) + f"{gained:<{GAIN_ROOM - 1}} "
        lines.append(f"{start}{_fitting(fact['where'], WIDTH - len(start))}".rstrip())
    return lines


def _gained(gain: Mapping[str, Any]) -> str:
    """Return in a few words what a rule gained in the training pass, or in an epoch with its evaluation.

    >>> _gained({"evaluated": False, "seconds": 1.0, "seconds_without": 4.0, "bytes": 8, "bytes_without": 8,
    ...     "steps": 2, "steps_without": 3})
    '+ 75% shorter, by 3.0 s'
    """
    mark = gain_mark(gain)
    if mark not in (GAIN, LOSS):
        return f"{mark} no difference"
    spared = gain["seconds_without"] - gain["seconds"]
    percent = 100 * abs(spared) / gain["seconds_without"] if gain["seconds_without"] else 0.0
    if percent < 1:
        return f"{mark} {_moved(gain)}"
    of_what = ", with evaluation" if gain["evaluated"] else ""
    return f"{mark} {percent:.0f}% {'shorter' if spared > 0 else 'longer'}, by {duration(abs(spared))}{of_what}"


def _moved(gain: Mapping[str, Any]) -> str:
    """Return the gain of a rule that hardly changes the seconds: in bytes handed on, or else in steps."""
    if spared := gain["bytes_without"] - gain["bytes"]:
        return f"{size(abs(spared))} {'less' if spared > 0 else 'more'} handed on"
    steps = gain["steps_without"] - gain["steps"]
    if steps:
        return f"{counted(abs(steps), 'step')} {'fewer' if steps > 0 else 'more'}"
    return "under 1% of the seconds"


def _fitting(places: Sequence[str], room: int) -> str:
    """Return as many places as fit in a line, and the number of the others.

    >>> _fitting(["convs.0", "convs.1", "convs.2"], 23), _fitting(["convs.0", "convs.1"], 16), _fitting(["convs.0"], 6)
    ('convs.0 and 2 more', 'convs.0, convs.1', 'con...')
    """
    for shown in range(len(places), 0, -1):
        more = len(places) - shown
        said = ", ".join(places[:shown]) + (f" and {more} more" if more else "")
        if len(said) <= room:
            return said
    return _cut(places[0], room) if places else ""


def _step_lines(planned: Planned, steps: Sequence[Step]) -> list[str]:
    cost = planned.cost(steps)
    lines = []
    for number, (step, step_cost) in enumerate(zip(steps, cost.steps, strict=True)):
        rows, moved = step.rows(planned.statistics), step.bytes(planned.statistics, planned.plan)
        where = "dl" if isinstance(step, PipeStep) else "graph"
        estimates = f"{rows:>11,} rows  {size(moved):>8}  {duration(step_cost.seconds):>8}"
        lines.append(f"{f'{number:>2} {_short_label(step)}':<{STEP_ROOM}} {where:<6}{estimates}")
        if isinstance(step, PipeStep) and step.mode != "backward" and (calls := planned.plan.stage(step.stage).calls):
            lines.append(_cut("     " + operators(call.op for call in calls), WIDTH))
    return [*lines, *own_line(duration(cost.own))]


def _short_label(step: Step) -> str:
    """Return the text of a step, without its output if both do not fit."""
    whole = step.label
    room = STEP_ROOM - 3
    return whole if len(whole) <= room else _cut(whole.partition(" -> ")[0], room)


def _cut(text: str, room: int) -> str:
    """Return text that fits, with dots at its end if it was cut.

    >>> _cut("Propagate(mul_1)", 12)
    'Propagate...'
    """
    return text if len(text) <= room else text[: room - 3] + "..."


def operators(ops: Iterable[str]) -> str:
    """Return the operators of a stage, without libraries and overloads. Equal neighbours become one, with their number.

    >>> operators(["aten.mul.Tensor", "aten.mul.Scalar", "aten.relu.default", "lotan.dropout"])
    'mul x2, relu, dropout'
    """
    counts = ((name, len(list(each))) for name, each in groupby(map(operator_name, ops)))
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts)
