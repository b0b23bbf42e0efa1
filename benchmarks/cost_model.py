"""How far the seconds that the Planner estimates are from those that epochs take.

    python benchmarks/cost_model.py                  all; writes benchmarks/results/cost_model.md
    python benchmarks/cost_model.py --groups local   some engines
    python benchmarks/cost_model.py --cases 2        the first two of each
    python benchmarks/cost_model.py --least          on a machine with other work: of each case the fastest epoch

Stock models with dropout, some with JumpingKnowledge ("cat", "max"), on generated graphs of 3 thousand to 3 million edges,
features of width 8 to 3,703, some of which are mostly zeros, 1 to 6 layers, some by the general plan, which collects, on
`local`, `blocks`, blocks whose workers may keep but 4 MB between forward and backward, and `rows`. `trained` is the share of
the vertices that the loss is of: of 54 %, the last layer alone is pruned; of 2 %, more; of 100 %, nothing. All cases of an
engine run in one process, one after the other, on an engine that was started once, after the first four have run uncounted on
Spark, while its JVM compiles what it runs often; an epoch is its training pass with the optimizer's step, the median over
epochs after the warm-up, in the quieter of two rounds, of which each runs all cases. Every second case, in the order of their
lists, calibrates: rates are fitted to those, as `lotan doctor --calibrate` fits them to a probe's. The others are held out;
of them are the errors. Regret: of the cases that several engines ran, what the engine with the least estimate took by what
the fastest one took, less 1.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from apart import run_apart, write_table
from epoch import machine

from lotan.exploring.calibration import Case, Observation, fit, observe
from lotan.settings.config import TrainerConfig
from planner.rates import GUESSES, Rates
from planner.work import UNITS, Work

RESULTS = Path(__file__).parent / "results" / "cost_model.md"
THOUSAND, MILLION = 1000, 1_000_000
EPOCHS = {"local": 20, "blocks": 16, "rows": 8}  # measured, after the warm-up
WARMING = 4  # cases that run first, uncounted, on Spark
FEW, EVERY = 0.02, 1.0  # of the vertices, to train on
MOST_MEDIAN, MOST_WORST = 0.15, 2.5  # that errors of held-out cases may come to
AIM_MEDIAN, AIM_WORST = 0.10, 2.0  # that they should
GROUPS = {  # engine and settings by name
    "local": ("local", {}),
    "blocks": ("blocks", {}),
    "blocks, 4 MB": ("blocks", {"worker_memory": "4m"}),
    "rows": ("rows", {}),
}


def cases(group: str) -> list[Case]:
    """What runs on an engine: on the slower ones, less. Every second one is held out, so each kind stands at both places."""
    tiny, small, middle = (300, 3 * THOUSAND), (2708, 11 * THOUSAND), (20 * THOUSAND, 200 * THOUSAND)
    large, dense, huge = (100 * THOUSAND, MILLION), (30 * THOUSAND, MILLION), (200 * THOUSAND, 3 * MILLION)
    some = [
        Case(*small, 64, "gcn", 16, 2),
        Case(*small, 64, "gcn", 64, 2),
        Case(*small, 64, "gcn", 32, 6),
        Case(*small, 64, "gcn", 64, 4),
        Case(*middle, 128, "gcn", 64, 2),
        Case(*middle, 64, "gcn", 32, 3),
        Case(*middle, 64, "sage", 64, 2),
        Case(*middle, 128, "sage", 32, 3),
    ]
    more = [
        Case(*middle, 256, "gin", 128, 3),
        Case(*middle, 128, "gin", 256, 2),
        Case(*middle, 64, "gat", 32, 2),
        Case(*middle, 32, "gat", 64, 3),
        Case(*large, 64, "gcn", 32, 3),
        Case(*large, 128, "gcn", 128, 2),
        Case(*dense, 32, "sage", 128, 3),
        Case(*dense, 64, "gcn", 64, 3),
        Case(*large, 64, "gin", 64, 2),
        Case(*large, 128, "sage", 64, 3),
    ]
    most = [
        Case(*tiny, 8, "gcn", 8, 1),
        Case(*tiny, 16, "gcn", 8, 2),
        Case(*tiny, 32, "gin", 32, 4),
        Case(*small, 512, "gin", 64, 3),
        Case(*small, 512, "sage", 256, 2),
        Case(*small, 512, "gcn", 128, 2),
        Case(*large, 64, "gat", 64, 2),
        Case(*large, 32, "gat", 32, 2),
        Case(*middle, 512, "gcn", 512, 3),
        Case(*middle, 512, "sage", 256, 3),
        Case(*huge, 32, "gcn", 32, 2),
        Case(*huge, 64, "gcn", 64, 3),
        Case(*huge, 64, "sage", 16, 2),
        Case(*huge, 32, "gin", 32, 2),
    ]
    labels = [  # few or all
        Case(*large, 64, "gcn", 32, 3, training=FEW),
        Case(*middle, 64, "gcn", 32, 3, training=FEW),
        Case(*middle, 128, "gin", 128, 2, training=FEW),
        Case(*large, 32, "gat", 32, 2, training=FEW),
        Case(*middle, 64, "sage", 64, 2, training=EVERY),
        Case(*large, 64, "gcn", 32, 3, training=EVERY),
    ]
    joined = [Case(*middle, 64, "gcn", 32, 3, jump="cat"), Case(*middle, 128, "sage", 64, 3, jump="max")]
    more_joined = [Case(*small, 64, "gin", 64, 4, jump="max"), Case(*large, 32, "gat", 32, 2, jump="cat")]
    bags = [  # of words
        Case(*small, 1433, "gcn", 64, 2, density=0.013),
        Case(*small, 3703, "sage", 64, 2, density=0.009),
        Case(*middle, 2000, "gcn", 128, 2, density=0.01),
        Case(*middle, 500, "gin", 64, 3, density=0.1),
        Case(*small, 1433, "gat", 32, 2, density=0.013, training=FEW),
        Case(*middle, 500, "sage", 128, 2, density=0.1),
    ]
    attentive = [Case(*small, 64, "gat", 64, 2), Case(*small, 32, "gat", 32, 3)]
    collecting = [
        Case(*small, 64, "gcn", 64, 2, plan="general"),
        Case(*small, 64, "gat", 32, 2, plan="general"),
        Case(*middle, 64, "gcn", 32, 2, plan="general"),
        Case(*middle, 32, "gat", 32, 2, plan="general"),
        Case(*middle, 64, "sage", 32, 2, plan="general"),
        Case(*middle, 128, "gin", 32, 2, plan="general"),
    ]
    tight = [
        Case(*middle, 128, "gin", 256, 3),
        Case(*large, 64, "gcn", 128, 3),
        Case(*large, 64, "sage", 128, 3),
        Case(*middle, 128, "gin", 256, 3, training=FEW),
        Case(*middle, 128, "gcn", 256, 4),
        Case(*large, 64, "sage", 128, 3, training=EVERY),
    ]
    return {
        "local": some + more + most + labels + joined + more_joined + bags + attentive + collecting,
        "blocks": some + more + labels + joined + bags[:2] + attentive + collecting,
        "blocks, 4 MB": tight,
        "rows": [*some[:7], labels[1], some[7], labels[4], *collecting[:2]],
    }[group]


def measure(group: str, epochs: int | None, least: bool, some: slice) -> Iterator[dict[str, Any]]:
    """Run a group, or some of it, in this process."""
    engine, settings = GROUPS[group]
    chosen, typical = cases(group)[some], min if least else statistics.median
    warming = [] if engine == "local" else cases(group)[:WARMING]
    seen = observe(engine, [*warming, *chosen], epochs or EPOCHS[engine], TrainerConfig(**settings), typical)
    for case, one in zip(chosen, islice(seen, len(warming), None), strict=True):
        print(f"{group}: {case}: {one.seconds:.4f} s", file=sys.stderr, flush=True)
        yield {"case": asdict(case), "group": group, "work": asdict(one.work), "seconds": one.seconds}


def fitted(found: Sequence[dict[str, Any]]) -> dict[str, Rates]:
    """Rates by engine."""
    rates = {}
    for engine, given in GUESSES.items():
        ours = [one for one in found if GROUPS[one["group"]][0] == engine]
        rates[engine] = (
            fit([Observation(Work(**one["work"]), one["seconds"]) for one in ours], given) if ours else given
        )
    return rates


def quietest(rounds: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of each case the round that took the least."""
    return [min(of, key=lambda one: one["seconds"]) for of in zip(*rounds, strict=True)]


def estimate(one: dict[str, Any], rates: Rates) -> float:
    """Of an observation, whose work is by processor."""
    return sum(one["work"][unit] * getattr(rates, unit) for unit in UNITS)


def split(found: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """To calibrate with, and held out: in turns within each group."""
    groups = {group: [one for one in found if one["group"] == group] for group in GROUPS}
    return [one for of in groups.values() for one in of[::2]], [one for of in groups.values() for one in of[1::2]]


def table(found: Sequence[dict[str, Any]], rates: dict[str, Rates]) -> list[str]:
    """The Markdown."""
    calibrating, held_out = split(found)
    limits = f"median error {MOST_MEDIAN:.0%} and {MOST_WORST} times at worst; aimed at: {AIM_MEDIAN:.0%} and {AIM_WORST} times"
    lines = [
        "## Held out",
        "",
        f"Allowed: {limits}.",
        "",
        "| engine | cases | median error | worst, times |",
        "|---|---|---|---|",
    ]
    for name in ("all", *GROUPS):
        ours = [one for one in held_out if name in ("all", one["group"])]
        if ours:
            ratios = [estimate(one, rates[GROUPS[one["group"]][0]]) / one["seconds"] for one in ours]
            worst = max(max(ratio, 1 / ratio) for ratio in ratios)
            lines.append(
                f"| {name} | {len(ours)} | {statistics.median(abs(r - 1) for r in ratios):.1%} | {worst:.2f} |"
            )
    lines += ["", *regret(found, rates), "", "## Every case", ""]
    lines += [
        "| engine | vertices | edges | width | trained | model | measured, s | estimated, s | estimated ÷ measured | |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for one in found:
        case, guess = Case(**one["case"]), estimate(one, rates[GROUPS[one["group"]][0]])
        graph = f"{case.vertices:,} | {case.edges:,} | {case.width} | {case.share}"
        seconds = f"{one['seconds']:.4f} | {guess:.4f} | {guess / one['seconds']:.2f}"
        lines.append(
            f"| {one['group']} | {graph} | {case.words} | {seconds} | {'' if one in calibrating else 'held out'} |"
        )
    return [*lines, "", "## Rates", "", *rate_lines(rates), ""]


def regret(found: Sequence[dict[str, Any]], rates: dict[str, Rates]) -> list[str]:
    """Of the engine with the least estimate."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        if not GROUPS[one["group"]][1]:
            runs.setdefault(json.dumps(one["case"]), []).append(one)
    several = [of for of in runs.values() if len(of) > 1]
    if not several:
        return ["Regret: no case ran on two engines."]
    chosen = [min(of, key=lambda one: estimate(one, rates[one["group"]]))["seconds"] for of in several]
    lost = [one / min(each["seconds"] for each in of) - 1 for one, of in zip(chosen, several, strict=True)]
    return [f"Regret over {len(lost)} cases: median {statistics.median(lost):.1%}, worst {max(lost):.1%}."]


def rate_lines(rates: dict[str, Rates]) -> list[str]:
    """What a unit takes, on each engine."""
    lines = ["| seconds a unit | " + " | ".join(rates) + " |", "|---" * (1 + len(rates)) + "|"]
    for unit in UNITS:
        lines.append(f"| {unit} | " + " | ".join(f"{getattr(of, unit):.3g}" for of in rates.values()) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS), help="(default: all)")
    parser.add_argument(
        "--epochs", type=int, help="that count, after the warm-up (default: 20, 16 on blocks, 8 on rows)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="of all cases of an engine (default: 2)")
    parser.add_argument("--cases", type=int, help="so many of each engine (default: all)")
    parser.add_argument("--skip", type=int, default=0, help="cases of each engine, from the first on (default: 0)")
    parser.add_argument("--least", action="store_true", help="take the least epoch: for a machine with other work")
    parser.add_argument("--raw", type=Path, help="measurements as JSON: read if it is there, else written")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="the file (default: benchmarks/results/cost_model.md)"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        some = slice(options.skip, None if options.cases is None else options.skip + options.cases)
        print(json.dumps(list(measure(options.one, options.epochs, options.least, some))))
        return
    if options.raw and options.raw.exists():
        found = json.loads(options.raw.read_text())
    else:
        words = [*(["--epochs", str(options.epochs)] if options.epochs else []), *["--least"] * options.least]
        words += ["--skip", str(options.skip), *(["--cases", str(options.cases)] if options.cases else [])]
        rounds = [
            [one for group in options.groups for one in run_apart(__file__, ["--one", group, *words], group)]
            for _ in range(options.rounds)
        ]
        found = quietest(rounds)
        if options.raw:
            options.raw.write_text(json.dumps(found))
    lines = table(found, fitted(split(found)[0]))
    given = [word for place, word in enumerate(sys.argv) if place and "--raw" not in sys.argv[place - 1 : place + 1]]
    command = shlex.join(["python", "benchmarks/cost_model.py", *given])
    write_table(
        options.out,
        ["# Estimated seconds", "", f"`{command}` on {machine()}.", "", *__doc__.split("\n\n")[-1:], *lines],
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
