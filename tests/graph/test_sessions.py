"""A graph or a run whose Spark session was stopped says so, in words of this package."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import sys
import lotan
from lotan.hosts.spark_session import SparkSettings, open_spark
from lotan.ml import GNNClassifier

opened = open_spark(SparkSettings("local[1]"))
spark = opened.session
rows = [(1, [0.0], 0, "train"), (2, [1.0], 1, "val")]
vertices = spark.createDataFrame(rows, "id int, features array<float>, label int, split string")
edges = spark.createDataFrame([(1, 2)], "src int, dst int")
graph = lotan.Graph(vertices, edges)
run = lotan.Trainer(lotan.nn.GCN(1, 2, 1, 2), graph, engine="local", epochs=1, progress=False).fit()
opened.close()
fresh = lotan.Graph(vertices, edges)
another = None
for restarted in (False, True)[: int(sys.argv[1])]:
    if restarted:
        another = open_spark(SparkSettings("local[1]"))
    for name, use in {
        "statistics": lambda: fresh.statistics,
        "arrays": fresh.arrays,
        "tables": graph.tables,
        "save": lambda: graph.save("nowhere"),
        "predict": run.predict,
        "fit": lotan.Trainer(lotan.nn.GCN(1, 2, 1, 2), graph, epochs=1, progress=False).fit,
        "estimator": lambda: GNNClassifier(epochs=1).setEdges(edges).fit(vertices),
        "explain": lotan.Trainer(lotan.nn.GCN(1, 2, 1, 2), fresh, epochs=1).explain,
    }.items():
        try:
            use()
            print(name, "did not fail")
        except lotan.GraphError as error:
            assert "The Spark session of this graph was stopped" in str(error), (name, error)
print("done")
"""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.parametrize("sessions", [1, 2])
def test_a_graph_of_a_stopped_session_is_a_typed_error(tmp_path, sessions):
    """With two sessions, another one has started meanwhile."""
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(sessions)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.stdout == "done\n", done.stdout + done.stderr
