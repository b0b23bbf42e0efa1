"""What the plan that the Planner chooses takes by what the fastest of its alternatives takes, less 1.

    python benchmarks/regret.py                      all; writes benchmarks/results/regret.md
    python benchmarks/regret.py --engines local      one engine

The cases of `cost_model.py` on `local` and `blocks`. Of each, the plan that the engine would run, and those that
`lotan explain --alternatives` lists beside it for the same engine: without each of the rules that fired, and the general
plan. Left out are those whose epoch is the same but for names, views and weights of 1, and those that are estimated to take
more than 4 times as long. An epoch is the training pass, the optimizer's step and evaluation. Plans of a case take turns on
one engine, in another order each time; a plan's seconds are those of its fastest epoch after the warm-up. Which engine to
choose is what the regret of `cost_model.py` is about.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from apart import run_apart, write_table
from cost_model import cases
from epoch import machine

from lotan.alternatives import variants
from lotan.calibration import WARM_UP, Case, epochs_of, opened
from lotan.engines.base import Engine
from lotan.job import Job, prepare
from lotan.settings import TrainerConfig
from planner.compiler import Planned
from planner.keeping import VIEWS
from planner.physical import PipeStep, Stage
from planner.spec import Ref, operator_name

RESULTS = Path(__file__).parent / "results" / "regret.md"
ENGINES = ("local", "blocks")
EPOCHS = {"local": 15, "blocks": 5}  # measured in each round, after the warm-up
SLOWER = 4  # times as long, by the estimate: what is not tried


def plans_of(job: Job, config: TrainerConfig) -> dict[str, Job]:
    """The chosen plan first, and the others by what was left out of them."""
    found: dict[str, Job] = {}
    most = SLOWER * job.planned.seconds
    for planned, words in variants(job, config, job.engine.name):
        other = replace(job, planned=planned)
        if planned.seconds <= most and all(run_by(planned) != run_by(one.planned) for one in found.values()):
            found[words.removeprefix(f"--engine {job.engine.name}").strip()] = other
    return found


def run_by(planned: Planned) -> tuple[object, ...]:
    """What an epoch of the plan runs, as long as memory is not full, whatever values inside stages are called."""
    plan = planned.plan
    passes = plan.epoch(evaluates=True)
    stages = {step.stage for steps in passes for step in steps if isinstance(step, PipeStep)}
    if not planned.statistics.weighted:  # engines have no weights then, whatever the step says
        passes = [[replace(s, weighted=False) if hasattr(s, "weighted") else s for s in steps] for steps in passes]
    return passes, [_form(plan.stage(name)) for name in sorted(stages)]


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


def measure(engine: str, epochs: int | None, rounds: int, skip: int) -> Iterator[dict[str, Any]]:
    """The cases of an engine, in this process."""
    config = TrainerConfig(engine=engine)  # type: ignore[arg-type]
    with opened(engine, config) as running:
        for case in cases(engine)[skip:]:
            with ExitStack() as stack:
                plans = plans_of(prepare(case.model(), case.graph(), config, stack), config)
                seconds = least(running, case, plans, epochs or EPOCHS[engine], rounds)
            print(f"{engine}: {case}: {seconds}", file=sys.stderr, flush=True)
            yield {"engine": engine, "case": f"{case.kind}, {case.layers} x {case.hidden}",
                   "graph": [case.vertices, case.edges, case.width], "seconds": seconds}  # fmt: skip


def least(running: Engine, case: Case, plans: dict[str, Job], epochs: int, rounds: int) -> dict[str, float]:
    """The fastest epoch of each plan."""
    warm = WARM_UP[running.name]
    taken: dict[str, list[float]] = {words: [] for words in plans}
    for number in range(rounds):
        for words in Random(number).sample(list(plans), len(plans)):
            job = plans[words]
            taken[words] += epochs_of(running, job, case.model(), warm + epochs, evaluates=True)[warm:]
    return {words: min(seconds) for words, seconds in taken.items()}


def table(found: list[dict[str, Any]]) -> list[str]:
    """The Markdown."""
    lines = ["| engine | cases | plans | median | worst |", "|---|---|---|---|---|"]
    for engine in ("all", *ENGINES):
        ours = [one for one in found if engine in ("all", one["engine"])]
        if ours:
            lost, plans = [regret(one) for one in ours], sum(len(one["seconds"]) for one in ours)
            lines.append(
                f"| {engine} | {len(ours)} | {plans} | {statistics.median(lost):.1%} | {max(lost, default=0):.1%} |"
            )
    lines += ["", "| engine | vertices | edges | width | model | chosen, s | fastest, s | which | regret |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for one in found:
        vertices, edges, width = one["graph"]
        which = min(one["seconds"], key=one["seconds"].get)
        figures = (
            f"{one['seconds']['']:.4f} | {one['seconds'][which]:.4f} | {which or 'the chosen one'} | {regret(one):.1%}"
        )
        lines.append(f"| {one['engine']} | {vertices:,} | {edges:,} | {width} | {one['case']} | {figures} |")
    return lines


def regret(one: dict[str, Any]) -> float:
    """Of a case."""
    seconds: dict[str, float] = one["seconds"]
    return seconds[""] / min(seconds.values()) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES, help="(default: both)")
    parser.add_argument(
        "--epochs", type=int, help="measured epochs a round, after the warm-up (default: 15 on local, else 5)"
    )
    parser.add_argument("--rounds", type=int, default=4, help="of all plans of a case (default: 4)")
    parser.add_argument("--skip", type=int, default=0, help="cases of each engine, from the first on (default: 0)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file (default: benchmarks/results/regret.md)")
    parser.add_argument("--one", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(list(measure(options.one, options.epochs, options.rounds, options.skip))))
        return
    words = ["--rounds", str(options.rounds), "--skip", str(options.skip)]
    words += [] if options.epochs is None else ["--epochs", str(options.epochs)]
    found = [one for engine in options.engines for one in run_apart(__file__, ["--one", engine, *words], engine)]
    command = shlex.join(["python", "benchmarks/regret.py", *sys.argv[1:]])
    head = ["# Regret", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-1:]]
    lines = table(found)
    write_table(options.out, [*head, *lines])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
