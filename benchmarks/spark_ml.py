"""A CrossValidator over a grid as one batch of models a fold, against the same maps fitted one by one.

    python benchmarks/spark_ml.py              writes benchmarks/results/spark_ml.md
    python benchmarks/spark_ml.py --turns 1    fewer

Two graphs, two folds, eight maps: learning rates x dropouts x hidden widths of a GCN with two layers, engine "local". `batch` is
the estimator as it is; `one by one` is the same estimator with Spark's own `fitMultiple`, which fits each map by itself; the line
of the CrossValidator is the same. Both are timed around `CrossValidator.fit`, after one fit of one epoch that warms up Spark, in
a process of their own each, and take turns; metrics must be equal to the bit.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from apart import run_apart, write_table
from epoch import machine

RESULTS = Path(__file__).parent / "results" / "spark_ml.md"
GRAPHS: dict[str, dict[str, Any]] = {  # vertices, edges, features, classes; epochs
    "cora-sized": {"sizes": (2_708, 10_556, 1_433, 7), "epochs": 100},
    "coauthor-sized": {"sizes": (18_333, 163_788, 1_000, 15), "epochs": 30},
}
GRID: dict[str, list[Any]] = {"lr": [0.01, 0.03], "dropout": [0.2, 0.5], "hiddenChannels": [16, 64]}


def measure(name: str, batched: bool) -> dict[str, Any]:
    """Cross-validate in this process."""
    from pyspark.ml.base import Estimator
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
    from pyspark.sql import functions as F

    import lotan
    from lotan.hosts.spark_session import SparkSettings, open_spark
    from lotan.ml import GNNClassifier

    class OneByOne(GNNClassifier):
        fitMultiple = Estimator.fitMultiple  # noqa: N815 - Spark's own

    opened = open_spark(SparkSettings(master="local[2]"))
    opened.session.conf.set("spark.sql.shuffle.partitions", "2")
    vertices, edges = lotan.datasets.generate(*GRAPHS[name]["sizes"], seed=0).frames(opened.session)
    vertices = vertices.withColumn("fold", F.pmod(F.xxhash64("id"), F.lit(2)).cast("int")).cache()
    edges.cache().count()
    classifier = (GNNClassifier if batched else OneByOne)(engine="local", numClasses=GRAPHS[name]["sizes"][3])
    classifier.setEdges(edges).setVertices(vertices.select("id", "features"))
    classifier.copy({classifier.epochs: 1}).fit(vertices)
    classifier.setEpochs(GRAPHS[name]["epochs"])
    grid = ParamGridBuilder()
    for param, values in GRID.items():
        grid.addGrid(classifier.getParam(param), values)
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    validator = CrossValidator(
        estimator=classifier, estimatorParamMaps=grid.build(), evaluator=evaluator, numFolds=2, foldCol="fold"
    )
    started = time.perf_counter()
    metrics = validator.fit(vertices).avgMetrics
    seconds = time.perf_counter() - started
    opened.close()
    return {"seconds": seconds, "metrics": metrics}


def table(found: dict[str, dict[bool, list[dict[str, Any]]]]) -> list[str]:
    """The Markdown."""
    lines = ["| graph | one by one, s | batch, s | batch ÷ one by one | best accuracy |", "|---|---|---|---|---|"]
    for name, turns in found.items():
        apart, batch = (statistics.median(one["seconds"] for one in turns[kind]) for kind in (False, True))
        best = max(turns[True][0]["metrics"])
        lines.append(f"| {name} | {apart:.1f} | {batch:.1f} | {batch / apart:.2f} | {best:.4f} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--turns", type=int, default=2, help="processes of each kind, taking turns")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the table (default: benchmarks/results/spark_ml.md)")
    parser.add_argument("--one", nargs=2, metavar=("GRAPH", "BATCHED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], options.one[1] == "True")))
        return
    found: dict[str, dict[bool, list[dict[str, Any]]]] = {}
    for name in options.graphs:
        turns = found[name] = {True: [], False: []}
        for batched in [True, False] * options.turns:
            turns[batched].append(run_apart(__file__, ["--one", name, str(batched)], f"{name}, batched: {batched}"))
        if turns[True][0]["metrics"] != turns[False][0]["metrics"]:
            raise SystemExit(f"{name}: metrics differ: {turns[True][0]['metrics']}, {turns[False][0]['metrics']}")
        print(*table(found), sep="\n", flush=True)
    command = shlex.join(["python", "benchmarks/spark_ml.py", *sys.argv[1:]])
    text = ["# A grid in a CrossValidator", "", f"`{command}` on {machine()}.", ""]
    write_table(options.out, [*text, *__doc__.split("\n\n")[-1:], *table(found)])


if __name__ == "__main__":
    main()
