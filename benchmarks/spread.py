"""What other sizes of chunks, and other numbers of partitions, workers and threads, would take than those that are chosen.

    python benchmarks/spread.py                      all; writes benchmarks/results/spread.md
    python benchmarks/spread.py --engines local      one engine
    python benchmarks/spread.py --cases 1 --rounds 1 the first case of each engine

The cases of `cost_model.py`, on `local` every second, on `blocks` every third. Of each, an epoch of training as it is chosen,
and with one setting changed; no epoch evaluates. Variants of a case take turns, in another order each time, on engines that
are all open; a variant's seconds are those of its fastest epoch after the warm-up. Cells are its seconds by those of the
chosen: below 1, it was faster. "Same" is what a setting comes to that is chosen anyway: it is not measured, nor in the median.
"One chunk" is all vertices at once; with "1 thread", torch has one as well. Two measurements of one setting differ by up to
20 %.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import torch
from apart import run_apart, write_table
from cost_model import cases
from epoch import machine

from lotan.engines.base import Engine
from lotan.engines.local.crew import torch_threads
from lotan.engines.local.engine import LocalEngine
from lotan.exploring.calibration import WARM_UP, Case, epochs_of, opened
from lotan.memory.limit import MemoryLimit
from lotan.planning.job import Job
from lotan.planning.prepare import prepare
from lotan.settings.config import TrainerConfig
from planner.chunks import CHUNK_ROWS, local_chunk_rows

RESULTS = Path(__file__).parent / "results" / "spread.md"
CHOSEN, ONE_THREAD = "chosen", "1 thread"
LOCAL_SIZES, WORKER_SIZES = (1024, 4096, 16384, 65536), (512, 2048, 4096, 8192)
VARIANTS: dict[str, dict[str, dict[str, int]]] = {
    "local": {
        CHOSEN: {},
        **{f"{rows:,} rows": {"chunk_rows": rows} for rows in LOCAL_SIZES},
        "one chunk": {"chunk_rows": 1 << 30},
        ONE_THREAD: {"threads": 1},
    },
    "blocks": {
        CHOSEN: {},
        **{f"{rows:,} rows": {"chunk_rows": rows} for rows in WORKER_SIZES},
        "1 worker": {"workers": 1},
        "1 partition": {"partitions": 1},
        "4 partitions": {"partitions": 4},
    },
}
EVERY = {"local": 2, "blocks": 3}  # of the cases
ROUNDS = {"local": 6, "blocks": 3}


def measure(engine: str, epochs: int, rounds: int | None, count: int | None) -> Iterator[dict[str, Any]]:
    """The cases of an engine, or the first so many of them, in this process."""
    for case in cases(engine)[1 :: EVERY[engine]][:count]:
        seconds = least(engine, case, epochs, rounds or ROUNDS[engine])
        print(f"{engine}: {case}: {seconds}", file=sys.stderr, flush=True)
        yield {"engine": engine, "case": asdict(case), "seconds": seconds}


def least(name: str, case: Case, epochs: int, rounds: int) -> dict[str, float]:
    """The fastest epoch of each variant that is not the chosen one by another name."""
    config, warm = TrainerConfig(engine=name), WARM_UP[name]  # type: ignore[arg-type]
    with ExitStack() as stack:
        job = prepare(case.model(), case.graph(), config, stack)
        engines = {
            words: stack.enter_context(with_settings(name, found))
            for words, found in VARIANTS[name].items()
            if not found or not is_chosen(found, job, config)
        }
        taken: dict[str, list[float]] = {words: [] for words in engines}
        for number in range(rounds):
            for words in Random(number).sample(list(engines), len(engines)):
                with torch_threads(1) if words == ONE_THREAD else nullcontext():
                    taken[words] += epochs_of(engines[words], job, case.model(), warm + epochs)[warm:]
    return {words: min(seconds) for words, seconds in taken.items()}


def is_chosen(found: dict[str, int], job: Job, config: TrainerConfig) -> bool:
    """Whether a setting comes to what is chosen anyway."""
    ((setting, value),) = found.items()
    if setting == "threads":
        return value == torch.get_num_threads()
    name, layout = job.engine.name, MemoryLimit.of(config).layout(job.traits, config.partitions)
    if setting != "chunk_rows":
        return value == {"workers": layout.crew.workers, "partitions": layout.partitions}[setting]
    levels = () if job.plan.levels is None else range(job.plan.levels + 1)
    rows = [job.statistics.rows_within(level) for level in (None, *levels)]
    if name == "local":
        return all(min(value, one) == local_chunk_rows(one) for one in rows)
    largest = -(-max(rows) // layout.partitions)
    return min(value, largest) == min(CHUNK_ROWS, largest)


def with_settings(name: str, found: dict[str, int]) -> Any:
    """An engine, open while the context lasts."""
    if name == "local":
        return closing[Engine](LocalEngine(**found))
    return opened(name, TrainerConfig(engine=name, **found))  # type: ignore[arg-type]


def table(found: list[dict[str, Any]]) -> list[str]:
    """The Markdown, of each engine."""
    lines: list[str] = []
    for engine in dict.fromkeys(one["engine"] for one in found):
        ours, others = [one for one in found if one["engine"] == engine], list(VARIANTS[engine])[1:]
        heads = ["vertices", "edges", "width", "trained", "model", f"{CHOSEN}, s", *others]
        lines += [f"## {engine}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        ratios: dict[str, list[float]] = {name: [] for name in others}
        for one in ours:
            case, seconds = Case(**one["case"]), one["seconds"]
            cells = [f"{case.vertices:,}", f"{case.edges:,}", str(case.width), case.share, case.words]
            cells.append(f"{seconds[CHOSEN]:.4f}")
            for name in others:
                ratios[name] += [seconds[name] / seconds[CHOSEN]] if name in seconds else []
                cells.append(f"{ratios[name][-1]:.2f}" if name in seconds else "same")
            lines.append(f"| {' | '.join(cells)} |")
        medians = [f"{statistics.median(of):.2f}" if of else "same" for of in ratios.values()]
        lines += [f"| median | | | | | | {' | '.join(medians)} |", ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="(default: both)")
    parser.add_argument("--epochs", type=int, default=4, help="measured epochs a round, after the warm-up (default: 4)")
    parser.add_argument("--rounds", type=int, help="of all variants of a case (default: 6 on local, 3 on blocks)")
    parser.add_argument("--cases", type=int, help="the first so many of each engine's (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file (default: benchmarks/results/spread.md)")
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(list(measure(options.one, options.epochs, options.rounds, options.cases))))
        return
    words = ["--epochs", str(options.epochs)]
    words += [] if options.rounds is None else ["--rounds", str(options.rounds)]
    words += [] if options.cases is None else ["--cases", str(options.cases)]
    found = [one for engine in options.engines for one in run_apart(__file__, ["--one", engine, *words], engine)]
    command = shlex.join(["python", "benchmarks/spread.py", *sys.argv[1:]])
    head = [
        "# Chunks, partitions, workers and threads",
        "",
        f"`{command}` on {machine()}.",
        "",
        *__doc__.split("\n\n")[-1:],
    ]
    lines = table(found)
    write_table(options.out, [*head, *lines])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
