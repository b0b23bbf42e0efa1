"""One mini-batch of all training vertices and all edges: the loss and gradients of the full batch and of plain autograd.

The engine `rows` refuses mini-batches, see `tests/training/test_mini_batches.py`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import lotan
from lotan.hosts.jar import JAR
from planner.regime import hops
from tests.exactness.cases import EVERY, Sample, models, named, sample, specs, train_truth

MODELS = ("GCN", "GraphSAGE", "GraphSAGE, max", "GIN", "GAT")
RATE = 1024.0
"""A power of two, so large that a step leaves the digits of the gradient: the weights before it are as nothing."""
TOLERANCE = 1e-5  # relative to the largest number of each gradient

ENGINES: dict[str, dict[str, Any]] = {
    "local": {"engine": "local"},
    "blocks": {"engine": "blocks", "workers": 2, "partitions": 3},
}


def step(model: torch.nn.Module, graph: lotan.Graph, **options: Any) -> tuple[float, dict[str, Tensor]]:
    """Return the loss of a step of gradient descent, and its gradients."""
    trained, settings = deepcopy(model), {"epochs": 1, "eval_every": 0, "progress": False, **options}
    run = lotan.Trainer(trained, graph, optimizer=lotan.SGD(lr=RATE), **settings).fit()
    after = dict(trained.named_parameters())
    moved = {name: before.detach() - after[name].detach() for name, before in model.named_parameters()}
    return run.history[0]["loss"], {name: one.double() / RATE for name, one in moved.items()}


def assert_same_step(found: tuple[float, dict[str, Tensor]], loss: float, gradients: dict[str, Tensor]) -> None:
    assert found[0] == pytest.approx(loss, rel=TOLERANCE)
    for name, expected in gradients.items():
        error, scale = float((found[1][name] - expected).abs().max()), float(expected.abs().max())
        assert error <= TOLERANCE * scale, f"{name}: off by {error / scale:.1e} of its largest number"


def check(name: str, engine: str, drawn: Sample, full: str) -> None:
    """Compare a batch on an engine with autograd in float64, and with the full batch on another engine or the same."""
    model, truth = models(name, seed=4)
    regime = lotan.MiniBatch(1_000, ("all",) * hops(specs(name)[0]))
    found = step(model, drawn.graph, regime=regime, **ENGINES[engine])
    exact = train_truth(name, truth, drawn, torch.float64, steps=1)
    assert_same_step(found, exact.losses[0], exact.gradients[0])
    assert_same_step(found, *step(model, drawn.graph, **ENGINES[full]))


def drawn_for(name: str) -> Sample:
    return sample(seed=4, vertices=40, edges=160, weighted=EVERY[name].weights)


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_one_batch_on_local_has_the_gradients_of_the_full_batch(name: str) -> None:
    check(name, "local", drawn_for(name), full="local")


@pytest.mark.nightly  # by day on local
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
@pytest.mark.parametrize(("name", "full"), [*((name, "blocks") for name in MODELS), ("GCN", "local")])
def test_one_batch_on_blocks_has_the_gradients_of_the_full_batch(name: str, full: str, spark: Any) -> None:
    """With texts as ids. By day, the full batch is that of local: that of blocks equals autograd, see `test_blocks.py`."""
    drawn = drawn_for(name)
    check(name, "blocks", replace(drawn, graph=named(drawn.graph)), full)
