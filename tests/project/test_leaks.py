"""The watch over leaks sees each kind of leak, and lets go when it is gone."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile

import pytest

from tests.leaks import Snapshot


def test_child_process_is_seen():
    before = Snapshot.take()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert any(f"process {child.pid}" in leak for leak in before.leaks_since(deadline=0))
        child.communicate(b"\n", timeout=30)
    assert not before.leaks_since()


def test_listening_socket_is_seen():
    before = Snapshot.take()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert before.leaks_since(deadline=0) == [f"listening socket 127.0.0.1:{port}"]
    assert not before.leaks_since()


def test_temporary_folder_is_seen():
    before = Snapshot.take()
    with tempfile.TemporaryDirectory(prefix="lotan-") as folder:
        assert before.leaks_since(deadline=0) == [f"file {folder}"]
    assert not before.leaks_since()


@pytest.mark.spark
def test_persisted_frame_is_seen(spark):
    before = Snapshot.take()
    frame = spark.range(10).persist()
    frame.count()
    leaks = before.leaks_since(deadline=0)
    frame.unpersist()
    assert "a cached DataFrame" in leaks
    assert any(leak.startswith("persisted RDD") for leak in leaks)
    assert not before.leaks_since()


@pytest.mark.spark
def test_global_view_is_seen(spark):
    before = Snapshot.take()
    spark.range(1).createGlobalTempView("left_over")
    leaks = before.leaks_since(deadline=0)
    spark.catalog.dropGlobalTempView("left_over")
    assert leaks == ["global temporary view left_over"]
