"""Mini-batches: edges that are sampled, seconds of an epoch beside PyG, and accuracy beside the full batch.

    python benchmarks/mini_batches.py                           all four; writes benchmarks/results/mini_batches.md
    python benchmarks/mini_batches.py --parts edges             one of them; prints its table
    python benchmarks/mini_batches.py --parts edges --graphs R-MAT
    python benchmarks/mini_batches.py --parts accuracy --seeds 2

edges     A layered sampler, as DGL's blocks and PyG's old NeighborSampler, draws the in-edges of a vertex again in every layer.
          Ours draws them once a batch. Both draw by the same function, from soc-Epinions1 and from two generated graphs,
          in-edges alone or out-edges too. Of these, one is of `lotan.datasets.generate`, and one is Graph500's R-MAT.
epoch     GraphSAGE on the same batches, in one process and in turns: an epoch of Lotan, an epoch of PyG. PyG has its
          fastest form, a sorted EdgeIndex and layers that are trimmed to the hops that are left (trim_to_layer), and its
          batches are drawn by our sampler in a thread beside it.
accuracy  GraphSAGE and GCN with the full batch and with mini-batches: the mean over seeds of the test accuracy in the best
          epoch, each at its better of two learning rates. Mini-batches take more steps an epoch, and want a lower one.
large     GraphSAGE on a generated graph of 169,343 vertices: the test accuracy of the full batch, of mini-batches in memory,
          and of mini-batches from partitions on a disk.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.sampler import Sampler
from lotan.graph.arrays import GraphArrays
from lotan.stages.randomness import Randomness

RESULTS = Path(__file__).parent / "results" / "mini_batches.md"
EPINIONS = Path(__file__).parents[2] / "shared" / "data" / "soc-Epinions1.txt"
PARTS = ("edges", "epoch", "accuracy", "large")
GRAPHS = ("soc-Epinions1", "generated", "R-MAT")  # of the part "edges"
SIZE, FANOUT, BATCHES = 1024, 10, 4  # of the part "edges"
SCALE, EDGE_FACTOR, QUADRANTS = 20, 16, (0.57, 0.19, 0.19)  # of R-MAT, as Graph500 has them at this scale
TURNS, WARM_UP = 3, 1  # of the part "epoch"
AHEAD = 2
RATES = 0.01, 0.003  # of Adam, in the part "accuracy"
LARGE = 169_343, 2_400_000, 128, 40  # vertices, edges, features and classes of the part "large"
LARGE_EPOCHS = {"full batch": 100, "in memory": 4, "cached_nodes": 4, "each_once": 4}
STORED = "(partitions=16, buffer=12)"  # of the part "large"


def epinions(file: Path) -> GraphArrays:
    """The graph of who trusts whom, whose vertices are all examples."""
    ends = np.loadtxt(file, dtype=np.int64, comments="#")
    ids, places = np.unique(ends, return_inverse=True)
    src, dst = places.reshape(ends.shape).T
    nothing = np.zeros((len(ids), 1), dtype=np.float32)
    return lotan.Graph.from_arrays(nothing, src, dst, np.zeros(len(ids)), np.zeros(len(ids), dtype=np.int8)).arrays()


def r_mat(scale: int, edge_factor: int, quadrants: tuple[float, float, float], seed: int = 0) -> GraphArrays:
    """Return a graph of Graph500's generator (Chakrabarti, Zhan and Faloutsos, SDM 2004), whose vertices are all examples.

    Each bit of both ends of an edge chooses a quadrant of the adjacency matrix. Vertices are then renumbered at random.
    Graph500's list of edges has loops and duplicates, which its kernel may drop; here they are dropped.

    Args:
        scale: The number of bits of an id, so there are 2 ** scale vertices, of which many have no edge.
        edge_factor: The number of edges that are drawn, divided by that of the vertices.
        quadrants: The chances a, b and c.
        seed: The seed of all draws.
    """
    random, vertices = np.random.default_rng(seed), 1 << scale
    src, dst = np.zeros((2, vertices * edge_factor), dtype=np.int64)
    a, b, c = quadrants
    for _ in range(scale):
        drawn = random.random(len(src), dtype=np.float32)
        low = drawn >= a + b
        src = 2 * src + low
        dst = 2 * dst + np.where(low, drawn >= a + b + c, drawn >= a)
    keys = np.unique((src << scale | dst)[src != dst])
    places = random.permutation(vertices)
    nothing = np.zeros((vertices, 1), dtype=np.float32)
    ends = places[keys >> scale], places[keys & (vertices - 1)]
    all_train = np.zeros(vertices, dtype=np.int8)
    return lotan.Graph.from_arrays(nothing, *ends, np.zeros(vertices), all_train).arrays()


def layered(sampler: Sampler, targets: np.ndarray, layers: int, batch: int) -> int:
    """Sample as a layered sampler does: in each layer for all vertices so far. Return the edges."""
    edges = 0
    for layer in range(layers):
        found = sampler.sample(targets, (FANOUT,), Randomness(layer + 1, 1, batch=batch))
        edges += len(found.edges)
        targets = np.sort(found.rows)
    return edges


def graphs_of(file: Path, wanted: Collection[str]) -> dict[str, GraphArrays]:
    graphs = {}
    if "soc-Epinions1" in wanted and file.exists():
        graphs["soc-Epinions1"] = epinions(file)
    if "generated" in wanted:
        graphs["generated, 1,000,000 vertices"] = lotan.datasets.generate(1_000_000, 12_000_000, 1, 8).arrays()
    if "R-MAT" in wanted:
        graphs[f"R-MAT, {1 << SCALE:,} vertices"] = r_mat(SCALE, EDGE_FACTOR, QUADRANTS)
    return graphs


def edges_part(graphs: Mapping[str, GraphArrays]) -> list[str]:
    lines = [
        "| graph | edges of | layers | edges, layered | edges, ours | layered ÷ ours | ms, layered | ms, ours | layered ÷ ours |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for (name, arrays), both in itertools.product(graphs.items(), (False, True)):
        sampler, ways = Sampler(arrays, both), "both directions" if both else "one direction"
        targets = batches_of_epoch(examples_of(arrays), arrays.keys, SIZE, Randomness(0, 1))[:BATCHES]
        for layers in (2, 3, 4, 5):
            counts, seconds = {"layered": 0, "ours": 0}, {"layered": 0.0, "ours": 0.0}
            for batch, each in enumerate(targets):
                started = time.perf_counter()
                counts["layered"] += layered(sampler, each, layers, batch)
                between = time.perf_counter()
                counts["ours"] += len(sampler.sample(each, (FANOUT,) * layers, Randomness(0, 1, batch=batch)).edges)
                seconds["layered"] += between - started
                seconds["ours"] += time.perf_counter() - between
            of = [counts["layered"] // len(targets), counts["ours"] // len(targets)]
            ms = [1e3 * seconds[which] / len(targets) for which in ("layered", "ours")]
            lines.append(f"| {name} | {ways} | {layers} | {of[0]:,} | {of[1]:,} | {of[0] / of[1]:.2f} "
                         f"| {ms[0]:.0f} | {ms[1]:.0f} | {ms[0] / ms[1]:.2f} |")  # fmt: skip
            print(lines[-1], flush=True)
    return lines


def pyg_epochs(graph: lotan.Graph, model: torch.nn.Module, regime: lotan.MiniBatch) -> Callable[[int], float]:
    """A function that trains an epoch of a model of PyG on the batches of a regime, and returns its seconds."""
    from torch_geometric import EdgeIndex

    arrays, layers = graph.arrays(), len(regime.fanouts)
    x, label = torch.from_numpy(arrays.features), torch.from_numpy(arrays.label)
    sampler, examples = Sampler(arrays), examples_of(arrays)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def prepared(epoch: int, targets: np.ndarray, batch: int) -> tuple[Any, ...]:
        found = sampler.sample(targets, regime.fanouts, Randomness(regime.seed, epoch, batch=batch))
        nodes = np.diff([0, *found.counts]).tolist()
        ends = np.searchsorted(found.dst, found.counts[:layers])
        count = len(found.rows)
        ends_of_edges = torch.from_numpy(np.stack([found.src, found.dst]))
        edge_index = EdgeIndex(ends_of_edges, sparse_size=(count, count), sort_order="col")
        rows = torch.from_numpy(found.rows)
        return (
            x.index_select(0, rows),
            edge_index,
            nodes,
            np.diff([0, *ends]).tolist(),
            label[torch.from_numpy(targets)],
        )

    def ahead(pool: ThreadPoolExecutor, epoch: int) -> Iterator[tuple[Any, ...]]:
        targets = batches_of_epoch(examples, arrays.keys, regime.batch_size, Randomness(regime.seed, epoch))
        waiting = []
        for batch, each in enumerate(targets):
            waiting.append(pool.submit(prepared, epoch, each, batch))
            if len(waiting) > AHEAD:
                yield waiting.pop(0).result()
        for one in waiting:
            yield one.result()

    def run(epoch: int) -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for rows, edge_index, nodes, edges, wanted in ahead(pool, epoch):
                optimizer.zero_grad()
                out = model(rows, edge_index, num_sampled_nodes_per_hop=nodes, num_sampled_edges_per_hop=edges)
                torch.nn.functional.cross_entropy(out[: len(wanted)], wanted).backward()
                optimizer.step()
        return time.perf_counter() - started

    return run


def epoch_part() -> list[str]:
    from torch_geometric.nn import GraphSAGE

    lines = ["| graph | model | batches | s / epoch, PyG | s / epoch, Lotan | Lotan ÷ PyG | waiting for batches |"]
    lines += ["|---|---|---|---|---|---|---|"]
    cases = [("169,343 vertices", (169_343, 2_400_000, 128, 40), 1024, 2, 128),
             ("20,000 vertices", (20_000, 400_000, 128, 16), 1024, 3, 128)]  # fmt: skip
    for name, shape, size, layers, hidden in cases:
        graph, regime = lotan.datasets.generate(*shape), lotan.MiniBatch(size, (FANOUT,) * layers)
        torch.manual_seed(0)
        theirs = GraphSAGE(shape[2], hidden, layers, shape[3], dropout=0.5)
        pyg = pyg_epochs(graph, theirs, regime)
        torch.manual_seed(0)
        ours = lotan.Member(lotan.nn.GraphSAGE(shape[2], hidden, layers, shape[3], dropout=0.5), lotan.Adam(lr=0.01),
                            epochs=TURNS + WARM_UP)  # fmt: skip
        seconds: dict[str, list[float]] = {"pyg": [], "lotan": []}
        with lotan.ModelBatch(graph, [ours], regime=regime, eval_every=0, progress=False) as batch:
            for turn in range(1, TURNS + WARM_UP + 1):
                batch.train(upto=turn)
                seconds["lotan"].append(batch.states[0].history[-1]["train_seconds"])
                seconds["pyg"].append(pyg(turn))
            assert batch._sampled is not None
            figures = batch._sampled[1].figures()
        median = {who: statistics.median(found[WARM_UP:]) for who, found in seconds.items()}
        ratio, waited = median["lotan"] / median["pyg"], figures["wait_seconds"] / sum(seconds["lotan"])
        of_epoch = round(figures["batches"] / (TURNS + WARM_UP))
        lines.append(f"| {name} | GraphSAGE, {layers} layers of {hidden} | {of_epoch} of {size} | {median['pyg']:.2f} "
                     f"| {median['lotan']:.2f} | {ratio:.2f} | {waited:.0%} |")  # fmt: skip
        print(lines[-1], flush=True)
    return lines


def trained(graph: lotan.Graph, kind: str, layers: int, regime: Any, rate: float, seed: int, epochs: int) -> Any:
    torch.manual_seed(seed)
    model = getattr(lotan.nn, kind)(graph.statistics.width, 64, layers, graph.labels.outputs, dropout=0.5)
    settings = {"engine": "local", "progress": False, "epochs": epochs, "seed": seed, "regime": regime}
    return lotan.Trainer(model, graph, optimizer=lotan.Adam(lr=rate, weight_decay=5e-4), **settings).fit()


def best_rate(
    graph: lotan.Graph, kind: str, layers: int, mini: bool, seeds: int, epochs: int
) -> tuple[float, float, float]:
    """The rate of the best mean validation accuracy, with its test accuracy in percent and the seconds of a run."""
    found = {}
    for rate in RATES:
        started, runs = time.perf_counter(), []
        for seed in range(seeds):
            regime = lotan.MiniBatch(64, (FANOUT,) * layers, seed) if mini else lotan.FullBatch()
            runs.append(trained(graph, kind, layers, regime, rate, seed, epochs).metrics)
        validation, test = (100 * statistics.mean(run[split]["accuracy"] for run in runs) for split in ("val", "test"))
        found[rate] = validation, test, (time.perf_counter() - started) / seeds
    rate = max(RATES, key=lambda rate: found[rate][0])
    return rate, *found[rate][1:]


def accuracy_part(seeds: int, epochs: int) -> list[str]:
    lines = [
        "| graph | model | full batch | mini-batches | difference, points | rates | s, full batch | s, mini-batches |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name in ("amazon_photo", "coauthor_cs"):
        graph = lotan.Graph.read(name)
        for kind, layers in (("GraphSAGE", 2), ("GraphSAGE", 3), ("GCN", 2)):
            full, mini = (best_rate(graph, kind, layers, which, seeds, epochs) for which in (False, True))
            lines.append(f"| {name} | {kind}, {layers} layers | {full[1]:.2f} % | {mini[1]:.2f} % | {mini[1] - full[1]:+.2f} "
                         f"| {full[0]:g}, {mini[0]:g} | {full[2]:.1f} | {mini[2]:.1f} |")  # fmt: skip
            print(lines[-1], flush=True)
    return lines


def large_part(seeds: int) -> list[str]:
    """Train on the large graph with the full batch and in each order of mini-batches, and return the table."""
    graph = lotan.datasets.generate(*LARGE)
    lines = ["| model | regime | epochs | test accuracy | difference, points | s/epoch |", "|---|---|---|---|---|---|"]
    for layers in (2, 3):
        known = None
        for name, epochs in LARGE_EPOCHS.items():
            if layers == 3 and name == "each_once":
                continue  # its batches are sampled as those of cached_nodes
            runs = []
            for seed in range(seeds):
                torch.manual_seed(seed)
                model = lotan.nn.GraphSAGE(LARGE[2], 128, layers, LARGE[3], dropout=0.5)
                order = "shuffled" if name == "in memory" else f"{name}{STORED}"
                regime = (
                    lotan.FullBatch()
                    if name == "full batch"
                    else lotan.MiniBatch(1024, (FANOUT,) * layers, seed, order)
                )
                runs.append(lotan.Trainer(model, graph, regime=regime, optimizer=lotan.Adam(lr=0.003), epochs=epochs,
                                          eval_every=1 if epochs < 10 else 10, seed=seed, progress=False).fit())  # fmt: skip
            accuracy = 100 * statistics.mean(run.metrics["test"]["accuracy"] for run in runs)
            seconds = statistics.median(epoch["train_seconds"] for run in runs for epoch in run.history)
            known = accuracy if known is None else known
            lines.append(f"| GraphSAGE, {layers} layers | {name} | {epochs} | {accuracy:.2f} % | {accuracy - known:+.2f} "
                         f"| {seconds:.1f} |")  # fmt: skip
            print(lines[-1], flush=True)
    return lines


TEXTS = {
    "edges": f"## Edges sampled\n\nMeans of {BATCHES} batches of {SIZE} targets, fanout {FANOUT} in every layer: of in-edges, "
    f"or of in-edges and as many out-edges, as the thesis on MariusGNN samples (table 3.5). One "
    f"thread. R-MAT has Graph500's parameters: scale {SCALE}, edge factor {EDGE_FACTOR}, a, b, c = .57, .19, .19, without its "
    "loops and duplicates. The targets are any vertices, of which many have no edge.",
    "epoch": f"## An epoch beside PyG\n\nFanout {FANOUT} in every layer, dropout 0.5, Adam, no evaluation; medians of {TURNS} "
    "epochs in turns, in one process. PyG has the same batches, drawn by our sampler in a thread beside it.",
    "accuracy": "## Accuracy beside the full batch\n\nMeans over {seeds} seeds of the test accuracy in the epoch of the best "
    "validation accuracy, of {epochs} epochs. Batches of 64 training vertices, fanout 10 in every layer; hidden width 64, "
    "dropout 0.5, Adam with weight decay 5e-4 and the rate, of 0.01 and 0.003, that has the better mean validation accuracy. "
    "Seconds are those of a whole run, evaluations included.",
    "large": f"## A larger graph\n\nGenerated: {LARGE[0]:,} vertices, {LARGE[1]:,} edges: hidden width 128, dropout 0.5, "
    f"Adam at 0.003, batches of 1,024 training vertices, fanout {FANOUT} in every layer. `cached_nodes` and `each_once` read "
    "12 of 16 partitions at a time from a disk, and draw neighbours there. Test accuracy in the best of the evaluated epochs.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS, help="of the part edges")
    parser.add_argument("--seeds", type=int, default=5, help="of the part accuracy (default: 5)")
    parser.add_argument("--epochs", type=int, default=60, help="of the part accuracy (default: 60)")
    parser.add_argument("--epinions", type=Path, default=EPINIONS, help="the file soc-Epinions1.txt of SNAP")
    parser.add_argument("--load", default="nothing else", help="what else ran on the machine, for the text")
    parser.add_argument("--out", type=Path, help=f"file of the tables (default with all parts: {RESULTS.name})")
    options = parser.parse_args()
    run = {"edges": lambda: edges_part(graphs_of(options.epinions, options.graphs)), "epoch": epoch_part,
           "accuracy": lambda: accuracy_part(options.seeds, options.epochs),
           "large": lambda: large_part(max(1, options.seeds // 3))}  # fmt: skip
    found = {part: run[part]() for part in options.parts}
    place = options.out or (RESULTS if set(found) == set(PARTS) else None)
    if place is None:
        return
    command = shlex.join(["python", "benchmarks/mini_batches.py", *sys.argv[1:]])
    lines = ["# Mini-batches", "", f"`{command}` on {platform.system()}, Python {platform.python_version()}, torch "
             f"{torch.__version__}, {torch.get_num_threads()} threads; beside it ran {options.load}.", ""]  # fmt: skip
    for part, table in found.items():
        lines += [TEXTS[part].format(seeds=options.seeds, epochs=options.epochs), "", *table, ""]
    place.parent.mkdir(exist_ok=True)
    place.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
