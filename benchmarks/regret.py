"""What the plan that the Planner chooses takes by what the fastest of its alternatives takes, less 1.

    python benchmarks/regret.py                      all; writes benchmarks/results/regret.md
    python benchmarks/regret.py --engines local      one engine
    python benchmarks/regret.py --cases 1 --rounds 1 the first case of each engine

The cases of `cost_model.py` on `local` and `blocks`. Of each, the plan that the engine would run, and those that
`lotan explain --alternatives` lists beside it for the same engine: without each of the rules that fired, and the general
plan. Left out are those whose epoch is the same but for names, views and weights of 1, and those that are estimated not to fit
in the memory that is free. All others run some epochs, but for those whose first one after the warm-up took more than 4 times
as long as the chosen one's. Of many plans that take as long, the one that chance favoured looks fastest: so the three fastest
of the others, whether faster than the chosen one or not, then run against it, in turns, another one first in each round. A
plan's seconds are the median over these rounds of its fastest epoch in each. An epoch is the training pass, the optimizer's
step and evaluation. Which engine to choose is what the regret of `cost_model.py` is about.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from apart import run_apart, write_table
from cost_model import cases as priced_cases
from epoch import machine

from lotan.engines.base import Engine
from lotan.exploring.alternatives import variants
from lotan.exploring.calibration import WARM_UP, Case, epochs_of, opened
from lotan.memory.free import free_memory
from lotan.memory.limit import MemoryLimit
from lotan.planning.job import Job
from lotan.planning.prepare import prepare
from lotan.settings.config import TrainerConfig
from planner.compiler import Planned
from planner.kernels import VIEWS
from planner.physical import Stage
from planner.renaming import rename_stage
from planner.spec import Ref, operator_name
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

RESULTS = Path(__file__).parent / "results" / "regret.md"
ENGINES = ("local", "blocks")
CHOSEN = ""  # the words that ask for it
EPOCHS = {"local": 8, "blocks": 4}  # measured in each round, after the warm-up
RIVALS = 3  # plans that run against the chosen one
SLOWER = 4  # times as long as the chosen plan's, in the first epoch that counts: what is not run again


def cases(engine: str) -> list[Case]:
    """Those that the Planner has a choice in."""
    return [case for case in priced_cases(engine) if case.plan == "auto"]


def plans_of(job: Job, config: TrainerConfig) -> dict[str, Job]:
    """The chosen plan first, and the others by what was left out of them."""
    engine, found, seen = job.engine.name, {}, set()
    limit, free = MemoryLimit.of(config), free_memory()
    for planned, asked in variants(job, config, engine):
        same, needs = run_by(planned), limit.needs(job.traits, planned.plan, job.statistics, config.partitions)
        if same not in seen and needs.peak <= free:
            seen.add(same)
            found[asked.options.removeprefix(f"--engine {engine}").strip()] = replace(job, planned=planned)
    return found


def run_by(planned: Planned) -> str:
    """What an epoch of the plan runs, as long as memory is not full, whatever columns, stages and their values are called."""
    plan, weighted = planned.plan, planned.statistics.weighted
    own = {column.name for column in plan.static_columns}
    columns: dict[str, str] = {}  # by the order in which they appear
    stages: dict[str, str] = {}

    def column(name: str) -> str:
        return name if name in own else columns.setdefault(name, f"column {len(columns)}")

    def stage(name: str) -> str:
        return stages.setdefault(name, f"stage {len(stages)}")

    def plain(step: Step) -> Step:
        if isinstance(step, PipeStep):
            places = {output.value: str(place) for place, output in enumerate(plan.stage(step.stage).outputs)}
            step = replace(step, gradients=tuple(replace(one, value=places[one.value]) for one in step.gradients))
        elif hasattr(step, "weighted") and not weighted:  # engines have no weights then, whatever the step says
            step = replace(step, weighted=False)
        return step.renamed(column, stage)

    passes = [[plain(step) for step in steps] for steps in plan.epoch(evaluates=True)]
    return repr((passes, [_form(rename_stage(plan.stage(name), column)) for name in stages]))


def _form(stage: Stage) -> tuple[object, ...]:
    inputs = [(i.column, i.shape, i.sparse, i.needs_gradient) for i in stage.inputs]
    places: dict[str, object] = {i.value: place for place, i in enumerate(stage.inputs)}
    calls = []
    for call in stage.calls:
        form = (
            call.op,
            call.type,
            [places.get(item.name, item) if isinstance(item, Ref) else item for item in call.arguments],
        )
        if operator_name(call.op) in VIEWS:
            places[call.output] = form
        else:
            places[call.output] = len(inputs) + len(calls)
            calls.append(form)
    return inputs, calls, [(o.column, o.shape, places.get(o.value)) for o in stage.outputs], stage.counts


def measure(engine: str, epochs: int | None, rounds: int, some: slice) -> Iterator[dict[str, Any]]:
    """The cases of an engine, in this process."""
    config = TrainerConfig(engine=engine)  # type: ignore[arg-type]
    with opened(engine, config) as running:
        for case in cases(engine)[some]:
            with ExitStack() as stack:
                plans = plans_of(prepare(case.model(), case.graph(), config, stack), config)
                seconds = compared(running, case, plans, epochs or EPOCHS[engine], rounds)
            print(f"{engine}: {case}: {seconds}", file=sys.stderr, flush=True)
            yield {"engine": engine, "case": asdict(case), "plans": len(plans), "seconds": seconds}


def compared(running: Engine, case: Case, plans: dict[str, Job], epochs: int, rounds: int) -> dict[str, float]:
    """Seconds of the chosen plan, and of those that run against it."""
    warm = WARM_UP[running.name]

    def run(words: str, count: int) -> list[float]:
        return epochs_of(running, plans[words], case.model(), warm + count, evaluates=True)[warm:]

    firsts = {words: run(words, 1) for words in plans}
    most = SLOWER * firsts[CHOSEN][0]
    tried = {words: min(run(words, epochs)) for words, (first,) in firsts.items() if first <= most and words != CHOSEN}
    finalists = [CHOSEN, *sorted(tried, key=lambda words: tried[words])[:RIVALS]]
    taken: dict[str, list[float]] = {words: [] for words in finalists}
    for number in range(rounds):
        first = number % len(finalists)
        for words in (*finalists[first:], *finalists[:first]):
            taken[words].append(min(run(words, epochs)))
    return {words: statistics.median(seconds) for words, seconds in taken.items()}


def table(found: list[dict[str, Any]]) -> list[str]:
    """The Markdown."""
    lines = ["| engine | cases | plans | median | worst |", "|---|---|---|---|---|"]
    for engine in ("all", *ENGINES):
        ours = [one for one in found if engine in ("all", one["engine"])]
        if ours:
            lost, plans = [regret(one) for one in ours], sum(one["plans"] for one in ours)
            lines.append(
                f"| {engine} | {len(ours)} | {plans} | {statistics.median(lost):.1%} | {max(lost, default=0):.1%} |"
            )
    lines += ["", "| engine | vertices | edges | width | trained | model | chosen, s | fastest, s | which | regret |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for one in found:
        case, seconds = Case(**one["case"]), one["seconds"]
        which = min(seconds, key=seconds.get)
        graph = f"{case.vertices:,} | {case.edges:,} | {case.width} | {case.share}"
        figures = f"{seconds[CHOSEN]:.4f} | {seconds[which]:.4f} | {which or 'the chosen one'} | {regret(one):.1%}"
        lines.append(f"| {one['engine']} | {graph} | {case.words} | {figures} |")
    return lines


def regret(one: dict[str, Any]) -> float:
    """Of a case."""
    seconds: dict[str, float] = one["seconds"]
    return seconds[CHOSEN] / min(seconds.values()) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES, help="(default: both)")
    parser.add_argument(
        "--epochs", type=int, help="measured epochs a round, after the warm-up (default: 8 on local, else 4)"
    )
    parser.add_argument("--rounds", type=int, default=4, help="of the chosen plan and its rivals (default: 4)")
    parser.add_argument("--skip", type=int, default=0, help="cases of each engine, from the first on (default: 0)")
    parser.add_argument("--cases", type=int, help="how many of each engine (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file (default: benchmarks/results/regret.md)")
    parser.add_argument("--one", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        some = slice(options.skip, None if options.cases is None else options.skip + options.cases)
        print(json.dumps(list(measure(options.one, options.epochs, options.rounds, some))))
        return
    words = ["--rounds", str(options.rounds), "--skip", str(options.skip)]
    words += [] if options.epochs is None else ["--epochs", str(options.epochs)]
    words += [] if options.cases is None else ["--cases", str(options.cases)]
    found = [one for engine in options.engines for one in run_apart(__file__, ["--one", engine, *words], engine)]
    command = shlex.join(["python", "benchmarks/regret.py", *sys.argv[1:]])
    head = ["# Regret", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-1:]]
    lines = table(found)
    write_table(options.out, [*head, *lines])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
