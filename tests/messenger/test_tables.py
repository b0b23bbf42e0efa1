"""A row table over its messages: rows and timestamps, refusals, and a process that is killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from messenger.endpoint import Endpoint
from messenger.errors import MessengerError, RefusedError, RowTableError, TableFullError
from messenger.fields import Kind
from messenger.in_process import InProcessHub
from messenger.row_files import JOURNAL_FILE, ROWS_FILE, RowFiles
from messenger.row_table import RowTable, table_bytes
from messenger.settings import Settings
from messenger.sockets import ZmqHub
from messenger.sockets import connect as connect_socket
from messenger.table_link import TableLink
from messenger.table_loop import TableLoop
from messenger.transport import Connect
from tests.messenger.network import QUICK
from tests.messenger.numpy_handler import DEADLINE

COUNT, WIDTH = 20, 3


@contextmanager
def table(transport: str = "in_process", limit: int | None = None) -> Iterator[tuple[Endpoint, Connect]]:
    hub = InProcessHub() if transport == "in_process" else ZmqHub("tcp://127.0.0.1:*", QUICK)
    loop = TableLoop(hub, QUICK, limit)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield Endpoint(loop.address), hub.connect if isinstance(hub, InProcessHub) else connect_socket
    finally:
        loop.stop()
        thread.join(DEADLINE)


@contextmanager
def linked(endpoint: Endpoint, connect: Connect = connect_socket, settings: Settings = QUICK) -> Iterator[TableLink]:
    link = TableLink(endpoint, "run", settings, connect)
    try:
        yield link
    finally:
        link.close()


def opened(link: TableLink, start: np.ndarray) -> None:
    link.ask(Kind.TABLE, {"what": "open", "count": len(start), "width": start.shape[1]}).result(DEADLINE)
    link.ask(Kind.TABLE, {"what": "fill", "first_row": 0}, {"rows": start}).result(DEADLINE)
    link.ask(Kind.TABLE, {"what": "save"}).result(DEADLINE)


def rows(seed: int, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)


def all_rows(link: TableLink, count: int = COUNT) -> tuple[np.ndarray, np.ndarray]:
    found = link.ask(Kind.ROWS, tensors={"places": np.arange(count)}).result(DEADLINE).tensors
    return found["rows"], found["timestamps"]


@pytest.mark.parametrize("transport", ["in_process", "zmq"])
def test_rows_are_read_and_updated(transport: str) -> None:
    with table(transport) as (endpoint, connect), linked(endpoint, connect) as link:
        opened(link, rows(0))
        expected = RowTable(COUNT, WIDTH)
        expected.fill(0, rows(0))
        for timestamp in (3, 0, 5, 4):  # out of order
            places = np.random.default_rng(timestamp).choice(COUNT, 6, replace=False)
            answer = link.ask(Kind.UPDATE, {"timestamp": timestamp}, {"places": places, "rows": rows(timestamp, 6)})
            assert answer.result(DEADLINE).header["timestamp"] == timestamp
            expected.update(places, rows(timestamp, 6), timestamp)
        found, timestamps = all_rows(link)
        assert found.tobytes() == expected.rows.tobytes()
        assert timestamps.tolist() == expected.timestamps.tolist()
        assert set(timestamps) >= {-1, 3, 5}


def test_what_a_table_does_not_have_is_refused_and_it_goes_on() -> None:
    with table() as (endpoint, connect), linked(endpoint, connect) as link:
        with pytest.raises(RowTableError, match="no rows of the run 'run'"):
            all_rows(link)
        opened(link, rows(0))
        for tensors, reason in [
            ({"places": np.array([COUNT])}, "do not lie in a table of 20 rows"),
            ({"places": np.array([-1])}, "do not lie in"),
            ({"places": np.array([1], dtype=np.int32)}, "expected int64"),
            ({}, "without 'places'"),
        ]:
            with pytest.raises(RowTableError, match=reason):
                link.ask(Kind.ROWS, tensors=tensors).result(DEADLINE)
        wrong = {"places": np.array([1]), "rows": np.zeros((1, WIDTH + 1), dtype=np.float32)}
        with pytest.raises(RowTableError, match=r"expected float32\[1, 3\]"):
            link.ask(Kind.UPDATE, {"timestamp": 1}, wrong).result(DEADLINE)
        with pytest.raises(RowTableError, match="rows 19 to 39 do not lie"):
            link.ask(Kind.TABLE, {"what": "fill", "first_row": 19}, {"rows": rows(1)}).result(DEADLINE)
        with pytest.raises(RowTableError, match="does nothing for 'table' 'sort'"):
            link.ask(Kind.TABLE, {"what": "sort"}).result(DEADLINE)
        assert all_rows(link)[0].tobytes() == rows(0).tobytes()


def test_a_table_that_cannot_hold_its_rows_says_so() -> None:
    with table(limit=table_bytes(COUNT, WIDTH)) as (endpoint, connect), linked(endpoint, connect) as link:
        opened(link, rows(0))
        with pytest.raises(
            TableFullError, match=r"21 rows of 3 numbers .* take 420 bytes, and this table may hold 400"
        ):
            opened(link, rows(0, COUNT + 1))
    with table() as (endpoint, connect), linked(endpoint, connect) as link:
        for count in (1 << 48, 1 << 62):
            with pytest.raises(TableFullError, match="bytes, which this host does not have"):
                link.ask(Kind.TABLE, {"what": "open", "count": count, "width": WIDTH}).result(DEADLINE)
        opened(link, rows(0))


def test_a_table_has_one_user_at_a_time() -> None:
    with table() as (endpoint, connect):
        with linked(endpoint, connect), pytest.raises(RefusedError, match="trainer 'driver' uses this row table"):
            TableLink(endpoint, "other", QUICK, connect)
        with linked(endpoint, connect) as link:  # the first has said that its run is over
            opened(link, rows(0))


def test_a_table_that_falls_silent_is_an_error_for_all_that_wait() -> None:
    settings = replace(QUICK, missed_heartbeats=2)
    with table() as (endpoint, connect), linked(endpoint, connect, settings) as link:
        opened(link, rows(0))
        link._pump._link._hub.disconnect(link._pump._link.identity)  # as if its host had gone
        with pytest.raises(MessengerError, match="the row table at in-process has been silent for"):
            all_rows(link)
        with pytest.raises(MessengerError, match="has been silent for"):  # and for those that come later
            all_rows(link)


@contextmanager
def process(folder: Path, bind: str = "tcp://127.0.0.1:*") -> Iterator[tuple[subprocess.Popen[str], Endpoint]]:
    words = [
        sys.executable,
        "-m",
        "messenger.table_process",
        "--exit-with-parent",
        "--bind",
        bind,
        "--folder",
        str(folder),
    ]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            yield started, Endpoint(started.stdout.readline().strip())
        finally:
            assert started.stdin is not None
            started.stdin.close()
            started.wait(DEADLINE)


@pytest.mark.processes
@pytest.mark.chaos
def test_a_killed_table_is_as_it_was_when_it_is_started_again(tmp_path: Path) -> None:
    with process(tmp_path) as (first, endpoint), linked(endpoint, settings=Settings()) as link:
        opened(link, rows(0))
        expected = RowTable(COUNT, WIDTH)
        expected.fill(0, rows(0))
        updates = [(timestamp, np.array([timestamp % COUNT, 19]), rows(timestamp, 2)) for timestamp in range(30)]
        answers = []
        for timestamp, places, new in updates:
            expected.update(places, new, timestamp)
            answers.append(link.ask(Kind.UPDATE, {"timestamp": timestamp}, {"places": places, "rows": new}))
            if timestamp == 15:
                answers[7].result(DEADLINE)  # others may be on their way
                first.kill()
                first.wait(DEADLINE)
        with process(tmp_path, endpoint.address):
            for answer in answers:
                answer.result(DEADLINE)
            found, timestamps = all_rows(link)
        assert found.tobytes() == expected.rows.tobytes()
        assert timestamps.tolist() == expected.timestamps.tolist()


@pytest.mark.processes
def test_a_table_ends_with_its_parent_and_at_a_signal(tmp_path: Path) -> None:
    with process(tmp_path / "one") as (by_parent, _), process(tmp_path / "two") as (by_signal, _):
        assert by_parent.stdin is not None
        by_parent.stdin.close()
        by_signal.send_signal(signal.SIGTERM)
        assert (by_parent.wait(DEADLINE), by_signal.wait(DEADLINE)) == (0, 0)


def saved(folder: Path) -> RowTable:
    """A table with two updates in its journal."""
    one, files = RowTable(COUNT, WIDTH), RowFiles(folder)
    one.fill(0, rows(0))
    files.save("run", one)
    for timestamp in (0, 1):
        places = np.arange(timestamp, timestamp + 2)
        one.update(places, rows(timestamp, 2), timestamp)
        files.record(places, rows(timestamp, 2), timestamp)
    files.close()
    return one


def test_files_hold_the_rows_and_the_updates_after_them(tmp_path: Path) -> None:
    expected = saved(tmp_path)
    files = RowFiles(tmp_path)
    run, found = files.restore(None) or ("", expected)
    assert run == "run"
    assert found.rows.tobytes() == expected.rows.tobytes()
    files.save(run, found)
    assert (tmp_path / JOURNAL_FILE).stat().st_size == 0
    files.close()


@pytest.mark.parametrize("cut", [1, 30, 80])
def test_an_update_that_was_cut_short_is_dropped_and_the_next_ones_are_kept(tmp_path: Path, cut: int) -> None:
    expected = saved(tmp_path)
    journal = tmp_path / JOURNAL_FILE
    journal.write_bytes(journal.read_bytes()[:-cut])
    files = RowFiles(tmp_path)
    _, found = files.restore(None) or ("", expected)
    assert found.timestamps.tolist()[:3] == [0, 0, -1]
    files.record(np.arange(1, 3), rows(1, 2), 1)
    files.close()
    files = RowFiles(tmp_path)
    _, found = files.restore(None) or ("", found)
    files.close()
    assert found.rows.tobytes() == expected.rows.tobytes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content[:-1], "cut short"),
        (lambda content: content[:-1] + b"x", "does not have its checksum"),
        (lambda content: b"{}\n" + content, "no file of a row table of this version"),
    ],
    ids=["cut", "changed", "another"],
)
def test_damaged_files_are_named(tmp_path: Path, change, reason: str) -> None:
    saved(tmp_path)
    path = tmp_path / ROWS_FILE
    path.write_bytes(change(path.read_bytes()))
    files = RowFiles(tmp_path)
    with pytest.raises(RowTableError, match=reason):
        files.restore(None)
    files.close()
