"""Learned rows in row tables: an epoch with a delay of every message, by asynchrony, and the ranks that come of it.

    python benchmarks/row_tables.py              writes benchmarks/results/row_tables.md
    python benchmarks/row_tables.py --links 8192 --turns 1 --out /dev/stdout

DistMult without an encoder on links of FB15k-237, which is looked for in $LOTAN_DATA and in ../shared/data; without it nothing
is measured. Both tables are processes on this machine. A delay is injected into each message on its way to a table and on its
way back, as if the tables were on other hosts. All contestants take turns in one process, and their batches are the same. They
begin from the same weights, so the script also checks that "optimistic" ends with the bits of "none".
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import platform
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lotan
from lotan.errors import GraphError
from messenger.table_link import TableLink

RESULTS = Path(__file__).parent / "results" / "row_tables.md"
WIDTH, BATCH, NEGATIVES, RATE, TABLES = 128, 1024, 500, 0.1, 2
DELAYS = (0, 5, 10, 20)  # milliseconds of each message
EPOCHS = 2  # the second is measured


class Later:
    """Runs functions in a thread, each some time after it was given."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._order = seconds, itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._changed, self._ended = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def give(self, action: Callable[[], object]) -> None:
        """Run a function after the delay."""
        with self._changed:
            heapq.heappush(self._waiting, (time.monotonic() + self._seconds, next(self._order), action))
            self._changed.notify()

    def end(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._ended and (not self._waiting or self._waiting[0][0] > time.monotonic()):
                    left = self._waiting[0][0] - time.monotonic() if self._waiting else None
                    self._changed.wait(left)
                if self._ended:
                    return
                _, _, action = heapq.heappop(self._waiting)
            action()


@contextmanager
def delayed(seconds: float) -> Iterator[None]:
    """Delay every message to a table, and every answer."""
    if not seconds:
        yield
        return
    line, before = Later(seconds), TableLink.ask

    def ask(self: TableLink, *given: Any, **named: Any) -> Future[Any]:
        answer: Future[Any] = Future()

        def hand_on(found: Future[Any]) -> None:
            failed = found.exception()
            line.give(lambda: answer.set_result(found.result()) if failed is None else answer.set_exception(failed))

        line.give(lambda: before(self, *given, **named).add_done_callback(hand_on))
        return answer

    TableLink.ask = ask
    try:
        yield
    finally:
        TableLink.ask = before
        line.end()


def some_links(count: int) -> lotan.Graph:
    """The first links of training of FB15k-237 and some of validation, among all its vertices."""
    whole = lotan.Graph.read("FB15k-237")
    from lotan.links.examples import link_graph

    links = link_graph(whole, lotan.LinkPrediction()).links
    parts = [(links.of("train"), 0, count), (links.of("val"), 1, 1000)]
    drawn = [np.random.default_rng(0).permutation(len(part))[:most] for part, _, most in parts]
    src, dst, relation = (
        np.concatenate([getattr(part, name)[at] for (part, _, _), at in zip(parts, drawn, strict=True)])
        for name in ("src", "dst", "numbers")
    )
    split = np.concatenate(
        [np.full(len(at), number, dtype=np.int8) for (_, number, _), at in zip(parts, drawn, strict=True)]
    )
    ids = np.arange(links.vertices)
    return lotan.Graph.from_arrays(src=src, dst=dst, relation=relation, edge_split=split, ids=ids)


def trained(graph: lotan.Graph, delay: float, **tables: Any) -> Any:
    torch.manual_seed(0)
    task = lotan.LinkPrediction(decoder="distmult", negatives=NEGATIVES)
    settings = {"optimizer": lotan.Adagrad(lr=RATE), "progress": False, "eval_every": 0, "epochs": EPOCHS, **tables}
    with delayed(delay):
        return lotan.Trainer(
            lotan.nn.LearnedRows(WIDTH), graph, task=task, regime=lotan.MiniBatch(BATCH, ()), **settings
        ).fit()


def measured(graph: lotan.Graph, delays: list[int], turns: int) -> list[str]:
    batches = -(-int(graph.arrays().src.size - 1000) // BATCH)
    found: dict[tuple[int, str], list[Any]] = {}
    for turn in range(turns):
        for delay in delays:
            for kind in ("none", "optimistic", "plain"):
                run = trained(graph, delay / 1000, tables=TABLES, asynchrony=kind)
                found.setdefault((delay, kind), []).append(run)
                print(turn, delay, kind, f"{run.history[-1]['train_seconds']:.2f} s", file=sys.stderr, flush=True)
        found.setdefault((0, "here"), []).append(trained(graph, 0))
    here = found[0, "here"]
    truth = here[0].model.weights
    for (_, kind), runs in found.items():
        if kind != "plain":
            assert all(torch.equal(truth[name], run.model.weights[name]) for run in runs for name in truth), kind

    def seconds(delay: int, kind: str) -> float:
        return statistics.median(run.history[-1]["train_seconds"] for run in found[delay, kind])

    lines = [
        "| delay of a message, ms | none, s | optimistic, s | plain, s | optimistic ÷ none | busy, none | busy, optimistic "
        "| rows repaired, of those read |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for delay in delays:
        of = {kind: found[delay, kind][-1].report["mini_batches"] for kind in ("none", "optimistic")}
        one, busy = (
            of["optimistic"],
            {
                kind: statistics.median(run.report["mini_batches"]["compute_busy"] for run in found[delay, kind])
                for kind in of
            },
        )
        numbers = [seconds(delay, kind) for kind in ("none", "optimistic", "plain")]
        lines.append(
            f"| {delay} | {' | '.join(f'{each:.2f}' for each in numbers)} | {numbers[1] / numbers[0]:.2f} | {busy['none']:.0%} | "
            f"{busy['optimistic']:.0%} | {one['rows_repaired'] / one['vertices']:.0%} |"
        )
    lines += [
        "",
        f"Without tables, with the rows in this process: {seconds(0, 'here'):.2f} s. An epoch has {batches} batches.",
        "",
        "| asynchrony | validation MRR after 2 epochs | weights |",
        "|---|---|---|",
    ]
    said = {
        "none": "those without tables, bit for bit",
        "optimistic": "those without tables, bit for bit",
        "plain": "others",
    }
    for kind, words in said.items():
        ranks = [run.metrics["val"]["mrr"] for delay in delays for run in found[delay, kind]]
        shown = f"{min(ranks):.4f}" if min(ranks) == max(ranks) else f"{min(ranks):.4f} to {max(ranks):.4f}"
        lines.append(f"| {kind} | {shown} | {words} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, default=65536, help="links of training (default: 65536)")
    parser.add_argument("--delays", type=int, nargs="+", default=DELAYS, help="milliseconds (default: 0 5 10 20)")
    parser.add_argument("--turns", type=int, default=2, help="turns (default: 2)")
    parser.add_argument("--load", default="nothing else", help="what else ran on the machine, for the text")
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"file of the table (default: {RESULTS.name})")
    options = parser.parse_args()
    try:
        graph = some_links(options.links)
    except GraphError as error:
        raise SystemExit(f"nothing is measured: {error}") from error
    lines = measured(graph, list(options.delays), options.turns)
    command = shlex.join(["python", "benchmarks/row_tables.py", *sys.argv[1:]])
    text = [
        "# Learned rows in row tables",
        "",
        f"DistMult without an encoder on {options.links:,} training links of FB15k-237 and all its 14,541 vertices: rows of "
        f"width {WIDTH}, sparse Adagrad, batches of {BATCH:,} links with {NEGATIVES} negatives at each end, {TABLES} tables in "
        "processes of their own. Every message is delayed on its way to a table, and so is every answer. So a batch that waits "
        "for its rows and for its update, as with `none`, waits four times. Seconds are those of the second epoch, with the "
        "reading of all rows at its end; medians of the turns. Busy is the share of all epochs' time in passes and steps.",
        "",
        *lines,
        "",
        f"`{command}` on {platform.system()}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads; beside it ran {options.load}.",
    ]  # fmt: skip
    options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
