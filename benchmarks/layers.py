"""One epoch of models of PyG's own layers, unmodified: trained by PyG, and by Lotan.

    python benchmarks/layers.py                                    writes benchmarks/results/layers.md
    python benchmarks/layers.py --models gatv2 --engines blocks    fewer
    python benchmarks/layers.py --vertices 20000 --edges 200000    smaller

The models have three layers, dropout 0.5, and as many channels between layers as the heading says: GATv2 and Transformer with
four heads, PNA with four aggregations and three scalers, RGCN with four relations, GINE with attributes of width eight. The
graph is that of benchmarks/arxiv.py, with drawn attributes and types. Each contestant trains the same module in a process of
its own. PyG gets the edges as `edge_index`, and sorted by destination with everything that `EdgeIndex` derives; the form with
the lesser median is what the others are divided by. An epoch is forward, backward and Adam's step. The first epochs do not
count. Memory is the peak of the whole job, the graph included.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from apart import run_apart, write_table
from arxiv import CLASSES, SETTINGS, WARM_UP, WIDTH, sorted_edges
from epoch import MEBI, machine, timed

RESULTS = Path(__file__).parent / "results" / "layers.md"
LAYERS, HEADS, RELATIONS, ATTRIBUTES = 3, 4, 4, 8
MODELS = {
    "gatv2": "GATv2Conv",
    "transformer": "TransformerConv",
    "pna": "PNAConv",
    "rgcn": "RGCNConv",
    "gine": "GINEConv",
}
PLAIN, SORTED = "pyg edge_index", "pyg EdgeIndex"


def read_graph(options: argparse.Namespace) -> Any:
    """The generated graph; drawn attributes and types are added for the models that read them."""
    import numpy as np

    import lotan

    arrays = lotan.datasets.generate(options.vertices, options.edges, WIDTH, CLASSES, seed=options.seed).arrays()
    drawn = np.random.default_rng(options.seed)
    more: dict[str, Any] = {}
    if options.one[0] == "gine":
        more["edge_attr"] = drawn.standard_normal((len(arrays.src), ATTRIBUTES), np.float32)
    if options.one[0] == "rgcn":
        more["edge_type"] = drawn.integers(0, RELATIONS, len(arrays.src))
    return lotan.Graph.from_arrays(arrays.features, arrays.src, arrays.dst, arrays.label, arrays.split, **more)


def make_model(name: str, graph: Any, hidden: int) -> Any:
    """The module, as a user of PyG writes it."""
    import torch
    from torch_geometric import nn
    from torch_geometric.utils import degree

    def layer(inputs: int, outputs: int, last: bool) -> Any:
        heads = 1 if last else HEADS
        if name == "gatv2":
            return nn.GATv2Conv(inputs, outputs // heads, heads)
        if name == "transformer":
            return nn.TransformerConv(inputs, outputs // heads, heads)
        if name == "pna":
            degrees = torch.bincount(degree(torch.from_numpy(graph.arrays().dst).long(), dtype=torch.long))
            scalers = ["identity", "amplification", "attenuation"]
            return nn.PNAConv(inputs, outputs, ["mean", "min", "max", "std"], scalers, degrees)
        if name == "rgcn":
            return nn.RGCNConv(inputs, outputs, RELATIONS)
        mlp = torch.nn.Sequential(torch.nn.Linear(inputs, outputs), torch.nn.ReLU(), torch.nn.Linear(outputs, outputs))
        return nn.GINEConv(mlp, edge_dim=ATTRIBUTES)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [WIDTH, *[hidden] * (LAYERS - 1), CLASSES]
            pairs = pairwise(widths)
            self.convs = torch.nn.ModuleList(layer(*pair, number == LAYERS - 1) for number, pair in enumerate(pairs))

        def run(self, x: Any, *of_edges: Any) -> Any:
            for conv in self.convs[:-1]:
                x = torch.nn.functional.dropout(conv(x, *of_edges).relu(), 0.5, self.training)
            return self.convs[-1](x, *of_edges)

    class Plain(Model):
        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.run(x, edge_index)

    class WithAttributes(Model):
        def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
            return self.run(x, edge_index, edge_attr)

    class WithTypes(Model):
        def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
            return self.run(x, edge_index, edge_type)

    torch.manual_seed(0)
    return {"gine": WithAttributes, "rgcn": WithTypes}.get(name, Plain)()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train one contestant in this process."""
    model, contestant = options.one
    graph = read_graph(options)
    run = measure_lotan if contestant in SETTINGS else measure_pyg
    seconds, memory = run(make_model(model, graph, options.hidden), graph, contestant, options.epochs + WARM_UP)
    return {"seconds": seconds[WARM_UP:], "memory": memory}


def measure_pyg(model: Any, graph: Any, contestant: str, epochs: int) -> tuple[list[float], dict[str, int]]:
    from lotan.memory.watch import MemoryWatch

    with MemoryWatch() as watch:
        step = pyg_step(model, graph, contestant)
        seconds = [timed(step) for _ in range(epochs)]
    return seconds, watch.peak


def pyg_step(model: Any, graph: Any, contestant: str) -> Callable[[], None]:
    """One epoch of PyG's."""
    import torch

    arrays = graph.arrays()
    features, label = torch.from_numpy(arrays.features), torch.from_numpy(arrays.label)
    training = torch.from_numpy(arrays.split == 0) & (label >= 0)
    edges = torch.stack([torch.from_numpy(arrays.src), torch.from_numpy(arrays.dst)]).long()
    of_edges = [torch.from_numpy(column) for column in (arrays.edge_attr, arrays.edge_type) if column is not None]
    if contestant == SORTED:
        order = edges[1].argsort(stable=True)
        of_edges = [column[order] for column in of_edges]
        edges = sorted_edges(edges[:, order], len(features))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(features, edges, *of_edges)[training], label[training])
        loss.backward()
        optimizer.step()

    return step


def measure_lotan(model: Any, graph: Any, contestant: str, epochs: int) -> tuple[list[float], dict[str, int]]:
    import lotan

    adam = lotan.Adam(lr=0.01, weight_decay=5e-4)
    settings = {"epochs": epochs, "eval_every": 0, "progress": False, **SETTINGS[contestant]}
    run = lotan.Trainer(model, graph, optimizer=adam, **settings).fit()
    return [entry["train_seconds"] for entry in run.history], run.report["peak_memory_bytes"]


def measure_model(model: str, options: argparse.Namespace) -> list[str]:
    """The rows of one model, in Markdown."""
    measured: dict[str, dict[str, Any]] = {}
    shape = ["--vertices", options.vertices, "--edges", options.edges, "--hidden", options.hidden]
    shape += ["--seed", options.seed, "--epochs", options.epochs]
    for name in (*options.peers, *options.engines):
        print(f"{model}: {name}", file=sys.stderr, flush=True)
        words = ["--one", model, name, *map(str, shape)]
        try:
            measured[name] = run_apart(__file__, words, f"{model} by {name}")
        except SystemExit as failure:
            print(failure, file=sys.stderr, flush=True)
    medians = {name: statistics.median(found["seconds"]) for name, found in measured.items()}
    fastest = min((medians[name] for name in options.peers if name in medians), default=None)
    lines = []
    for name in (*options.peers, *options.engines):
        if name not in measured:
            lines.append(f"| {MODELS[model]} | {name} | failed | | | |")
            continue
        ratio = "-" if fastest is None else f"{medians[name] / fastest:.2f}"
        least, memory = min(measured[name]["seconds"]), sum(measured[name]["memory"].values()) / MEBI
        lines.append(f"| {MODELS[model]} | {name} | {medians[name]:.2f} | {least:.2f} | {ratio} | {memory:,.0f} |")
    print("\n".join(lines), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--engines", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--peers", nargs="*", choices=[PLAIN, SORTED], default=[PLAIN, SORTED])
    parser.add_argument("--epochs", type=int, default=3, help="measured epochs, after the warm-up")
    parser.add_argument("--hidden", type=int, default=64, help="channels between layers (default: 64)")
    parser.add_argument("--vertices", type=int, default=169_343)
    parser.add_argument("--edges", type=int, default=2_400_000)
    parser.add_argument("--seed", type=int, default=0, help="of the graph")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/layers.md)")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "CONTESTANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options)))
        return
    command = shlex.join(["python", "benchmarks/layers.py", *sys.argv[1:]])
    shape = f"{options.vertices:,} vertices, {options.edges:,} edges, {WIDTH} features, {options.hidden} channels"
    lines = [f"# One epoch of PyG's layers: {shape}", "", f"`{command}` on {machine()}.", ""]
    lines += [__doc__.split("\n\n")[-1], "| layer | trained by | s / epoch, median | least | median ÷ PyG | peak MiB |"]
    lines += ["|---|---|---|---|---|---|"]
    for model in options.models:
        lines += measure_model(model, options)
        write_table(options.out, [*lines, ""])


if __name__ == "__main__":
    main()
