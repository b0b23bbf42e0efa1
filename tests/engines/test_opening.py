"""Where a graph in files is read: by Spark for rows, in this process for local, and for auto where it fits."""

from __future__ import annotations

import pytest

import lotan
from lotan import datasets
from lotan.engines import choice, opening
from lotan.engines.opening import placed
from lotan.errors import EngineError
from lotan.graph.graph import Graph
from lotan.hosts import jar


@pytest.fixture
def in_files(tmp_path) -> Graph:
    datasets.generate(200, 800, width=8, classes=4).save(tmp_path / "graph")
    graph = Graph.read(tmp_path / "graph")
    graph.arrays = lambda: pytest.fail("the files were read into this process")  # type: ignore[method-assign]
    return graph


@pytest.mark.spark
def test_spark_reads_the_files_for_rows(in_files, spark):
    with placed(in_files, lotan.TrainerConfig(engine="rows"), None) as graph:
        assert graph.origin == "spark"
        assert graph.statistics.vertices == 200


@pytest.mark.parametrize(("free", "origin"), [(10_000, "spark"), (10_000_000, "files")])
@pytest.mark.spark
def test_auto_decides_from_the_footers(in_files, spark, free, origin, monkeypatch):
    monkeypatch.setattr(choice, "free_memory", lambda: free)
    with placed(in_files, lotan.TrainerConfig(engine="auto"), None) as graph:
        assert graph.origin == origin


def test_local_leaves_files_to_this_process(in_files):
    with placed(in_files, lotan.TrainerConfig(engine="local"), None) as graph:
        assert graph is in_files


def test_blocks_without_a_jar_are_refused_before_spark_starts_or_a_row_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(jar, "JAR", tmp_path / "lotan.hosts.jar")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in opening.SPARK_ARGUMENTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("lotan.hosts.spark_session.active_session", lambda: None)
    monkeypatch.setattr("lotan.hosts.spark_session.open_spark", lambda *_: pytest.fail("Spark was started"))
    with pytest.raises(EngineError, match=jar.BUILD):
        opening.check_jar("blocks")
    opening.check_jar("auto")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars elsewhere.jar pyspark-shell")
    opening.check_jar("blocks")
