"""Trains stock models on all engines and compares every bit of what comes out with an earlier run of this script.

A refactoring must not change results. This script goes through the public API only, so that it runs on the code before and
after a change:

    cd BEFORE && PYTHONPATH=$PWD python .../tools/compare_weights.py before.json
    cd AFTER && PYTHONPATH=$PWD python .../tools/compare_weights.py after.json --against before.json

The second command exits with 1 and says what differs, if anything does. Both must run on the same machine, with the same
versions of torch and Spark. Spark starts once; each run on it has a worker of its own, which takes most of the time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

os.environ["LOTAN_COSTS"] = "off"  # a plan must not depend on what this machine has measured before

import lotan

VERTICES, EDGES, WIDTH, CLASSES = 300, 1500, 24, 5
SIZES = {"in_channels": WIDTH, "hidden_channels": 16, "num_layers": 2, "out_channels": CLASSES}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "GCN": {},
    "GraphSAGE": {},
    "GIN": {"train_eps": True},
    "GAT": {"heads": 2},
}
ENGINES: Mapping[str, Mapping[str, Any]] = {
    "local": {"chunk_rows": 128},
    "blocks": {"master": "local[2]", "partitions": 3, "workers": 1, "chunk_rows": 64},
    "rows": {"master": "local[2]", "partitions": 3, "workers": 1, "chunk_rows": 64},
}
RULES = (
    "share_subplans",
    "drop_unit_weight",
    "lift_message",
    "push_down",
    "push_down_edges",
    "commute_linear",
    "hoist_invariant",
    "reuse_evaluation",
    "fuse_apply",
    "prune_vertices",
    "drop_dead_gradients",
    "keep_or_recompute",
    "hold_sparse",
    "choose_physical",
)


@dataclass(frozen=True)
class Configuration:
    """One training run; without a model, a batch of all four."""

    engine: str
    model: str | None
    graph: str = "plain"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A name that says everything in which the run differs from the others."""
        said = [f"{key}={value}" for key, value in {**self.model_options, **self.options}.items()]
        return " ".join([self.engine, self.model or "batch", self.graph, *said])

    @property
    def predicts(self) -> bool:
        """True if the run's own engine predicts; on Spark, that takes another worker."""
        return self.engine == "local" or self.options.get("workers") == 2


def configurations() -> Iterator[Configuration]:
    """All runs, those of one engine together."""
    for engine in ENGINES:
        for model in MODELS:
            yield Configuration(engine, model, options={} if engine == "local" else {"workers": 2})
            yield Configuration(engine, model, "weighted", {"dropout": 0.5}, {"eval_every": 0})
        yield from _special(engine)
    for model in MODELS:
        for graph in ("loops", "few", "sparse", "undirected", "names", "regression", "labels"):
            yield Configuration("local", model, graph)
        yield Configuration("local", model, "plain", {}, {"plan": "general"})
    for rule in RULES:
        for model in ("GCN", "GAT"):
            yield Configuration("local", model, "few", {}, {"disable": (rule,)})


def _special(engine: str) -> Iterator[Configuration]:
    """Runs in which each engine does something of its own."""
    yield Configuration(engine, "GCN", "few", {"num_layers": 3})
    yield Configuration(engine, "GCN", "sparse")
    yield Configuration(engine, "GAT", "loops")
    yield Configuration(engine, "GIN", "undirected", {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}})
    yield Configuration(engine, "GraphSAGE", "names", {"aggr": "max"})
    yield Configuration(engine, "GraphSAGE", "labels", {"jk": "cat", "dropout": 0.3})
    yield Configuration(engine, "GCN", "regression", {}, {"memory_limit": "6g", "worker_memory": 0})
    yield Configuration(engine, "GCN", "plain", {}, {"disable": ("hoist_invariant", "commute_linear")})
    yield Configuration(engine, "GraphSAGE", "plain", {}, {"disable": ("push_down",)})
    yield Configuration(engine, None)
    if engine != "blocks":
        yield Configuration(engine, "GAT", "plain", {}, {"plan": "general"})
        yield Configuration(engine, "GAT", "plain", {}, {"plan": "general", "rgb": False})


def graph(kind: str) -> lotan.Graph:
    """A small random graph with a hub, parallel edges and vertices without edges.

    Args:
        kind: "plain", or the name of what is special about the graph.
    """
    random = np.random.default_rng(7)
    src, dst = random.integers(0, VERTICES - 10, (2, EDGES))
    dst[: EDGES // 4] = 3
    loops = random.integers(0, VERTICES, 40)
    features = random.normal(size=(VERTICES, WIDTH)).astype(np.float32)
    label: np.ndarray = random.integers(0, CLASSES, VERTICES)
    split = random.choice(np.array([0, 0, 1, 2, -1], np.int8), VERTICES)
    weight, ids = None, None
    match kind:
        case "weighted":
            weight = (random.random(EDGES) + 0.5).astype(np.float32)
        case "loops":
            src, dst = np.concatenate([src, loops]), np.concatenate([dst, loops])
        case "few":
            split[split == 0] = -1
            split[[5, 80, 200]] = 0
        case "sparse":
            features[random.random(features.shape) < 0.9] = 0.0
        case "names":
            ids = np.array([f"v{number:03d}" for number in range(VERTICES)])
            src, dst = ids[src], ids[dst]
        case "regression":
            label = random.normal(size=(VERTICES, CLASSES)).astype(np.float32)
        case "labels":
            label = random.integers(0, 2, (VERTICES, CLASSES))
    return lotan.Graph.from_arrays(features, src, dst, label, split, weight, ids, undirected=kind == "undirected")


def made(model: str, options: Mapping[str, Any], seed: int = 0) -> torch.nn.Module:
    """A stock model with the weights that `seed` draws."""
    torch.manual_seed(seed)
    return getattr(lotan.nn, model)(**{**SIZES, **MODELS[model], **options})


def train(configuration: Configuration, graph: lotan.Graph) -> dict[str, str]:
    """Digests of the weights, the losses, the metrics and the predictions, by name."""
    options = {**ENGINES[configuration.engine], "engine": configuration.engine, "progress": False}
    options |= configuration.options
    if configuration.model is not None:
        model = made(configuration.model, configuration.model_options)
        run = lotan.Trainer(model, graph, epochs=3, seed=11, **options).fit()
        return digests(model, run, None if configuration.predicts else graph)
    models = [made(name, {"dropout": 0.5}, seed) for seed, name in enumerate(MODELS)]
    members = [lotan.Member(model, lotan.Adam(lr=0.02), seed, epochs=3) for seed, model in enumerate(models)]
    with lotan.ModelBatch(graph, members, **options) as batch:
        batch.train()
        runs = batch.runs()
        return {
            f"{number}/{name}": digest
            for number, run in runs.items()
            for name, digest in digests(models[number], run, graph).items()
        }


def digests(model: torch.nn.Module, run: Any, graph: lotan.Graph | None) -> dict[str, str]:
    """Digests of what a run hands back, with predictions of its own engine, or of the local one for `graph`."""
    found = {f"weight {name}": digest(value.numpy().tobytes()) for name, value in model.state_dict().items()}
    for entry in run.history:
        figures = {key: entry[key] for key in ("train_loss", "loss", "metrics") if key in entry}
        found[f"history {entry['epoch']}"] = digest(json.dumps(figures, sort_keys=True).encode())
    predicted = run.predict() if graph is None else run.model.predict(graph, engine="local", chunk_rows=128)
    predicted = predicted.sort_values("id")
    for column in predicted.columns:
        rows = [np.asarray(value).tolist() for value in predicted[column]]
        found[f"predicted {column}"] = digest(json.dumps(rows).encode())
    return found


def digest(content: bytes) -> str:
    """SHA-256, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def run_all(only: str) -> dict[str, dict[str, str]]:
    """The digests of every run whose name begins with `only`, by its name. A run that fails has its error instead."""
    chosen = {one.name: one for one in configurations() if one.name.startswith(only)}
    found = {}
    with ExitStack() as stack:
        starts = True
        for number, (name, configuration) in enumerate(chosen.items(), 1):
            if configuration.engine != "local" and starts:
                stack.enter_context(spark())
                starts = False
            started = time.perf_counter()
            try:
                found[name] = train(configuration, graph(configuration.graph))
            except lotan.LotanError as error:
                found[name] = {"error": str(error)}
            print(f"{number}/{len(chosen)} {time.perf_counter() - started:5.1f} s  {name}", file=sys.stderr, flush=True)
    return found


@contextmanager
def spark() -> Iterator[None]:
    """The Spark session that all runs on blocks and rows share."""
    from pyspark.sql import SparkSession

    jars = sorted((Path(lotan.__file__).parent / "jars").glob("*.jar"))
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.master("local[2]").appName("compare-weights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield
    session.stop()


def differences(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A line for each run whose digests differ, and for each run that only one side has."""
    lines = []
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after or name not in before:
            lines.append(f"{name}: only {'before' if name in before else 'after'}")
            continue
        keys = dict.fromkeys([*before[name], *after[name]])
        if other := [key for key in keys if before[name].get(key) != after[name].get(key)]:
            errors = [f"; error: {side['error']}" for side in (before[name], after[name]) if "error" in side]
            lines.append(f"{name}: {', '.join(other)}{''.join(errors)}")
    return lines


def main() -> int:
    """Run all, write the digests, and compare them if there is something to compare with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the JSON file to write")
    parser.add_argument("--against", type=Path, help="a file that an earlier run wrote")
    parser.add_argument("--only", default="", help="the beginning of a run's name, such as 'blocks GCN'; default: all")
    given = parser.parse_args()
    found = run_all(given.only)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} runs, {sum('error' in run for run in found.values())} of which failed: {given.out}")
    if given.against is None:
        return 0
    before = json.loads(given.against.read_text())
    lines = differences({name: run for name, run in before.items() if name.startswith(given.only)}, found)
    print("\n".join(lines) if lines else f"all as in {given.against}, to the last bit")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
