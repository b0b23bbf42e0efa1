"""The plans that could have been: other engines, rules left out, and work spread otherwise, by their estimated seconds."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Literal

from lotan import cost_cache
from lotan.engines.choice import ABILITIES
from lotan.job import Job, session_master
from lotan.memory_limit import MORE_PARTITIONS, MemoryLimit
from lotan.pricing import priced, spread_over
from lotan.settings import TrainerConfig
from planner.choices.choose_physical import LEAST_GAIN
from planner.compiler import Planned, without
from planner.explain import duration, size
from planner.explain.rules import moved_bytes
from planner.physical import Plan, Stage, Step, columns_made
from planner.plan_names import plan_name
from planner.printer import WIDTH

LEGEND = (
    'The first word of a line is what --plan takes, a rule less is behind a "-". > is what runs. "against" says what a plan has '
    "more or less than its engine's with all rules, and that one than >: steps of a kind; columns, which steps hand on; levels, "
    "the vertices that training depends on. Seconds are estimated by the rates above, and `lotan doctor --calibrate` has rates "
    "of this machine; --analyze measures a plan. What is weighed by them: docs/planner.md, Costs."
)
SPREADING = ("--partitions", "--workers")  # options


@dataclass(frozen=True)
class Alternative:
    """A plan, by its name and by the options that ask for it."""

    name: str  # which asks for it as `plan`; see lotan.plan_names. Those that only spread their work otherwise share it
    options: str  # of the command line, beside those given
    chosen: bool  # whether it is what would run
    seconds: float  # of an epoch, with its evaluation where each has one, estimated
    steps: int  # of one, with its evaluation where each has one
    bytes: int  # that they hand on
    differs: str  # in words: what an epoch has more or less than its engine's, or that than the chosen plan's
    peak_bytes: int  # of all processes on this host, estimated
    fits: bool  # within the memory limit


def alternatives(job: Job, config: TrainerConfig) -> list[Alternative]:
    """Each engine's plan, those without each of the rules that fire in it, and itself spread otherwise; the fastest first.

    Args:
        job: what was chosen.
        config: what was asked for.
    """
    known = cost_cache.load()
    found = []
    for engine in ABILITIES:
        if not config.rgb and engine == "blocks":
            continue
        listed = list(variants(job, config, engine, known))
        first = listed[0][0]
        for planned, words in listed:
            beside = job.plan if planned is first else first.plan
            found.append(_alternative(job, config, known, planned, words, beside))
        for spread, words in _spreads(config, engine):
            found.append(_alternative(job, spread, known, first, f"--engine {engine} {words}", first.plan))
    return sorted(found, key=lambda one: one.seconds)


def _spreads(config: TrainerConfig, engine: str) -> Iterator[tuple[TrainerConfig, str]]:
    """Other numbers of partitions and workers, where nobody asked for some: more of the former, and half of the latter."""
    if engine == "local":
        return
    layout = MemoryLimit.of(config).layout(engine, config.partitions)
    if config.partitions is None:
        for times in MORE_PARTITIONS[:2]:
            count = times * layout.crew.tasks
            yield replace(config, partitions=count), f"--partitions {count}"
    if config.workers is None and layout.crew.workers > 1:
        count = layout.crew.workers // 2
        yield replace(config, workers=count), f"--workers {count}"


def variants(
    job: Job, config: TrainerConfig, engine: str, known: cost_cache.Known | None = None
) -> Iterator[tuple[Planned, str]]:
    """Plans for an engine, and how to ask for them; first the one with the rules that were asked for.

    Args:
        job: what was chosen.
        config: what was asked for.
        engine: by name.
        known: of costs; None: what is known on this machine.
    """
    pricing = priced(engine, config, known or cost_cache.load(), session_master(job.graph, config))
    options = replace(job.planned.options, abilities=ABILITIES[engine], engine=engine, pricing=pricing)
    first = job.planned.with_options(options)
    yield first, f"--engine {engine}"
    if first.options.plan == "general":
        return
    for rule in first.plan.fired:
        yield without(first, rule), f"--engine {engine} --disable {rule}"
    general: Literal["general"] = "general"
    yield first.with_options(replace(first.options, plan=general)), f"--engine {engine} --plan general"


def _alternative(
    job: Job, config: TrainerConfig, known: cost_cache.Known, planned: Planned, words: str, beside: Plan
) -> Alternative:
    plan, engine, limit = planned.plan, planned.options.engine, MemoryLimit.of(config)
    needs = limit.needs(engine, plan, job.statistics, config.partitions)
    pricing = spread_over(priced(engine, config, known, session_master(job.graph, config)), needs)
    passes = plan.epoch(config.eval_every == 1)
    chosen = engine == job.engine.name and words == f"--engine {engine}"
    return Alternative(
        name=plan_name(engine, planned.options.disabled, planned.options.plan),
        options=words,
        chosen=chosen,
        seconds=planned.seconds_at(pricing),
        steps=sum(map(len, passes)),
        bytes=sum(moved_bytes(planned, steps) for steps in passes),
        differs="" if chosen else _differences(plan, beside),
        peak_bytes=needs.peak,
        fits=limit.bytes is None or needs.least <= limit.bytes,
    )


def _differences(plan: Plan, other: Plan) -> str:
    """What a plan has more or less than another: kinds of steps, levels, passes, columns; or what else differs."""
    both, others = (list(chain.from_iterable(one.epoch(evaluates=True))) for one in (plan, other))
    training = _kinds_more(plan.train, other.train)
    evaluated = "" if training else _kinds_more(both, others)
    found = [
        training,
        f"{evaluated}, with evaluation" if evaluated else "",
        _levels(plan, other),
        _evaluation(plan, other),
    ]
    found = found if training or evaluated else [*found, _columns_more(both, others)]
    return ", ".join(filter(None, found)) or _in_stages(plan, other)


def _levels(plan: Plan, other: Plan) -> str:
    ours, theirs = ({step.within for step in one.train} for one in (plan, other))
    if ours == theirs:
        return ""
    return "without levels" if ours == {None} else "with levels" if theirs == {None} else "other levels"


def _evaluation(plan: Plan, other: Plan) -> str:
    ours, theirs = (len(one.epoch(evaluates=True)) for one in (plan, other))
    return "" if ours == theirs else f"evaluation in {'a pass of its own' if ours > theirs else 'the same pass'}"


def _columns_more(steps: Iterable[Step], others: Iterable[Step]) -> str:
    """Of all columns that are made."""
    ours, theirs = ([column.shape for step in each for column in columns_made(step)] for each in (steps, others))
    if more := len(ours) - len(theirs):
        return f"{more:+} column{'s' * (abs(more) > 1)}"
    return "" if ours == theirs else "columns of other widths"


def _in_stages(plan: Plan, other: Plan) -> str:
    """Of plans that take the same steps."""
    ours, theirs = (replace(one, stages=_keeping_alike(one), fired=()) for one in (plan, other))
    if ours != theirs:
        return "the same steps, with other stages"
    return "the same steps" if plan.stages == other.stages else "the same steps, but for what is kept beyond memory"


def _keeping_alike(plan: Plan) -> tuple[Stage, ...]:
    """Its stages, as if all kept what they keep in the same place."""
    return tuple(replace(stage, overflow="file", worth=0.0) for stage in plan.stages)


def _kinds_more(steps: Iterable[Step], others: Iterable[Step]) -> str:
    """Of each kind, how many more, or less."""
    ours, theirs = (Counter(type(step).__name__.removesuffix("Step") for step in each) for each in (steps, others))
    return ", ".join(f"{ours[k] - theirs[k]:+} {k}" for k in sorted(ours | theirs) if ours[k] != theirs[k])


def alternative_lines(found: Sequence[Alternative]) -> list[str]:
    """A table; `>` stands before what would run. Rules that make no difference to an engine's figures are in a line below."""
    alike = _alike(found)
    shown = [one for one in found if not any(one in others for others in alike.values())]
    wide = max(len(_called(one)) for one in shown) + 1
    head = f"  {'':<{wide}}{'an epoch':>9}{'hands on':>9}{'steps':>6}{'peak':>9}  against"
    lines = ["== alternatives ==", head]
    for one in shown:
        said = ", ".join(filter(None, [one.differs, "" if one.fits else "over the limit"]))
        line = f"{'>' if one.chosen else ' '} {_called(one):<{wide}}{_figures(one)}  {said}".rstrip()
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=" " * head.index("against"), drop_whitespace=True)
    for engine, others in alike.items():
        rules = ", ".join(one.options.split()[-1] for one in others)
        lines += _below(f"as {engine}: without {rules}")
    return [
        *lines,
        *_below(LEGEND),
        *_below(_why_not_the_first(found)),
    ]


def _below(said: str) -> list[str]:
    return textwrap.wrap(said, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _figures(one: Alternative) -> str:
    return f"{duration(one.seconds):>9}{size(one.bytes):>9}{one.steps:>6}{size(one.peak_bytes):>9}"


def _alike(found: Sequence[Alternative]) -> dict[str, list[Alternative]]:
    """Of each engine's plan, by its name, those with a rule less that have the same figures."""
    firsts = {one.options: one for one in found if one.options == f"--engine {one.options.split()[1]}"}
    alike: dict[str, list[Alternative]] = {first.name: [] for first in firsts.values()}
    for one in found:
        engine, _, less = one.options.partition(" --disable ")
        first = firsts[engine] if less else None
        if first is not None and (_figures(one), one.fits) == (_figures(first), first.fits):
            alike[first.name].append(one)
    return {name: others for name, others in alike.items() if others}


def _why_not_the_first(found: Sequence[Alternative]) -> str:
    """Why an engine's fastest plan is not the one that runs there; "" where it is."""
    chosen = next(one for one in found if one.chosen)
    first = next(one for one in found if one.options.split()[1] == chosen.options.split()[1])
    if duration(first.seconds) == duration(chosen.seconds):
        return ""
    if not first.fits:
        reason = "it takes more memory than the limit"
    elif first.seconds > (1 - LEAST_GAIN) * chosen.seconds:
        reason = f"it would spare less than {LEAST_GAIN:.0%} of an epoch, and estimates err by as much"
    else:
        reason = "that is not weighed by estimates; --plan asks for it"
    return f"{_called(first)} does not run in place of >: {reason}."


def _called(one: Alternative) -> str:
    """The name, and what else has to be asked for."""
    spread = [option for option in SPREADING if option in one.options.split()]
    return " ".join([one.name, *(one.options[one.options.index(option) :] for option in spread)])


def alternative_data(found: Sequence[Alternative]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [asdict(one) for one in found]
