"""A memory limit: what it is read as, what is started with it, and what is refused because of it."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.engines.choice import ENGINES, limit_notes
from lotan.errors import ConfigurationError
from lotan.exploring.calibration import trained_on
from lotan.hosts.jar import JAR
from lotan.hosts.spark_session import Heap, driver_heap, heap_of
from lotan.memory import limit as memory_limit
from lotan.memory.limit import MemoryLimit, check_fits, heap_notes
from lotan.planning.identity import identity
from lotan.planning.pricing import spread_over
from lotan.settings.byte_sizes import byte_count
from planner.cost.seconds import Pricing
from planner.footprint import Footprint, footprint, in_hand, reads_in_turn
from planner.layout import Layout
from planner.physical import Plan
from planner.shares import MIB, Crew, fixed_bytes, storage_bytes
from planner.statistics import Statistics
from tests.engines.test_clusters import assert_same_weights, run

GIB = 1 << 30


@pytest.mark.parametrize(
    ("given", "count"),
    [
        *((123, 123), ("2g", 2 * GIB), ("512M", 512 * MIB), ("1.5 GB", 3 * GIB // 2), ("700 KiB", 700 << 10)),
        *(("3gb", 3 * GIB), ("3G", 3 * GIB), ("3 GiB", 3 * GIB), ("3.5g", 7 * GIB // 2), ("4096", 4096), (" 5b ", 5)),
        *(("2tb", 2 << 40), ("1p", 1 << 50), ("1pb", 1 << 50)),
    ],
)
def test_sizes_as_people_write_them(given, count):
    assert byte_count("memory_limit", given) == count


@pytest.mark.parametrize(
    "given", ["", "2x", "g", "-1g", 0, -5, True, 1.5, "0", None, "9" * 30, "1e3", "²g", "nan", "1e9", "3i", "3ib", "٣g"]
)
@pytest.mark.parametrize("setting", ["memory_limit", "worker_memory", "worker_rows"])
def test_nonsense_is_refused_by_name(given, setting):
    if given is None or (setting != "memory_limit" and given in (0, "0") and given is not False):
        lotan.TrainerConfig(**{setting: given})
        return
    with pytest.raises(
        ConfigurationError, match=rf"{setting} is .*, which is .*; expected .* such as 512m, 2g or 1\.5g$"
    ):
        lotan.TrainerConfig(**{setting: given})


def config(**options) -> lotan.TrainerConfig:
    return lotan.TrainerConfig(workers=2, master="local[2]", **options)


def test_everything_that_is_started_has_its_share():
    limit = MemoryLimit.of(config(memory_limit="6g"))
    session = limit.session(config(memory_limit="6g"))
    heap = limit.heap(None)
    assert heap is not None
    assert heap.capped
    taken = heap.bytes + 2 * (session.worker_memory + session.messenger.kept_bytes) + 2 * session.messenger.shared_bytes
    assert fixed_bytes(limit.crew) + taken <= 6 * GIB
    assert session.capped
    more = MemoryLimit.of(config(memory_limit="8g"))
    assert more.heap(None).bytes > heap.bytes


def test_the_memory_of_workers_may_be_settled_with_and_without_a_limit():
    for options in ({}, {"memory_limit": "6g"}):
        assert MemoryLimit.of(config(worker_memory="100m", **options)).session(config()).worker_memory == 100 * MIB
    assert MemoryLimit.of(config()).session(config()).worker_memory == 1 << 30


def test_rows_that_workers_keep_are_among_what_they_keep_of_a_limit():
    for options in ({}, {"memory_limit": "6g"}):
        usual = MemoryLimit.of(config(**options)).messenger()
        assert usual.kept_row_bytes == usual.kept_bytes // 2
        assert not usual.offer_shared_rows
        given = MemoryLimit.of(config(worker_rows="100m", **options)).messenger()
        assert (given.kept_row_bytes, given.kept_bytes, given.offer_shared_rows) == (100 * MIB, usual.kept_bytes, True)
        none = MemoryLimit.of(config(worker_rows=0, **options)).messenger()
        assert (none.kept_row_bytes, none.offer_shared_rows) == (0, False)
    assert MemoryLimit.of(config(worker_rows="9g")).messenger().kept_bytes == 9 * GIB
    with pytest.raises(ConfigurationError, match=r"worker_rows is 9.*memory_limit leaves"):
        MemoryLimit.of(config(worker_rows="9g", memory_limit="6g")).session(config())


def test_rows_that_workers_keep_are_estimated():
    """For two workers, within their bytes; where memory is shared, only if they are asked for or do not fit there."""
    given, usual, none = (MemoryLimit.of(config(worker_rows=size)) for size in ("100m", None, 0))
    assert given.rows_kept(480, 1000, 100) == 2 * 1000 * (480 + 32)
    assert given.rows_kept(480, 1_000_000, 100) == 2 * 100 * MIB
    assert usual.rows_kept(480, 1000, 100) == 0
    assert usual.rows_kept(480, 1_000_000, 200_000) == 2 * 1_000_000 * (480 + 32)
    assert none.rows_kept(480, 1_000_000, 200_000) == given.rows_kept(8, 1000, 100) == 0
    few, more = (batches(worker_rows=rows, engine="blocks") for rows in (0, "100m"))
    assert more.peak - few.peak == pytest.approx(2 * 1797 * (64 * 4 + 8 + 32), rel=0.01)
    assert more.least == few.least
    assert batches(engine="local").peak == batches(engine="local", worker_rows="100m").peak


def batches(**options):
    graph, model = lotan.Graph.read("digits"), lotan.nn.GCN(64, 16, num_layers=2, out_channels=10)
    regime = lotan.MiniBatch(64, (3, 3))
    trainer = lotan.Trainer(model, graph, regime=regime, workers=2, master="local[2]", progress=False, **options)
    return trainer.job.needs(trainer.config)


def test_without_a_limit_the_heap_is_what_the_plan_needs_where_that_is_more_than_sparks_own_default():
    limit, free = MemoryLimit.of(config()), psutil.virtual_memory().available
    assert limit.heap(None) is None
    assert limit.heap(Footprint("rows", 9 * GIB, 9 * GIB)) is None
    assert limit.heap(Footprint("blocks", 9 * GIB, 3 * GIB, heap=GIB)) is None
    some = GIB + 64 * MIB
    assert limit.heap(Footprint("blocks", 9 * GIB, 3 * GIB, heap=some)) == Heap(some)
    assert GIB < limit.heap(Footprint("blocks", 99 * free, GIB, heap=98 * free)).bytes < free


def test_the_room_for_columns_in_a_heap_of_ours(monkeypatch):
    monkeypatch.setattr("lotan.hosts.spark_session.active_session", lambda: None)
    monkeypatch.setattr(memory_limit, "free_memory", lambda: 10 * GIB)
    large = Footprint("blocks", 99 * GIB, GIB, heap=98 * GIB)

    def room(engine: str = "blocks", needs: Footprint = large, **options) -> int | None:
        given = {"workers": 2, "master": "local[2]"} | options
        return MemoryLimit.of(lotan.TrainerConfig(**given)).storage(ENGINES[engine], needs)

    limited = MemoryLimit.of(config(memory_limit="6g"))
    assert room(memory_limit="6g") == storage_bytes(limited.shares.heap)
    assert room() == storage_bytes(6 * GIB, 0.6)
    assert room(needs=replace(large, heap=0)) == storage_bytes(GIB, 0.6)
    assert [room("local"), room(master="spark://host:1")] == [None, None]
    assert spread_over(Pricing(ENGINES["blocks"]), large, storage=room()).layout.storage == room()
    assert spread_over(Pricing(ENGINES["rows"]), large, storage=room("rows")).layout.storage is None


@pytest.mark.spark
def test_the_room_for_columns_in_a_session_that_runs(spark):
    room = MemoryLimit.of(config(memory_limit="6g")).storage(ENGINES["blocks"], NEEDS["blocks"])
    assert room == pytest.approx(storage_bytes(driver_heap(spark), 0.6), rel=0.01)


def test_a_router_elsewhere_means_no_workers_here():
    assert MemoryLimit.of(lotan.TrainerConfig(router="tcp://host:1")).crew.workers == 0


NEEDS = {"local": Footprint("local", 9 * GIB, 9 * GIB), "blocks": Footprint("blocks", 8 * GIB, 3 * GIB)}


def test_blocks_are_as_many_as_the_limit_wants_them_to_be():
    graph = lotan.datasets.generate(3000, 9000, width=8, classes=3)
    plan = lotan.Trainer(lotan.nn.GCN(8, 16, 2, 3), graph, engine="blocks").job.plan
    large = Statistics(vertices=20_000_000, edges=100_000_000, width=100)

    def needs(limit: int | None, partitions: int | None = None) -> Footprint:
        return MemoryLimit.of(config(memory_limit=limit)).needs(ENGINES["blocks"], plan, large, partitions)

    usual, more = needs(None), [needs(None, times * 2).least for times in (2, 4, 8, 16, 32)]
    assert usual.partitions is None
    assert sorted([usual.least, *more], reverse=True) == [usual.least, *more]
    assert needs(usual.least) == usual
    assert needs(usual.least - 1).partitions == 4
    assert needs(more[1]).partitions == 8
    assert needs(more[1]).least == more[1]
    assert needs(more[1], partitions=2) == usual
    assert not needs(more[-1]).in_turn
    least = needs(GIB)  # of what is then refused, the least that would do
    assert least.in_turn
    assert least.least < more[-1] / 4
    assert needs(least.least) == least
    assert spread_over(Pricing(ENGINES["blocks"]), least).layout.in_turn  # the estimated seconds count what is read
    assert needs(more[-1], partitions=64).in_turn is False
    assert needs(more[-1] - 2 * GIB, partitions=64).in_turn


def test_what_steps_need_whole_stays_in_the_estimate():
    graph = lotan.datasets.generate(300, 900, width=8, classes=3)
    large = Statistics(vertices=1_000_000, edges=10_000_000, width=100)
    layout = Layout(Crew(2, 2), partitions=64, in_turn=True)
    for model, lighter in ((lotan.nn.GCN(8, 16, 2, 3), True), (lotan.nn.GAT(8, 16, 2, 3), False)):
        plan = lotan.Trainer(model, graph, engine="blocks").job.plan
        assert reads_in_turn(plan) is lighter
        less, whole = (in_hand(plan, large, one) for one in (layout, replace(layout, in_turn=False)))
        assert (less < whole) is lighter


def test_what_cannot_fit_is_refused_with_the_numbers_of_each_engine():
    limit = MemoryLimit.of(config(memory_limit="2g"))
    words = (
        r"memory_limit is 2048m, and engine 'local' needs at least 9216m here \(estimated, of all processes: "
        r"local 9216m, blocks 3072m\): give 9216m$"
    )
    with pytest.raises(ConfigurationError, match=words):
        check_fits(limit, "local", NEEDS)
    words = r"give 9216m, or leave x out \(4096m would do then\), or give y=1 and give 5000m$"
    advice = [("leave x out", 4 * GIB), ("give y=1", 5000 * MIB)]
    with pytest.raises(ConfigurationError, match=words):
        check_fits(MemoryLimit.of(config(memory_limit="4g")), "local", NEEDS, lambda: advice)
    with pytest.raises(ConfigurationError, match=r"memory_limit is 1,000 bytes, and engine 'local' needs"):
        check_fits(MemoryLimit.of(config(memory_limit=1000)), "local", NEEDS)
    check_fits(MemoryLimit.of(config(memory_limit="3g")), "blocks", NEEDS)
    check_fits(MemoryLimit.of(config()), "local", NEEDS)


def least_of(trainer: lotan.Trainer) -> int:
    """The mebibytes that the error of a run under too low a limit says would do."""
    with pytest.raises(ConfigurationError, match=r": give \d+m") as refused:
        trainer.explain()
    return int(re.findall(r": give (\d+)m", str(refused.value))[0])


@pytest.mark.parametrize("in_files", [False, True], ids=["memory", "files"])
def test_the_least_limit_of_mini_batches_is_named_at_once(tmp_path, in_files):
    graph = lotan.datasets.generate(2000, 20_000, width=64, classes=4)
    if in_files:
        graph.save(str(tmp_path / "graph"))
        graph = lotan.Graph.read(str(tmp_path / "graph"))

    def under(limit: str) -> lotan.Trainer:
        regime = lotan.MiniBatch(500, ("all", "all"))
        model = lotan.nn.GCN(64, 256, 2, 4)
        return lotan.Trainer(model, graph, engine="local", regime=regime, memory_limit=limit, progress=False)

    least = least_of(under("500m"))
    if not in_files:  # before files are read, the sizes are upper bounds
        with pytest.raises(
            ConfigurationError, match=rf": give {least}m, or give batch_size=250 \([0-9]+m would do then\)$"
        ):
            under(f"{least - 1}m").explain()
    assert "mini-batches" in under(f"{least}m").explain()


def test_a_batch_of_more_than_the_training_vertices_is_not_refused_before_they_are_counted(tmp_path):
    trained_on(lotan.datasets.generate(40_000, 40_000, width=8, classes=4), 50).save(str(tmp_path))
    regime = lotan.MiniBatch(40_000, (5, 5))
    asked = lotan.Trainer(
        lotan.nn.GraphSAGE(8, 64, 2, 4), lotan.Graph.read(tmp_path), regime=regime, engine="local", memory_limit="1100m"
    )
    assert "mini-batches" in asked.explain()


@pytest.mark.parametrize("setting", ["worker_memory", "partitions"])
def test_settings_that_need_more_are_named_with_the_limit_that_would_do_without_them(setting, monkeypatch):
    for place in ("hosts.spark_session", "engines.blocks.obstacles"):  # a session's heap would stay as it is
        monkeypatch.setattr(f"lotan.{place}.active_session", lambda: None)
    # with one partition, a task has the whole graph in hand
    graph = lotan.datasets.generate(60_000, 60_000, width=8, classes=4)
    given = {"worker_memory": "1g", "partitions": 1}

    def under(limit: str, **settings: object) -> lotan.Trainer:
        model = lotan.nn.GCN(8, 1024, 3, 4)
        common = {"engine": "blocks", "workers": 2, "master": "local[2]", "progress": False}
        return lotan.Trainer(model, graph, memory_limit=limit, **common, **settings)

    with pytest.raises(ConfigurationError, match=f"leave {setting} out") as refused:
        under("1g", **{setting: given[setting]}).explain()
    (needed,) = re.findall(rf"leave {setting} out and give (\d+)m", str(refused.value))
    assert under(f"{needed}m").explain()


def test_a_number_without_a_unit_is_explained():
    with pytest.raises(ConfigurationError, match=r"memory_limit is 3,000 bytes.*; a number without a unit is bytes$"):
        lotan.Trainer(
            lotan.nn.GCN(64, 4, 2, 10), lotan.Graph.read("digits"), engine="local", memory_limit="3000"
        ).explain()


def session_with(heap: int) -> SimpleNamespace:
    """Of a Spark session, the way to its heap's size."""
    runtime = SimpleNamespace(maxMemory=lambda: heap)
    lang = SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime))
    return SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)))


@pytest.mark.parametrize(("given", "each"), [("2g", 2 * GIB), ("512", 512 * MIB)])
def test_executors_have_the_memory_that_spark_gives_them(given, each):
    status = SimpleNamespace(size=lambda: 3)  # the driver and two executors
    jsc = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: status))
    context = SimpleNamespace(master="spark://host:7077", _jsc=jsc)
    spark = SimpleNamespace(sparkContext=context, conf={"spark.executor.memory": given})
    assert heap_of(spark) == 2 * each


def test_the_heap_of_a_session_that_is_there_is_held_against_the_limit():
    limit = MemoryLimit.of(config(memory_limit="6g"))
    heap = limit.heap(None).bytes
    assert heap_notes(limit, session_with(heap)) == ()
    (note,) = heap_notes(limit, session_with(heap + 64 * MIB))
    assert "stays as it was started" in note
    with pytest.raises(ConfigurationError, match=r"a heap of 5.0 GiB \(spark.driver.memory\)"):
        heap_notes(limit, session_with(5 * GIB))
    assert heap_notes(MemoryLimit.of(config()), session_with(5 * GIB)) == ()


@pytest.mark.parametrize("origin", ["memory", "spark"])
def test_so_it_is_wherever_the_graph_comes_from(origin, monkeypatch):
    """For a graph in memory is put into the session that is there."""
    there = session_with(5 * GIB)
    monkeypatch.setattr("lotan.hosts.spark_session.active_session", lambda: there)
    graph = SimpleNamespace(origin=origin, tables=lambda: (SimpleNamespace(sparkSession=there),))
    with pytest.raises(ConfigurationError, match=r"memory_limit is 6144m, but the Spark session that is active"):
        limit_notes("blocks", config(memory_limit="6g"), graph)
    assert limit_notes("local", config(memory_limit="6g"), graph) == ()


def graph_in_files(tmp_path) -> lotan.Graph:
    lotan.datasets.generate(200, 800, width=8, classes=4).save(tmp_path / "graph")
    return lotan.Graph.read(tmp_path / "graph")


def test_files_are_refused_before_a_row_of_them_is_read(tmp_path):
    graph = graph_in_files(tmp_path)
    graph.arrays = lambda: pytest.fail("the files were read")  # type: ignore[method-assign]
    model = lotan.nn.GCN(8, 4, 2, 4)
    with pytest.raises(ConfigurationError, match=r"memory_limit is 500m, and engine 'local' needs at least"):
        lotan.Trainer(model, graph, engine="local", memory_limit="500m").explain()


def test_the_estimate_is_printed_and_reported_and_changes_no_bit(tmp_path, capsys):
    graph, runs = graph_in_files(tmp_path), []
    for options in ({"memory_limit": "4g"}, {}):
        torch.manual_seed(0)
        trainer = lotan.Trainer(lotan.nn.GCN(8, 4, 2, 4), graph, engine="local", epochs=2, **options)
        runs.append(trainer.fit())
        said = capsys.readouterr().err
        assert said.startswith("memory: ")
        assert ("limit 4096m" in said) == bool(options)
    assert all(torch.equal(value, runs[1].model.weights[name]) for name, value in runs[0].model.weights.items())
    assert 0 < runs[0].report["plan"]["estimated_peak_bytes"] <= 4 << 30


def on_blocks(**options) -> lotan.Trainer:
    torch.manual_seed(0)
    model = lotan.nn.GCN(64, 16, 2, 10, dropout=0.5)
    settings = {"engine": "blocks", "epochs": 2, "workers": 1, "partitions": 2, "progress": False}
    return lotan.Trainer(model, lotan.Graph.read("digits"), **{**settings, **options})


@pytest.mark.spark
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
@pytest.mark.nightly
def test_what_fits_in_more_partitions_alone_is_trained_in_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the graph were large."""

    def large(engine: str, plan: Plan, statistics: Statistics, layout: Layout) -> Footprint:
        return replace(footprint(engine, plan, statistics, layout), least=(200 << 30) // layout.partitions)

    asked = on_blocks(partitions=8)
    monkeypatch.setattr(memory_limit, "footprint", large)
    trainer = on_blocks(master="local[2]", partitions=None, memory_limit="32g")
    described = json.loads(trainer.explain("json"))
    assert described["layout"]["partitions"] == 8
    assert "the least that would do is 25600m with 8 partitions" in described["memory"]
    (rule,) = (rule for rule in described["rules"] if rule["name"] == "choose_physical")
    assert (rule["fired"], rule["where"]) == (1, ["8 partitions, for the memory limit"])
    assert rule["gain"] is None, "no other plan to compare with"
    ours, theirs = identity(trainer.job, trainer.config), identity(asked.job, asked.config)
    assert {name for name in ours if ours[name] != theirs[name]} == {"partitions"}
    assert ours["partitions"] == "at least 8, for the memory limit"
    with lotan.ModelBatch(trainer.graph, [lotan.Member(trainer.model), lotan.Member(on_blocks().model)],
                          engine="blocks", workers=1, master="local[2]", memory_limit="32g") as batch:  # fmt: skip
        batch.explain()
        assert [job.needs(batch.config).partitions for job in batch._jobs.made] == [8, 8]
    found, same = trainer.fit(), asked.fit()
    assert all(torch.equal(value, same.model.weights[name]) for name, value in found.model.weights.items())
    with pytest.raises(ConfigurationError, match="needs at least"):
        on_blocks(master="local[2]", partitions=2, memory_limit="32g").explain()


def train_within_the_least(folder: str) -> None:
    """Say, as JSON, how much that is and how much was taken."""
    ample = on_blocks(master="local[2]", memory_limit="64g")
    least = ample.job.needs(ample.config).least
    found = on_blocks(master="local[2]", memory_limit=least).fit()
    found.save(folder)
    print(json.dumps({"least": least, "peak": sum(found.report["peak_memory_bytes"].values())}))


WITHIN = (
    "import sys; from tests.memory.test_memory_limit import train_within_the_least; train_within_the_least(sys.argv[1])"
)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_blocks_stay_within_the_least_limit_and_come_to_the_same_bits(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, for the heap of the suite's Spark stays as it is, with the collector of a limited run."""
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    on_blocks().fit().save(tmp_path / "here")
    done = run([sys.executable, "-c", WITHIN, str(tmp_path / "there")])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["peak"] <= found["least"]
    assert_same_weights(tmp_path / "here", tmp_path / "there")
