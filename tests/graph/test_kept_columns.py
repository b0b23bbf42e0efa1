"""What is computed once from a graph is there for the next training on it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.batch.members import Member
from lotan.engines.local.engine import LocalEngine
from lotan.graph.kept_columns import KeptColumns


@pytest.fixture
def graph() -> lotan.Graph:
    random = np.random.default_rng(0)
    ends = random.integers(0, 40, (2, 90))
    split = random.choice(3, 40, p=[0.3, 0.4, 0.3])
    split[:3] = 0, 1, 2
    return lotan.Graph.from_arrays(random.standard_normal((40, 5)), *ends, np.arange(40) % 3, split)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each epoch 0, which is the pass over what is computed once."""
    passes: list[int] = []
    begin = LocalEngine.begin

    def begun(engine: LocalEngine, plan: Any, steps: Any, a_pass: Any) -> None:
        if a_pass.epoch == 0:
            passes.append(len(steps))
        begin(engine, plan, steps, a_pass)

    monkeypatch.setattr(LocalEngine, "begin", begun)
    return passes


def fit(graph: lotan.Graph, model: torch.nn.Module, **options: Any) -> dict[str, torch.Tensor]:
    lotan.Trainer(model, graph, engine="local", epochs=2, progress=False, **options).fit()
    return model.state_dict()


def test_the_next_training_computes_it_no_more_and_comes_to_the_same_bits(graph, prepared):
    torch.manual_seed(0)
    first, wider = lotan.nn.GCN(5, 4, 2, 3), lotan.nn.GCN(5, 8, 3, 3)
    again, expected = deepcopy(first), deepcopy(wider)
    weights = fit(graph, first)
    assert len(prepared) == 1
    assert all(torch.equal(tensor, weights[name]) for name, tensor in fit(graph, again).items())
    found = fit(graph, wider)  # another model, whose first sum over edges is the same
    assert len(prepared) == 1
    fresh = lotan.Graph.from_arrays(
        *(getattr(graph.arrays(), name) for name in ("features", "src", "dst", "label", "split"))
    )
    assert all(torch.equal(tensor, found[name]) for name, tensor in fit(fresh, expected).items())
    assert len(prepared) == 2


@pytest.mark.parametrize("options", [{"disable": ["prune_vertices"]}, {"chunk_rows": 7}], ids=str)
def test_rows_in_another_order_or_other_chunks_are_others(graph, prepared, options):
    fit(graph, lotan.nn.GCN(5, 4, 2, 3))
    fit(graph, lotan.nn.GCN(5, 4, 2, 3), **options)
    assert len(prepared) == 2


def test_other_layers_compute_other_columns(graph, prepared):
    fit(graph, lotan.nn.GCN(5, 4, 2, 3))
    fit(graph, lotan.nn.GraphSAGE(5, 4, 2, 3))
    assert len(prepared) == 2


def test_a_batch_takes_what_a_model_alone_has_left_and_leaves_it_to_others(graph, prepared):
    fit(graph, lotan.nn.GCN(5, 4, 2, 3))
    members = [Member(lotan.nn.GCN(5, hidden, 2, 3), epochs=2) for hidden in (4, 8)]
    with lotan.ModelBatch(graph, members, engine="local", progress=False) as batch:
        batch.train()
    fit(graph, lotan.nn.GCN(5, 16, 2, 3))
    assert len(prepared) == 1


def test_under_a_limit_what_other_plans_have_left_takes_what_is_spare(graph, prepared):
    """Here the sum over edges of 40 x 5 numbers; what the plan computes once itself is a part of what it needs."""
    trainer = lotan.Trainer(lotan.nn.GraphSAGE(5, 4, 2, 3), graph, engine="local", progress=False)
    needed = trainer.job.needs(trainer.config).in_memory
    fit(graph, lotan.nn.GCN(5, 4, 2, 3))
    fit(graph, lotan.nn.GraphSAGE(5, 4, 2, 3), memory_limit=str(needed + 1000))
    fit(graph, lotan.nn.GCN(5, 4, 2, 3))
    assert len(prepared) == 2
    fit(graph, lotan.nn.GraphSAGE(5, 4, 2, 3), memory_limit=str(needed + 100))
    assert len(prepared) == 2
    fit(graph, lotan.nn.GCN(5, 4, 2, 3))
    assert len(prepared) == 3


def test_beyond_the_budget_goes_what_is_worth_least_a_byte():
    kept = KeptColumns(most=1000)
    kept.put("cheap", torch.zeros(100), seconds=1.0)
    kept.put("dear", torch.zeros(50), seconds=2.0)
    kept.put("small", torch.zeros(10), seconds=0.5)
    assert kept.nbytes == 640
    kept.put("large", torch.zeros(190), seconds=9.0)
    assert [name for name in ("cheap", "dear", "small", "large") if kept.get(name) is not None] == [
        "dear",
        "small",
        "large",
    ]
    kept.put("too large", torch.zeros(300), seconds=9.0)
    assert kept.get("too large") is None


def test_threads_may_put_and_get_at_once():
    kept, switching = KeptColumns(640), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def put(thread: int) -> None:
        for number in range(200):
            kept.put((thread, number % 40), np.full(8, thread), 1.0)
            found = kept.get((thread, number % 40))
            assert found is None or (found == thread).all()  # None: others have needed the room

    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(put, range(4)))
    finally:
        sys.setswitchinterval(switching)
    assert kept.nbytes <= 640


def test_an_array_that_is_changed_in_place_leaves_kept_columns_true():
    """Else sums of the old features would be read beside the new ones."""
    random = np.random.default_rng(0)
    features, ends = random.standard_normal((30, 5)).astype(np.float32), random.integers(0, 30, (2, 80))
    graph = lotan.Graph.from_arrays(features, *ends, np.arange(30) % 3, np.zeros(30, dtype=np.int8))

    def loss() -> float:
        torch.manual_seed(0)
        model = lotan.nn.GraphSAGE(5, 8, 2, 3)
        return lotan.Trainer(model, graph, epochs=2, engine="local", progress=False).fit().metrics["train"]["loss"]

    before = loss()
    features *= 3
    assert loss() == before
