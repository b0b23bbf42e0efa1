"""Batches are prepared beside the computation: in a fixed order, with their errors, and nothing is left."""

from __future__ import annotations

import threading

import pytest

import lotan
from lotan.batches.schedule import Batches
from lotan.planning.prepare import prepare
from lotan.settings.config import make_config
from lotan.settings.regimes import BATCHES_AHEAD
from tests.batch.test_model_batch import CLASSES, WIDTH, graph


@pytest.fixture
def made(request: pytest.FixtureRequest):
    from contextlib import ExitStack

    regime = lotan.MiniBatch(4, (2, 2))
    with ExitStack() as stack:
        on, model = graph(), lotan.nn.GraphSAGE(WIDTH, 4, 2, CLASSES)
        job = prepare(model, on, make_config({"regime": regime}), stack)
        assert job.batch is not None
        batches = Batches(on, job.batch.plan, regime, epochs=3)
        yield batches
        batches.close()


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lotan-batches")]


def facts(loaded) -> tuple:
    edges = loaded.sets.graph
    return loaded.keys.tolist(), edges.src.tolist(), edges.dst.tolist(), loaded.static["split"].tolist()


def test_an_epoch_is_the_same_in_any_order_of_epochs(made: Batches) -> None:
    first, second = ([facts(one) for one in made.of_epoch(epoch)] for epoch in (1, 2))
    assert len(first) == len(second) == made.count
    assert first != second
    assert [facts(one) for one in made.of_epoch(1)] == first
    assert made.prepared.batches >= 3 * made.count


def test_batches_are_prepared_ahead_and_no_more_than_wanted(made: Batches) -> None:
    steps = made.of_epoch(3)
    next(steps)
    assert len(made._waiting) == min(BATCHES_AHEAD, made.count - 1)
    for _ in steps:
        pass
    assert not made._waiting  # epoch 3 is the last


def test_an_error_of_the_preparation_is_raised_where_its_batch_is_wanted(made: Batches, monkeypatch) -> None:
    load = made._loader.load
    broken = iter([False, True])

    def fails(sample):
        if next(broken, False):
            raise OSError("no memory for a copy")
        return load(sample)

    monkeypatch.setattr(made._loader, "load", fails)
    steps = made.of_epoch(1)
    next(steps)
    with pytest.raises(OSError, match="no memory for a copy"):
        next(steps)


def test_no_thread_outlives_it(made: Batches) -> None:
    next(made.of_epoch(1))
    assert running()
    made.close()
    made.close()
    assert not running()
