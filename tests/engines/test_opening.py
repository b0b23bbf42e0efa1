"""Where a graph in files is read: by Spark for rows, in this process for local, and for auto where it fits."""

from __future__ import annotations

import shutil

import pytest

import lotan
from lotan import datasets
from lotan.engines import choice, opening
from lotan.engines.opening import open_engine, placed
from lotan.errors import EngineError
from lotan.graph.graph import Graph
from lotan.hosts import jar
from lotan.memory import mapped
from planner.footprint import Footprint


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


@pytest.mark.parametrize("of_files", [False, True], ids=["arrays", "files"])
def test_a_disk_that_spark_cannot_spill_to_is_refused_before_spark_starts(in_files, of_files, monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr("lotan.memory.mapped.file_system", lambda _: "ext4")
    monkeypatch.setattr("lotan.hosts.spark_session.active_session", lambda: None)
    monkeypatch.setattr("lotan.hosts.spark_session.open_spark", lambda *_: pytest.fail("Spark was started"))
    graph = in_files if of_files else datasets.generate(200, 800, width=8, classes=4)
    config = lotan.TrainerConfig(engine="blocks", memory_limit="3g", master="local[2]")

    def started(needs: Footprint) -> None:
        if of_files:
            with placed(graph, config, needs):
                pass
        else:
            open_engine(needs, graph, config)

    with pytest.raises(EngineError, match=r"columns lie in files in .* bytes left"):
        started(Footprint("blocks", peak=4 << 30, least=2 << 30, on_disk=1 << 60))
    monkeypatch.setattr(mapped, "file_system", lambda folder: "tmpfs")
    with pytest.raises(EngineError, match="is itself in memory"):
        started(Footprint("blocks", peak=4 << 30, least=2 << 30, on_disk=4 << 30))
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):  # all of it is in memory
        started(Footprint("blocks", peak=2 << 30, least=2 << 30, on_disk=1))


@pytest.mark.parametrize("engine", ["blocks", "rows"])
@pytest.mark.parametrize("limit", [None, "1000g"])
@pytest.mark.spark
def test_the_local_disk_of_a_session_that_runs_is_checked(spark, engine, limit):
    """Before anything is loaded, at the folder of its own setting."""
    folder, graph = spark.sparkContext.getConf().get("spark.local.dir"), datasets.generate(200, 800, width=8, classes=4)
    config = lotan.TrainerConfig(engine=engine, memory_limit=limit, workers=1)
    with pytest.raises(EngineError) as refused:
        open_engine(Footprint(engine, peak=2 << 60, least=2 << 30, on_disk=1 << 60), graph, config)
    assert f"{1 << 60:,} bytes of columns lie in files in {folder}, which has" in str(refused.value)
    assert "set spark.local.dir to a folder on another disk" in str(refused.value)
    assert ("raise memory_limit" in str(refused.value)) == (limit is not None)


def test_folders_share_what_lies_there(tmp_path, monkeypatch):
    """Two on one disk need as much room as one folder, and a folder that does not exist yet has that of the one above."""
    monkeypatch.setattr(mapped, "file_system", lambda _: "ext4")
    free = shutil.disk_usage(tmp_path).free
    two = [str(tmp_path / "a" / "b"), str(tmp_path / "c")]
    mapped.check_room(free // 2, two)
    with pytest.raises(
        EngineError, match=f"{2 * free:,} bytes of columns lie in files in {' and '.join(two)}, which have"
    ):
        mapped.check_room(2 * free, two, "SPARK_LOCAL_DIRS")
