"""The plans that could have been: other engines, and rules left out, by what an epoch of each is estimated to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lotan import cost_cache
from lotan.engines.choice import ABILITIES
from lotan.job import Job
from lotan.memory_limit import MemoryLimit
from lotan.pricing import priced
from lotan.settings import TrainerConfig
from planner import Options, compile_plan
from planner.cost import epoch_seconds
from planner.explain import duration, size
from planner.physical import Plan


@dataclass(frozen=True)
class Alternative:
    """A plan, by the options that ask for it."""

    options: str  # of the command line, beside those given
    chosen: bool  # whether it is what would run
    seconds: float  # of a training pass, estimated
    steps: int  # of one
    peak_bytes: int  # of all processes on this host, estimated
    fits: bool  # within the memory limit


def alternatives(job: Job, config: TrainerConfig) -> list[Alternative]:
    """Each engine's plan, and its plans without each of the rules that fire in it; the fastest first.

    Args:
        job: what was chosen.
        config: what was asked for.
    """
    known = cost_cache.load()
    found = [
        _alternative(job, config, known, engine, plan, words)
        for engine in ABILITIES
        if config.rgb or engine != "blocks"
        for plan, words in _variants(job, engine)
    ]
    return sorted(found, key=lambda one: one.seconds)


def _variants(job: Job, engine: str) -> Iterator[tuple[Plan, str]]:
    """Plans for an engine, and how to ask for them."""
    given = replace(job.planned.options, abilities=ABILITIES[engine], engine=engine)
    plan = _planned(job, given)
    yield plan, f"--engine {engine}"
    if given.plan == "general":
        return
    for rule in plan.fired:
        yield _planned(job, replace(given, disabled=(*given.disabled, rule))), f"--engine {engine} --disable {rule}"
    general: Literal["general"] = "general"
    yield _planned(job, replace(given, plan=general)), f"--engine {engine} --plan general"


def _planned(job: Job, options: Options) -> Plan:
    return compile_plan(*job.planned.given, job.statistics, options).plan


def _alternative(
    job: Job, config: TrainerConfig, known: cost_cache.Known, engine: str, plan: Plan, words: str
) -> Alternative:
    limit = MemoryLimit.of(config)
    needs = limit.needs(engine, plan, job.statistics, config.partitions)
    return Alternative(
        options=words,
        chosen=engine == job.engine.name and words == f"--engine {engine}",
        seconds=epoch_seconds(plan, job.statistics, priced(engine, config, known)).seconds,
        steps=len(plan.train),
        peak_bytes=needs.peak,
        fits=limit.bytes is None or needs.least <= limit.bytes,
    )


def alternative_lines(found: Sequence[Alternative]) -> list[str]:
    """A table; `>` stands before what would run."""
    lines = ["== alternatives ==", f"  {'':<52}{'an epoch':>10}{'steps':>7}{'peak':>11}"]
    for one in found:
        figures = f"{duration(one.seconds):>10}{one.steps:>7}{size(one.peak_bytes):>11}"
        limit = "" if one.fits else "  over the limit"
        lines.append(f"{'>' if one.chosen else ' '} {one.options:<52}{figures}{limit}")
    return lines


def alternative_data(found: Sequence[Alternative]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [asdict(one) for one in found]
