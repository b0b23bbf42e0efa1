"""A Session that does not get what it waits for says so within its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from pyspark.sql import SparkSession

import lotan
from lotan.errors import EngineError
from lotan.hosts.session import Session, SessionSettings, check_router
from messenger.router import Router
from messenger.settings import Settings
from messenger.sockets import ZmqHub

pytestmark = pytest.mark.processes

HANG = 10.0  # seconds; a call that takes longer was not ended by a deadline of a fraction of one


@pytest.fixture
def router() -> Iterator[str]:
    """The address of a Router for which nobody works."""
    settings = Settings()
    lonely = Router(ZmqHub("tcp://127.0.0.1:*", settings), settings)
    thread = threading.Thread(target=lonely.run, daemon=True)
    thread.start()
    yield lonely.address
    lonely.stop()
    thread.join(HANG)


def test_no_worker_ever_connects(router: str) -> None:
    started = time.monotonic()
    with pytest.raises(EngineError) as caught, Session(SessionSettings(router=router, start_seconds=0.3)):
        pytest.fail("a session without workers was entered")
    assert time.monotonic() - started < HANG
    assert str(caught.value) == (
        "0 of 1 workers were connected to the Router within 0.3 s: none (start_seconds); "
        f"start some with `lotan worker --router {router}`"
    )


def test_no_router_ever_answers() -> None:
    settings = SessionSettings(router="tcp://127.0.0.1:9", messenger=Settings(connect_seconds=0.3))
    with pytest.raises(EngineError, match=r"tcp://127.0.0.1:9 did not answer .* within 0.3 s \(connect_seconds\)"):
        Session(settings)


def test_a_router_that_dies_is_replaced_where_it_was() -> None:
    """Workers and the coordinator join the new one by themselves, and work goes through it."""
    with Session(SessionSettings(workers=1)) as session:
        (router,) = [child.process for child in session._children if not child.is_worker]
        router.kill()
        router.wait()
        check_router(session.endpoint.address, None)
        session.link._workers = []  # those of the Router before
        session.wait()
        assert session.link._workers == list(session.worker_processes)


@pytest.mark.spark
def test_training_without_workers_fails_and_stops_what_it_started(
    router: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lotan.memory.limit.SessionSettings", partial(SessionSettings, start_seconds=0.3))
    graph = lotan.Graph.from_arrays(np.ones((2, 1)), *np.array([[0], [1]]), label=np.arange(2), split=np.zeros(2, int))
    trainer = lotan.Trainer(lotan.nn.GCN(1, 4, 1, 2), graph, engine="rows", router=router, epochs=1, progress=False)
    with pytest.raises(EngineError, match="0 of 1 workers were connected"):
        trainer.fit()
