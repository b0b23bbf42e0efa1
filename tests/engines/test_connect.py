"""Graphs in Spark Connect: the local engine trains on them, and the others say at once that they cannot.

By day, a class with the name and the module of Connect's DataFrame stands in for it, since Connect needs packages that
PySpark does not bring. The nightly test runs a real session where they are installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

import lotan
from lotan.engines.choice import check_connect, choose_engine
from lotan.errors import ConfigurationError
from lotan.graph.column_names import ColumnNames
from lotan.graph.sources import Source
from lotan.settings.config import TrainerConfig
from planner.footprint import Footprint

NEEDED = ("grpc", "grpc_status", "google.rpc")


class DataFrame:
    """A table of no session."""

    columns = ("id", "features", "label", "split", "src", "dst")


DataFrame.__module__ = "pyspark.sql.connect.dataframe"


@pytest.fixture
def graph() -> lotan.Graph:
    table: Any = DataFrame()
    return lotan.Graph._of(Source(ColumnNames(), tables=(table, table)), undirected=False)


@pytest.mark.parametrize("engine", ["blocks", "rows"])
def test_engines_on_spark_are_refused_before_work_starts(graph: lotan.Graph, engine: str) -> None:
    trainer = lotan.Trainer(lotan.nn.GCN(1, 2, 1, 2), graph, engine=engine, progress=False)
    with pytest.raises(ConfigurationError, match="this graph is in Spark Connect; use engine='local'"):
        trainer.fit()


def test_auto_takes_the_local_engine_if_the_graph_fits(graph: lotan.Graph) -> None:
    def choice(peak: int, **options: Any) -> Any:
        needs = {"local": Footprint(engine="local", peak=peak, least=peak)}
        return choose_engine(TrainerConfig(**options), graph, needs, {})

    assert choice(1 << 20).name == "local"
    assert "Spark Connect" in choice(1 << 20).reason
    for options in ({}, {"memory_limit": "1g"}):
        with pytest.raises(ConfigurationError, match="training does not fit in memory: it needs about"):
            choice(1 << 50, **options)
    check_connect("local", graph)
    check_connect("auto", graph)
    assert not lotan.Graph.read("digits").on_connect


PROGRAM = """
from pyspark.sql import SparkSession
import lotan

spark = SparkSession.builder.remote("local[1]").getOrCreate()
rows = [(i, [float(i)], i % 2, "train") for i in range(8)]
vertices = spark.createDataFrame(rows, "id int, features array<float>, label int, split string")
graph = lotan.Graph(vertices, spark.createDataFrame([(1, 2)], "src int, dst int"))
run = lotan.Trainer(lotan.nn.GCN(1, 2, 1, 2), graph, epochs=1, progress=False).fit()
assert run.report["engine"] == "local"
run.save("model")
graph.save("graph")
assert lotan.load("model").predict(graph).count() == run.predict().count() == 8
print("done")
spark.stop()
"""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.skipif(
    not all(find_spec(name.split(".")[0]) and find_spec(name) for name in NEEDED),
    reason=f"Spark Connect needs {', '.join(NEEDED)}",
)
def test_a_real_session(tmp_path: Any) -> None:
    environment = os.environ | {"SPARK_CONNECT_MODE_ENABLED": "1"}
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout.splitlines()[-1] == "done", done.stdout + done.stderr
