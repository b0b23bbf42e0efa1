"""Recurrent layers over a row's own sequence, and rows in other dimensions, train exactly as in plain torch and PyG."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import lotan
from lotan.errors import ModelError
from lotan.nn.edge_index import EdgeIndex
from lotan.tracing.running import run_calls
from lotan.tracing.trace import trace
from planner.spec import DROPOUT, Spec
from planner.spec import RECURRENT as OPERATOR
from tests.tracing.sequence_models import MOVED, RECURRENT, WIDTH, Model, beside, lstm
from tests.tracing.test_pyg_layers import assert_same_training, messy_graph, trained_by_pyg

pytestmark = pytest.mark.thorough

MODELS = RECURRENT | MOVED
TRAINED = ("LSTM both ways, its cells", "LSTM from states", "GRU both ways", "stacks along edges")


def made(name: str) -> torch.nn.Module:
    torch.manual_seed(len(name))
    return MODELS[name]()


@pytest.mark.parametrize("name", MODELS)
def test_the_calls_compute_what_the_model_computes(name: str) -> None:
    model, graph = made(name).eval(), messy_graph()
    spec = trace(model, WIDTH, training=False, weighted=True)
    data = graph.to_pyg()
    parameters = dict(model.named_parameters())
    found = run_calls(
        spec, parameters, data.x, EdgeIndex(data.edge_index, data.edge_weight, num_vertices=graph.num_vertices)
    )
    weights = (data.edge_weight,) if name == "stacks along edges" else ()
    expected = model(data.x, data.edge_index, *weights)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    by = torch.randn_like(expected)
    for key, mine, theirs in zip(
        parameters,
        torch.autograd.grad(found, list(parameters.values()), by, materialize_grads=True),
        torch.autograd.grad(expected, list(parameters.values()), by, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")


def assert_trains_as_pyg(name: str, **settings: Any) -> None:
    graph, ours = messy_graph(), made(name)
    theirs = copy.deepcopy(ours)
    run = lotan.Trainer(ours, graph, epochs=3, optimizer=lotan.SGD(lr=0.1), progress=False, **settings).fit()
    losses = trained_by_pyg(theirs, graph, torch.optim.SGD, lr=0.1)
    assert_same_training(run, losses, ours, theirs)


@pytest.mark.parametrize("name", TRAINED)
def test_trains_as_in_pyg(name: str) -> None:
    assert_trains_as_pyg(name, engine="local", chunk_rows=16)


@pytest.mark.nightly  # by day on local
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["blocks", "rows"])
@pytest.mark.parametrize("name", TRAINED)
def test_trains_as_in_pyg_on_spark(name: str, engine: str, spark: object) -> None:
    assert_trains_as_pyg(name, engine=engine, partitions=3)


@pytest.mark.parametrize(
    "name", ["dropout", pytest.param("dropout between the layers of an LSTM", marks=pytest.mark.nightly)]
)
def test_dropout_draws_the_same_numbers_for_a_row_in_any_chunk(name: str) -> None:
    graph, settings = messy_graph(), {"engine": "local", "epochs": 2, "progress": False}
    runs = [lotan.Trainer(made(name), graph, chunk_rows=rows, **settings).fit() for rows in (7, 64)]
    assert DROPOUT in operators(trace(made(name), WIDTH, training=True))
    assert [one["loss"] for one in runs[0].history] == pytest.approx([one["loss"] for one in runs[1].history], rel=1e-5)


def operators(spec: Spec) -> list[str]:
    return [call.op for call in spec.calls]


def test_a_layer_runs_once_in_each_direction_and_states_that_nobody_reads_are_not_written() -> None:
    spec = trace(made("GRU both ways"), WIDTH, training=True)
    assert operators(spec).count(OPERATOR) == 4
    assert operators(trace(made("mean of a stack"), WIDTH, training=True)).count("aten.stack.default") == 1


REFUSED: dict[str, tuple[Callable[[Any, torch.Tensor], torch.Tensor], str]] = {
    "steps are vertices": (
        lambda m, h: m.rows_last(h.view(-1, 2, 4).repeat(1, 1, 2))[0][:, 0],
        "make it with batch_first=True",
    ),
    "vertices are steps": (lambda m, h: m.rows_first(torch.stack(beside(h)))[0][0], "make it with batch_first=False"),
    "one sequence": (lambda m, h: m.rows_first(h)[0], r"one sequence for each row.*\[num_vertices, 8\]"),
    "packed": (
        lambda m, h: m.rows_first(torch.nn.utils.rnn.PackedSequence(h, torch.ones(1, dtype=torch.int64)))[0],
        "packed sequences",
    ),
    "projected": (lambda m, h: m.projected(h[:, None])[0][:, 0], "proj_size"),
    "sum over rows": (lambda m, h: h + torch.stack(beside(h)).sum(1)[0], "dimension of the rows"),
    "softmax over rows": (lambda m, h: torch.stack(beside(h)).softmax(1)[0], "dimension of the rows"),
    "places that differ": (lambda m, h: (h.view(-1, 2, 4).transpose(0, 1) + h[:, None, :4]).sum(0), "."),
    "rows mixed": (
        lambda m, h: torch.stack([h, h]).reshape(-1, 16)[:, :8],
        "mixes the rows|out of the first dimension",
    ),
    "a statistic": (lambda m, h: torch.stack([h * 0, h]).mean(0) + torch.stack([h, h]).sub(h.mean(0))[0].sum(), "."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_is_refused_with_the_layer_and_the_line(name: str) -> None:
    function, words = REFUSED[name]
    parts = {
        "rows_first": lstm(batch_first=True),
        "rows_last": lstm(),
        "projected": lstm(batch_first=True, proj_size=4),
    }
    with pytest.raises(ModelError, match=words) as refusal:
        trace(Model(function, **parts), WIDTH, training=True)
    assert "test_sequences.py" in str(refusal.value)
