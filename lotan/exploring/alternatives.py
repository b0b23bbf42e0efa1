"""Alternatives to the chosen plan: other engines, rules left out, and work divided otherwise, by estimated seconds."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Literal

from lotan.engines.choice import ENGINES
from lotan.memory.limit import MORE_PARTITIONS, MemoryLimit
from lotan.planning import cost_cache
from lotan.planning.job import Job
from lotan.planning.learned import rows_in_spark
from lotan.planning.prepare import session_master
from lotan.planning.pricing import priced, spread_over
from lotan.settings.config import TrainerConfig
from planner.choices.choose_physical import LEAST_GAIN
from planner.compiler import Planned, without
from planner.explain.rules import moved_bytes
from planner.explain.sizes import duration, memory, size
from planner.physical import Plan, Stage
from planner.plan_names import plan_name
from planner.printer import WIDTH
from planner.steps.step import Step
from planner.traits import EngineTraits

LEGEND = (
    'The first word of a line is a name for --plan; a rule that the plan does without follows a "-". The plan after > runs. '
    '"against" compares a plan with the plan of its engine with all rules, and the latter with >: kinds of steps, columns that '
    "steps hand on, and levels, the vertices that training depends on. Seconds are estimated with the rates above. `lotan "
    "doctor --calibrate` measures the rates of this machine, and --analyze a plan. docs/concepts/choices.md says what is weighed."
)


@dataclass(frozen=True)
class Asked:
    """The settings that lead to an alternative plan: its engine, and at most one of the others."""

    engine: str
    without: str | None = None  # a rule that is disabled
    general: bool = False  # True for the general plan
    partitions: int | None = None
    workers: int | None = None

    @property
    def alone(self) -> bool:
        """True if nothing is asked for but the engine."""
        return self == Asked(self.engine)

    @property
    def spread(self) -> str:
        """The options of the command line that divide a plan's work otherwise, or "" if none do."""
        spread = {"partitions": self.partitions, "workers": self.workers}
        return " ".join(f"--{name} {count}" for name, count in spread.items() if count is not None)

    @property
    def options(self) -> str:
        """The options of the command line that ask for the plan.

        >>> Asked("blocks", without="push_down").options, Asked("rows", partitions=8).options
        ('--engine blocks --disable push_down', '--engine rows --partitions 8')
        """
        rule = f"--disable {self.without}" if self.without else ""
        general = "--plan general" if self.general else ""
        return " ".join(filter(None, [f"--engine {self.engine}", rule, general, self.spread]))


@dataclass(frozen=True)
class Alternative:
    """A plan, with its name and the settings that ask for it."""

    # the value of `plan` that asks for it, see lotan.settings.plan_names; plans that only divide their work otherwise
    # share it
    name: str
    asked: Asked
    chosen: bool  # True if it is the plan that would run
    seconds: float  # estimated seconds of an epoch, with its evaluation if every epoch has one
    steps: int  # steps of an epoch, with its evaluation if every epoch has one
    bytes: int  # bytes that these steps hand on
    differs: str  # the difference in words: to the plan of its engine with all rules, or of that plan to the chosen one
    peak_bytes: int  # estimated peak bytes of all processes on this host
    fits: bool  # True if it fits the memory limit


def alternatives(job: Job, config: TrainerConfig) -> list[Alternative]:
    """List each engine's plan, its plans without one of the rules that fire, and plans divided otherwise; the fastest first.

    Args:
        job: The job with the chosen plan.
        config: The settings of the run.
    """
    known = cost_cache.load()
    found = []
    for engine, traits in ENGINES.items():
        unable = job.train.learned and "learned_rows" not in traits.abilities
        if unable or (traits.needs_rgb and not config.rgb):
            continue
        listed = list(variants(job, config, engine, known))
        first = listed[0][0]
        for planned, asked in listed:
            beside = job.plan if planned is first else first.plan
            found.append(_alternative(job, config, known, planned, asked, beside))
        for spread, asked in _spreads(config, traits):
            found.append(_alternative(job, spread, known, first, asked, first.plan))
    return sorted(found, key=lambda one: one.seconds)


def _spreads(config: TrainerConfig, traits: EngineTraits) -> Iterator[tuple[TrainerConfig, Asked]]:
    """Yield other numbers of partitions (more) and of workers (half as many), unless the settings give them."""
    if traits.in_process:
        return
    layout = MemoryLimit.of(config).layout(traits, config.partitions)
    if config.partitions is None:
        for times in MORE_PARTITIONS[:2]:
            count = times * layout.crew.tasks
            yield replace(config, partitions=count), Asked(traits.name, partitions=count)
    if config.workers is None and layout.crew.workers > 1:
        count = layout.crew.workers // 2
        yield replace(config, workers=count), Asked(traits.name, workers=count)


def variants(
    job: Job, config: TrainerConfig, engine: str, known: cost_cache.Known | None = None
) -> Iterator[tuple[Planned, Asked]]:
    """Yield plans for an engine with the settings that ask for them, first the plan with all rules that are not disabled.

    Args:
        job: The job with the chosen plan.
        config: The settings of the run.
        engine: The name of the engine.
        known: The known costs; None: those of this machine.
    """
    master, in_spark = session_master(job.graph, config), rows_in_spark(config, job.train, job.statistics.vertices)
    pricing = priced(ENGINES[engine], config, known or cost_cache.load(), master, in_spark)
    options = replace(job.planned.options, pricing=pricing)
    first = job.planned.with_options(options)
    yield first, Asked(engine)
    if first.options.plan == "general":
        return
    for rule in first.plan.fired:
        yield without(first, rule), Asked(engine, without=rule)
    general: Literal["general"] = "general"
    yield first.with_options(replace(first.options, plan=general)), Asked(engine, general=True)


def _alternative(
    job: Job, config: TrainerConfig, known: cost_cache.Known, planned: Planned, asked: Asked, beside: Plan
) -> Alternative:
    in_spark = rows_in_spark(config, job.train, job.statistics.vertices)
    plan, traits, limit = planned.plan, planned.options.traits, MemoryLimit.of(config, in_spark)
    needs = limit.needs(traits, plan, job.statistics, config.partitions)
    below = limit.bytes if job.batch is None and job.scored is None else None
    prices = priced(traits, config, known, session_master(job.graph, config), in_spark)
    pricing = spread_over(prices, needs, below, limit.storage(traits, needs))
    passes = plan.epoch(config.eval_every == 1)
    chosen = traits.name == job.engine.name and asked.alone
    return Alternative(
        name=plan_name(traits.name, planned.options.disabled, planned.options.plan),
        asked=asked,
        chosen=chosen,
        seconds=planned.seconds_at(pricing),
        steps=sum(map(len, passes)),
        bytes=sum(moved_bytes(planned, steps) for steps in passes),
        differs="" if chosen else _differences(plan, beside),
        peak_bytes=needs.peak,
        fits=limit.bytes is None or needs.least <= limit.bytes,
    )


def _differences(plan: Plan, other: Plan) -> str:
    """Return in words what a plan has more or less than another: kinds of steps, levels, passes, columns, or else stages."""
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
    """Return the difference in the columns that are made."""
    ours, theirs = ([column.shape for step in each for column in step.columns_made] for each in (steps, others))
    if more := len(ours) - len(theirs):
        return f"{more:+} column{'s' * (abs(more) > 1)}"
    return "" if ours == theirs else "columns of other widths"


def _in_stages(plan: Plan, other: Plan) -> str:
    """Return the difference between plans that take the same steps."""
    ours, theirs = (replace(one, stages=_keeping_alike(one), fired=()) for one in (plan, other))
    if ours != theirs:
        return "the same steps, with other stages"
    return "the same steps" if plan.stages == other.stages else "the same steps, but for what is kept beyond memory"


def _keeping_alike(plan: Plan) -> tuple[Stage, ...]:
    """Return a plan's stages as if all stored their saved values in the same place."""
    return tuple(replace(stage, overflow="file", worth=0.0) for stage in plan.stages)


def _kinds_more(steps: Iterable[Step], others: Iterable[Step]) -> str:
    """Return how many more or fewer steps of each kind there are."""
    ours, theirs = (Counter(type(step).__name__.removesuffix("Step") for step in each) for each in (steps, others))
    return ", ".join(f"{ours[k] - theirs[k]:+} {k}" for k in sorted(ours | theirs) if ours[k] != theirs[k])


def alternative_lines(found: Sequence[Alternative]) -> list[str]:
    """Return a table in which `>` marks the plan that would run. Rules without effect on an engine's figures follow below it."""
    alike = _alike(found)
    shown = [one for one in found if not any(one in others for others in alike.values())]
    wide = max(len(_called(one)) for one in shown) + 1
    head = f"  {'':<{wide}}{'an epoch':>9}{'hands on':>9}{'steps':>6}{'peak':>11}  against"
    lines = ["== alternatives ==", head]
    for one in shown:
        said = ", ".join(filter(None, [one.differs, "" if one.fits else "over the limit"]))
        line = f"{'>' if one.chosen else ' '} {_called(one):<{wide}}{_figures(one)}  {said}".rstrip()
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=" " * head.index("against"), drop_whitespace=True)
    for engine, others in alike.items():
        rules = ", ".join(str(one.asked.without) for one in others)
        lines += _below(f"as {engine}: without {rules}")
    return [
        *lines,
        *_below(LEGEND),
        *_below(_why_not_the_first(found)),
    ]


def _below(said: str) -> list[str]:
    return textwrap.wrap(said, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _figures(one: Alternative) -> str:
    return f"{duration(one.seconds):>9}{size(one.bytes):>9}{one.steps:>6}{memory(one.peak_bytes):>11}"


def _alike(found: Sequence[Alternative]) -> dict[str, list[Alternative]]:
    """Return, by the name of each engine's plan, the plans with one rule less that have the same figures."""
    firsts = {one.asked.engine: one for one in found if one.asked.alone}
    alike: dict[str, list[Alternative]] = {first.name: [] for first in firsts.values()}
    for one in found:
        first = firsts[one.asked.engine] if one.asked.without else None
        if first is not None and (_figures(one), one.fits) == (_figures(first), first.fits):
            alike[first.name].append(one)
    return {name: others for name, others in alike.items() if others}


def _why_not_the_first(found: Sequence[Alternative]) -> str:
    """Return why an engine's fastest plan is not the one that runs; an empty text if it runs."""
    chosen = next(one for one in found if one.chosen)
    first = next(one for one in found if one.asked.engine == chosen.asked.engine)
    if duration(first.seconds) == duration(chosen.seconds):
        return ""
    if not first.fits:
        reason = "it takes more memory than the limit"
    elif first.seconds > (1 - LEAST_GAIN) * chosen.seconds:
        reason = f"it would save less than {LEAST_GAIN:.0%} of an epoch, and estimates err by as much"
    else:
        reason = "this choice does not rest on estimates; --plan asks for it"
    return f"{_called(first)} does not run in place of >: {reason}."


def _called(one: Alternative) -> str:
    """Return the plan's name, followed by the options that divide its work."""
    return f"{one.name} {one.asked.spread}".rstrip()


def alternative_data(found: Sequence[Alternative]) -> list[dict[str, Any]]:
    """Return the alternatives as plain data, with the settings that ask for each as options of the command line."""
    figures = [item.name for item in fields(Alternative) if item.name not in ("name", "asked")]
    return [
        {"name": one.name, "options": one.asked.options, **{name: getattr(one, name) for name in figures}}
        for one in found
    ]
