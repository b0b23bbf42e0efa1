"""What other sizes of chunks, and other numbers of partitions, workers and threads, would take than those that are chosen.

    python benchmarks/spread.py                      all; writes benchmarks/results/spread.md
    python benchmarks/spread.py --engines local      one engine

The cases of `cost_model.py`, on `local` every second, on `blocks` every third. Of each, an epoch of training as it is chosen,
and with one setting changed; no epoch evaluates. Variants of a case take turns, in another order each time, on engines that
are all open; a variant's seconds are those of its fastest epoch after the warm-up. Cells are its seconds by those of the
chosen: below 1, it was faster. "One chunk" is all vertices at once. Two measurements of one setting differ by up to 20 %.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from apart import run_apart, write_table
from cost_model import cases
from epoch import machine

from lotan.calibration import WARM_UP, Case, epochs_of, opened
from lotan.engines.base import Engine
from lotan.engines.local import LocalEngine
from lotan.job import prepare
from lotan.settings import TrainerConfig

RESULTS = Path(__file__).parent / "results" / "spread.md"
CHOSEN = "chosen"
LOCAL_SIZES, WORKER_SIZES = (1024, 4096, 16384, 65536), (512, 2048, 4096, 8192)
VARIANTS: dict[str, dict[str, dict[str, int]]] = {
    "local": {
        CHOSEN: {},
        **{f"{rows:,} rows": {"chunk_rows": rows} for rows in LOCAL_SIZES},
        "one chunk": {"chunk_rows": 1 << 30},
        "1 thread": {"threads": 1},
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


def measure(engine: str, epochs: int, rounds: int) -> Iterator[dict[str, Any]]:
    """The cases of an engine, in this process."""
    for case in cases(engine)[1 :: EVERY[engine]]:
        seconds = least(engine, case, epochs, rounds)
        print(f"{engine}: {case}: {seconds}", file=sys.stderr, flush=True)
        yield {"engine": engine, "case": asdict(case), "seconds": seconds}


def least(name: str, case: Case, epochs: int, rounds: int) -> dict[str, float]:
    """The fastest epoch of each variant."""
    taken: dict[str, list[float]] = {words: [] for words in VARIANTS[name]}
    with ExitStack() as stack:
        job = prepare(case.model(), case.graph(), TrainerConfig(engine=name), stack)  # type: ignore[arg-type]
        engines = {words: stack.enter_context(with_settings(name, found)) for words, found in VARIANTS[name].items()}
        for number in range(rounds):
            for words in Random(number).sample(list(engines), len(engines)):
                warm = WARM_UP[name]
                taken[words] += epochs_of(engines[words], job, case.model(), warm + epochs)[warm:]
    return {words: min(seconds) for words, seconds in taken.items()}


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
        heads = ["vertices", "edges", "width", "model", f"{CHOSEN}, s", *others]
        lines += [f"## {engine}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for one in ours:
            case, seconds = one["case"], one["seconds"]
            model = f"{case['kind']}, {case['layers']} x {case['hidden']}"
            cells = [f"{case['vertices']:,}", f"{case['edges']:,}", str(case["width"]), model]
            cells += [f"{seconds[CHOSEN]:.4f}", *(f"{seconds[name] / seconds[CHOSEN]:.2f}" for name in others)]
            lines.append(f"| {' | '.join(cells)} |")
        medians = [statistics.median(one["seconds"][name] / one["seconds"][CHOSEN] for one in ours) for name in others]
        lines += [f"| median | | | | | {' | '.join(f'{one:.2f}' for one in medians)} |", ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="(default: both)")
    parser.add_argument("--epochs", type=int, default=4, help="measured epochs a round, after the warm-up (default: 4)")
    parser.add_argument("--rounds", type=int, default=2, help="of all variants of a case (default: 2)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file (default: benchmarks/results/spread.md)")
    parser.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(list(measure(options.one, options.epochs, options.rounds))))
        return
    words = ["--epochs", str(options.epochs), "--rounds", str(options.rounds)]
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
