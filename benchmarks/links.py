"""Link prediction on FB15k-237 with DistMult: ranks of the test links, and seconds of an epoch beside PyG.

    python benchmarks/links.py                   all parts; writes benchmarks/results/links.md
    python benchmarks/links.py --parts epoch     one of them, whose table is put in the place of the one before

The graph is looked for in $LOTAN_DATA and in ../shared/data; without it nothing is measured.

ranks     A learned row for each vertex and each relation, and no encoder. The epoch of the best validation ranks counts.
encoder   The same with a GraphSAGE layer over sampled neighbours between the rows and the decoder.
gat       The same with a GAT layer of four heads, and a skip connection.
blocks    DistMult over one RGCN layer of PyG over learned rows, on the engine blocks and on local, with the same seed. Spark
          reads the graph from Parquet. --relations keeps the links of the most frequent relations alone.
epoch     The same batches and negatives in one process and in turns: Lotan; torch_geometric.nn.kge.DistMult, whose forward
          scores every pair by itself; PyKEEN's DistMult, if PyKEEN is installed; and plain torch, in which we wrote the product
          of a batch by hand. All take Adagrad's steps. Seconds are those of a batch, times the batches of an epoch.
"""

from __future__ import annotations

import argparse
import functools
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from apart import write_parts
from torch.nn import functional

import lotan
from lotan.batches.examples import batches_of_epoch
from lotan.errors import GraphError
from lotan.graph.row_keys import edge_keys
from lotan.links.examples import link_graph
from lotan.links.pairs import Negatives, Pairs
from lotan.stages.randomness import Randomness

RESULTS = Path(__file__).parent / "results" / "links.md"
TITLE = "# Link prediction on FB15k-237"
PARTS = ("ranks", "encoder", "gat", "epoch", "blocks")
HEADS = 4
WIDTH, BATCH, NEGATIVES, RATE, DROPOUT = 128, 1024, 500, 0.1, 0.3
FANOUT = 20
RELATIONAL = {"width": 32, "bases": 4, "batch": 8192, "fanout": 10}  # of the part "blocks"
TURNS, BATCHES = 3, 2  # of the part "epoch": turns, and batches of PyG in each; of the others eight times as many


class Rows(torch.nn.Module):
    """A learned row for each vertex, and perhaps a layer over neighbours."""

    def __init__(self, width: int, dropout: float, layer: str | None = None) -> None:
        super().__init__()
        self.rows = lotan.nn.LearnedFeatures(width)
        self.dropout = torch.nn.Dropout(dropout)
        layers = {
            None: lambda: None,
            "sage": lambda: lotan.nn.SAGEConv(width, width),
            "gat": lambda: lotan.nn.GATConv(width, width // HEADS, HEADS),
        }
        self.conv = layers[layer]()

    def forward(self, x, graph):
        """Return the rows, or those after the layer. Attention is added to the rows: a mean of neighbours alone loses them."""
        rows = self.dropout(self.rows(graph))
        if self.conv is None:
            return rows
        found = self.conv(rows, graph)
        return found + rows if isinstance(self.conv, lotan.nn.GATConv) else found


def trained(
    graph: lotan.Graph, epochs: int, width: int = WIDTH, dropout: float = DROPOUT, layer: str | None = None, **more
):
    torch.manual_seed(0)
    task = lotan.LinkPrediction(decoder="distmult", negatives=NEGATIVES)
    regime = lotan.MiniBatch(BATCH, (FANOUT,) if layer else ())
    settings = {"optimizer": lotan.Adagrad(lr=RATE), "progress": True, **more}
    return lotan.Trainer(Rows(width, dropout, layer), graph, task=task, regime=regime, epochs=epochs, **settings).fit()


def ranks_part(graph: lotan.Graph, epochs: int, layer: str | None) -> list[str]:
    started = time.perf_counter()
    run = trained(graph, epochs, layer=layer, eval_every=2)
    seconds = time.perf_counter() - started
    lines = ["| split | MRR | Hits@1 | Hits@3 | Hits@10 | MRR, raw | Hits@10, raw |", "|---|---|---|---|---|---|---|"]
    names = "mrr", "hits@1", "hits@3", "hits@10", "raw_mrr", "raw_hits@10"
    lines += [
        f"| {split} | {' | '.join(f'{found[name]:.4f}' for name in names)} |" for split, found in run.metrics.items()
    ]
    best = (
        f"Best of {epochs} epochs: {run.best_epoch}. The run took {seconds:.0f} s with its evaluations, and an epoch "
    )
    return [*lines, "", f"{best}{run.report['plan']['measured_epoch_seconds']:.1f} s without."]


class PlainTorch(torch.nn.Module):
    """DistMult as one would write it: a product of the links' rows and those of the shared negatives."""

    def __init__(self, vertices: int, relations: int) -> None:
        super().__init__()
        self.rows, self.relations = torch.nn.Embedding(vertices, WIDTH), torch.nn.Embedding(relations, WIDTH)

    def loss(self, pairs: Pairs) -> torch.Tensor:
        """Return the mean loss over the links of a batch."""
        src, dst, relation = self.rows(pairs.src), self.rows(pairs.dst), self.relations(pairs.relation)
        positive = (src * relation * dst).sum(1, keepdim=True)
        sides = ((src, pairs.destinations), (dst, pairs.sources))
        scores = [torch.cat([positive, (own * relation) @ self.rows(side.candidates).T], 1) for own, side in sides]
        return _mean_loss(scores)


def _mean_loss(scores: list[torch.Tensor]) -> torch.Tensor:
    target = torch.zeros(len(scores[0]), dtype=torch.int64)
    return sum(functional.cross_entropy(one, target) for one in scores) / len(scores)


def pyg_loss(model: torch.nn.Module, pairs: Pairs) -> torch.Tensor:
    """The same loss by PyG's forward, which takes a source, a relation and a destination for each score."""
    positive = model(pairs.src, pairs.relation, pairs.dst)[:, None]
    count, links = len(pairs.sources.candidates), len(pairs.src)
    src, relation, dst = (one.repeat_interleave(count) for one in (pairs.src, pairs.relation, pairs.dst))
    to = model(src, relation, pairs.destinations.candidates.repeat(links)).view(links, count)
    of = model(pairs.sources.candidates.repeat(links), relation, dst).view(links, count)
    return _mean_loss([torch.cat([positive, negative], 1) for negative in (to, of)])


def of_pykeen(vertices: int, relations: int) -> torch.nn.Module | None:
    """PyKEEN's DistMult; None if PyKEEN is not installed."""
    try:
        from pykeen.models import DistMult
        from pykeen.triples import TriplesFactory
    except ImportError:
        return None
    every = torch.arange(max(vertices, relations))
    triples = torch.stack([every % vertices, every % relations, every.roll(1) % vertices], 1)
    factory = TriplesFactory(
        triples, {str(one): one for one in range(vertices)}, {str(one): one for one in range(relations)}
    )
    # as in the others: no constraint on rows, and no regularizer
    return DistMult(
        triples_factory=factory, embedding_dim=WIDTH, entity_constrainer=None, regularizer=None, random_seed=0
    )


def pykeen_loss(model: Any, pairs: Pairs) -> torch.Tensor:
    """The same loss by PyKEEN's scores, which take the negatives that a batch shares."""
    src, relation, dst = pairs.src, pairs.relation, pairs.dst
    positive = model.score_hrt(torch.stack([src, relation, dst], 1))
    to = model.score_t(torch.stack([src, relation], 1), tails=pairs.destinations.candidates)
    of = model.score_h(torch.stack([relation, dst], 1), heads=pairs.sources.candidates)
    return _mean_loss([torch.cat([positive, negative], 1) for negative in (to, of)])


def seconds_of(batches: list[Pairs], parameters: list[torch.Tensor], loss: Callable[[Pairs], torch.Tensor]) -> float:
    optimizer = torch.optim.Adagrad(parameters, lr=RATE)
    started = time.perf_counter()
    for pairs in batches:
        optimizer.zero_grad()
        loss(pairs).backward()
        optimizer.step()
    return (time.perf_counter() - started) / len(batches)


def epoch_part(graph: lotan.Graph) -> list[str]:
    task = lotan.LinkPrediction(decoder="distmult", negatives=NEGATIVES)
    linked = link_graph(graph, task)
    drawn, arrays = Negatives(linked.links, task), linked.graph.arrays()
    training = drawn.training
    keys = edge_keys(arrays.keys[training.src], arrays.keys[training.dst], training.numbers)
    chosen = batches_of_epoch(np.arange(len(training)), keys, BATCH, Randomness(0, 1))
    pairs = [drawn.pairs(one, 1, number) for number, one in enumerate(chosen)]
    plain = PlainTorch(linked.links.vertices, linked.links.relations)
    theirs = pyg.DistMult(linked.links.vertices, linked.links.relations, WIDTH)
    keen = of_pykeen(linked.links.vertices, linked.links.relations)
    found: dict[str, list[float]] = {"ours": [], "plain": [], "pyg": []} | ({} if keen is None else {"keen": []})
    for turn in range(TURNS + 1):
        run = trained(graph, 1, dropout=0.0, eval_every=0, progress=False)
        found["ours"].append(run.history[-1]["train_seconds"] / len(pairs))
        found["plain"].append(seconds_of(pairs[: 8 * BATCHES], list(plain.parameters()), plain.loss))
        if keen is not None:
            keened = functools.partial(pykeen_loss, keen)
            found["keen"].append(seconds_of(pairs[: 8 * BATCHES], list(keen.parameters()), keened))
        found["pyg"].append(seconds_of(pairs[:BATCHES], list(theirs.parameters()), lambda one: pyg_loss(theirs, one)))
        print(turn, {name: f"{1e3 * each[-1]:.0f} ms" for name, each in found.items()}, flush=True)
    median = {name: statistics.median(each[1:]) * len(pairs) for name, each in found.items()}
    names = {"pyg": "`torch_geometric.nn.kge.DistMult`, each pair by itself", "keen": "PyKEEN's DistMult, negatives shared",
             "plain": "plain torch, one product", "ours": "Lotan"}  # fmt: skip
    lines = ["| | seconds of an epoch | Lotan ÷ this |", "|---|---|---|"]
    return lines + [
        f"| {text} | {median[name]:.1f} | {median['ours'] / median[name]:.3f} |"
        for name, text in names.items()
        if name in median
    ]


class Relational(torch.nn.Module):
    """A layer of PyG's RGCN over learned rows."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        width = RELATIONAL["width"]
        self.rows, self.dropout = lotan.nn.LearnedFeatures(width), torch.nn.Dropout(DROPOUT)
        self.conv = pyg.RGCNConv(width, width, relations, num_bases=RELATIONAL["bases"])

    def forward(self, x, edge_index, edge_type):
        """Return the rows after the layer."""
        return self.conv(self.dropout(self.rows.weight), edge_index, edge_type)


def of_relations(graph: lotan.Graph, most: int | None) -> lotan.Graph:
    """Return the graph with the links of its most frequent relations."""
    vertices, edges = graph.linked_columns()
    names, counts = np.unique(edges.relation, return_counts=True)
    kept = np.isin(edges.relation, names[np.argsort(-counts, kind="stable")[:most]])
    ends = {"src": edges.src[kept], "dst": edges.dst[kept]}
    links = {"relation": edges.relation[kept], "edge_split": edges.split[kept]}
    return lotan.Graph.from_arrays(ids=vertices.ids, **ends, **links)


def blocks_part(graph: lotan.Graph, epochs: int, relations: int | None) -> list[str]:
    some = of_relations(graph, relations)
    count = len(np.unique(some.linked_columns()[1].relation))
    lines = [
        "| engine | loss of the last epoch | MRR, val | MRR, test | seconds of an epoch | of an evaluation | of the whole run |",
        "|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        some.save(folder, overwrite=True)
        for engine in ("blocks", "local"):
            torch.manual_seed(0)
            more = {"master": "local[2]", "workers": 1, "partitions": 4} if engine == "blocks" else {}
            task = lotan.LinkPrediction(decoder="distmult", negatives=NEGATIVES)
            regime = lotan.MiniBatch(RELATIONAL["batch"], (RELATIONAL["fanout"],))
            settings = {
                "task": task,
                "regime": regime,
                "epochs": epochs,
                "eval_every": epochs,
                "engine": engine,
                **more,
            }
            started = time.perf_counter()
            run = lotan.Trainer(
                Relational(count), lotan.Graph.read(folder), optimizer=lotan.Adagrad(lr=RATE), **settings
            ).fit()
            seconds = time.perf_counter() - started
            epoch = statistics.median(entry["train_seconds"] for entry in run.history)
            mrr = " | ".join(f"{run.metrics[split]['mrr']:.5f}" for split in ("val", "test"))
            last = run.history[-1]
            lines.append(
                f"| {engine} | {last['loss']:.6f} | {mrr} | {epoch:.0f} | {last['eval_seconds']:.0f} | {seconds:.0f} |"
            )
    links = some.linked_columns()[1].split
    return [
        f"{count} relations, {int((links == 0).sum()):,} training links, {epochs} epoch{'s' * (epochs > 1)}.",
        "",
        *lines,
    ]


TEXTS = {
    "ranks": f"## Ranks without an encoder\n\nRows of width {WIDTH} with dropout {DROPOUT}, Adagrad at {RATE}, batches of "
    f"{BATCH:,} links, {NEGATIVES} uniform negatives at each end that a batch shares, softmax loss, no reciprocal relations. "
    "Filtered ranks among all 14,541 vertices, in both directions; of equal scores, half count as better.",
    "encoder": f"## Ranks with an encoder\n\nThe same, with a GraphSAGE layer (mean) over at most {FANOUT} in-neighbours.",
    "gat": f"## Ranks with a GAT layer\n\nThe same, with a GAT layer of {HEADS} heads over at most {FANOUT} in-neighbours, whose "
    "output is added to the rows. Without that sum MRR stays at 0.16.",
    "blocks": "## RGCN and DistMult on Spark\n\nRows of width {width}, one RGCN layer of {bases} bases over at most {fanout} "
    "in-neighbours, batches of {batch:,} links, and the other settings as above. Both engines draw the same batches and begin "
    "with the same weights. The whole run counts planning, starting Spark and workers, and loading.".format(
        **RELATIONAL
    ),
    "epoch": f"## An epoch beside PyG\n\nWidth {WIDTH}, the same {NEGATIVES} negatives at each end for each batch of {BATCH:,} "
    f"links, softmax loss, Adagrad, no dropout; medians of {TURNS} turns in one process. Of PyG, {BATCHES} batches are measured "
    f"in each turn, and of the other two {8 * BATCHES}. Negatives are drawn beforehand for both; Lotan's seconds include that.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--epochs", type=int, default=20, help="of the ranks (default: 20)")
    parser.add_argument("--relations", type=int, help="of the part blocks: the most frequent ones (default: all)")
    parser.add_argument("--load", default="nothing else", help="what else ran on the machine, for the text")
    parser.add_argument(
        "--out", type=Path, help=f"file of the tables (default: {RESULTS.name}), whose other parts stay"
    )
    options = parser.parse_args()
    try:
        graph = lotan.Graph.read("FB15k-237")
    except GraphError as error:
        raise SystemExit(f"nothing is measured: {error}") from error
    run = {"ranks": lambda: ranks_part(graph, options.epochs, layer=None),
           "encoder": lambda: ranks_part(graph, options.epochs, layer="sage"),
           "gat": lambda: ranks_part(graph, options.epochs, layer="gat"),
           "epoch": lambda: epoch_part(graph),
           "blocks": lambda: blocks_part(graph, options.epochs, options.relations)}  # fmt: skip
    found = {}
    for part in options.parts:
        found[part] = run[part]()
        print("\n".join(found[part]), flush=True)
    command = shlex.join(["python", "benchmarks/links.py", *sys.argv[1:]])
    machine = f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"
    said = f"`{command}` on {machine}, {torch.get_num_threads()} threads; beside it ran {options.load}."
    write_parts(options.out or RESULTS, TITLE, TEXTS, {part: [*lines, "", said] for part, lines in found.items()})


if __name__ == "__main__":
    main()
