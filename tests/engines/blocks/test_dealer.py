"""The JVM's Dealer, in the suite's Spark session, through a real Router and real workers: what Python's Dealer would do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lotan.engines.blocks.facade import facade
from lotan.hosts.jar import JAR
from messenger.coordinator import CoordinatorLink
from messenger.jobs import OutgoingChunk, PipeJob
from messenger.keys import CurveKeys, create_keys, keyed_endpoint
from messenger.settings import Settings
from tests.messenger.network import QUICK, Background, job
from tests.messenger.numpy_handler import DEADLINE, ROWS, WIDTH, chunks, wait_until, weight, who_holds
from tests.messenger.test_chaos import COUNT, HELD, Cluster, expected, sums

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]


class JvmDealers:
    """Pipes partitions through Dealers of a JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm = spark._jvm
        self.gateway = spark.sparkContext._gateway
        self.facade = facade(spark)
        self.scala = self.jvm.scala.jdk.javaapi.CollectionConverters

    def pipe(self, endpoint: Any, job: PipeJob, chunks: list[OutgoingChunk], settings: Settings = QUICK) -> Any:
        """A Scala iterator over what comes back."""
        messenger = self.jvm.lotan.messenger
        where = self.facade.endpoint(endpoint.address, endpoint.server_key, endpoint.public_key, endpoint.secret_key)
        how = self.facade.messengerSettings(dataclasses.asdict(settings))
        what = messenger.PipeJob(job.run, job.pass_number, job.stage, job.mode, job.partition, job.accumulates)
        outgoing = self.scala.asScala(self._list(map(self._chunk, chunks)).iterator())
        return messenger.Dealers.pipe(where, how, what, outgoing, getattr(messenger.Dealers, "pipe$default$5")())

    def _chunk(self, chunk: OutgoingChunk) -> Any:
        tensors = [self.jvm.scala.Tuple2(name, self._floats(array)) for name, array in chunk.tensors.items()]
        return self.jvm.lotan.messenger.OutgoingChunk(
            chunk.index,
            chunk.first_row,
            chunk.rows,
            chunk.digest,
            self.scala.asScala(self._list(tensors)).toSeq(),
            self._set(chunk.static),
            self._set(chunk.epoch_kept),
            0,
            self._set(frozenset()),
        )

    def _floats(self, array: np.ndarray) -> Any:
        """A slice of a longer array, as partitions are."""
        shape = self.gateway.new_array(self.jvm.int, 2)
        shape[0], shape[1] = array.shape
        content = self.jvm.java.nio.ByteBuffer.wrap(array.astype("<f4").tobytes())
        slack = 3
        values = self.gateway.new_array(self.jvm.float, array.size + slack)
        self.jvm.lotan.messenger.Received("float32", shape, content).copyTo(values, slack)
        return self.jvm.lotan.messenger.Floats(values, slack, *array.shape)

    def _list(self, items: Any) -> Any:
        into = self.jvm.java.util.ArrayList()
        for item in items:
            into.add(item)
        return into

    def _set(self, names: frozenset[str]) -> Any:
        return self.scala.asScala(self._list(sorted(names))).toSet()


def rows(iterator: Any) -> Iterator[np.ndarray]:
    """What came back, in order."""
    while iterator.hasNext():
        chunk = iterator.next()
        yield np.array(list(chunk.tensors().apply("y").toDoubles()), np.float32).reshape(ROWS, WIDTH)


def check(returned: list[np.ndarray], partition: int, epoch: int = 0) -> None:
    np.testing.assert_array_equal(returned, [one.tensors["x"] @ weight(epoch) for one in chunks(partition, COUNT)])


@pytest.fixture
def jvm(spark: SparkSession) -> Iterator[JvmDealers]:
    dealers = JvmDealers(spark)
    yield dealers
    dealers.facade.disconnect("run")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.close()


def test_a_worker_killed_in_the_middle_of_a_group(jvm: JvmDealers, cluster: Cluster, tmp_path: Path) -> None:
    """Nobody tells the Router: the end of the connection does."""
    cluster.workers("w0", "w1")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"hold": str(tmp_path), "chunk": HELD})
    returned = Background(lambda: list(rows(jvm.pipe(cluster.endpoint, job(0), chunks(0, COUNT)))))
    cluster.kill(who_holds(tmp_path))
    check(returned.result(), 0)
    assert sums(cluster, 0) == expected(0)


def test_an_attempt_in_python_and_one_in_the_jvm_come_to_the_same(jvm: JvmDealers, cluster: Cluster) -> None:
    """The coordinator compares their checksums, which cover rows and sums."""
    cluster.workers("w0")
    cluster.link.begin("run", 0, {"w": weight(0)})
    list(cluster.dealer().pipe(job(0), chunks(0, COUNT)))
    check(list(rows(jvm.pipe(cluster.endpoint, job(0), chunks(0, COUNT)))), 0)
    assert sums(cluster, 0) == expected(0)


def test_static_tensors_travel_once(jvm: JvmDealers, cluster: Cluster) -> None:
    cluster.workers("w0")
    sent = []
    for epoch in range(2):
        cluster.link.begin("run", epoch, {"w": weight(epoch)})
        check(list(rows(jvm.pipe(cluster.endpoint, job(0, epoch), chunks(0, COUNT, static=True)))), 0, epoch)
        sent.append(cluster.link.wait([job(0, epoch)], DEADLINE).bytes_sent)
    assert sent[0] - sent[1] > COUNT * ROWS * WIDTH * 4


def test_a_failing_handler_is_named_with_stage_and_partition(jvm: JvmDealers, cluster: Cluster) -> None:
    cluster.workers("w0")
    cluster.link.begin("run", 0, {"w": weight(0)}, {"fail": 5})
    words = r"RemoteError: stage 's' \(turn\), partition 3.*worker 'w0' reports: ZeroDivisionError"
    with pytest.raises(Py4JJavaError, match=words):
        list(rows(jvm.pipe(cluster.endpoint, job(3), chunks(3, COUNT))))


def test_keys_let_in_whom_they_should(jvm: JvmDealers, cluster: Cluster, tmp_path: Path) -> None:
    keys, strangers, file = tmp_path / "keys", tmp_path / "strangers", tmp_path / "address"
    create_keys(keys)
    create_keys(strangers)
    command = ["-m", "messenger.router_process", "--keys", str(keys), "--exit-with-parent", "--address-file", str(file)]
    cluster.start("keyed", *command)
    wait_until(file.exists)
    address = file.read_text().strip()
    cluster.start("w0", "-m", "tests.messenger.worker_process", address, "w0", str(keys))
    link = CoordinatorLink(keyed_endpoint(address, keys), QUICK)
    try:
        assert link.wait_for_workers(1, DEADLINE) == ["w0"]
        link.publish("run", "s", {})
        link.begin("run", 0, {"w": weight(0)})
        check(list(rows(jvm.pipe(keyed_endpoint(address, keys), job(0), chunks(0, COUNT)))), 0)
        own, foreign = keyed_endpoint(address, keys), CurveKeys.load(strangers, "client")
        stranger = dataclasses.replace(own, public_key=foreign.public, secret_key=foreign.secret)
        with pytest.raises(Py4JJavaError, match=r"RefusedError: .* refused the dealer .* keys"):
            list(rows(jvm.pipe(stranger, job(0), [])))
        link.stop_router()
    finally:
        link.close()
