"""Whatever rules are off, random models on random graphs have the losses and gradients of plain autograd.

LOTAN_EXAMPLES=20000 pytest tests/exactness/test_random_models.py    as many cases of each test, other ones every time
python -m tests.exactness.offline --cases 20000                      the same, several graphs for each model: faster
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import closing
from functools import lru_cache

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from lotan.engines.choice import ABILITIES
from lotan.engines.local import LocalEngine
from lotan.nn import EdgeIndex
from lotan.tracing import trace
from planner import RULES, Options, compile_plan
from planner.spec import LossSpec, Spec
from tests.exactness.cases import OUT, RATE, STEPS, WIDTH, Sample, Trained, sample, trained_on
from tests.exactness.random_models import Drawn, Paired
from tests.exactness.steps import assert_equal, train

EXAMPLES = int(os.environ.get("LOTAN_EXAMPLES", "12"))
TOLERANCE = 1e-4  # of the largest number of a tensor: float32 over up to eight layers, three steps
STIR = 2.0**-20  # of each weight: what that changes, rounding may change
SOME_RULES = st.sets(st.sampled_from(RULES))
DRAWN = settings(max_examples=EXAMPLES, deadline=None, derandomize="LOTAN_EXAMPLES" not in os.environ)


def drawn_model(seed: int, dropping: bool, stirred: bool) -> torch.nn.Module:
    """The model of a seed; stirred with weights a little off: steep models make much of that, as they do of rounding."""
    torch.manual_seed(seed)
    model = (Paired if seed % 4 == 0 else Drawn)(seed, dropping)
    with torch.no_grad():
        for parameter in model.parameters() if stirred else ():
            parameter.mul_(1 + STIR * torch.randn(parameter.shape))
    return model


@lru_cache(maxsize=8)
def specs_of(seed: int, dropping: bool) -> tuple[Spec, Spec]:
    """In training and in evaluation; weights do not matter."""
    model = drawn_model(seed, dropping, stirred=False)
    return trace(model, WIDTH, training=True), trace(model, WIDTH, training=False)


def by_autograd(seed: int, drawn: Sample, stirred: bool = False) -> Trained:
    """Steps on the model as it is, in float64."""
    model, x = drawn_model(seed, False, stirred).double(), drawn.x.double()
    graph = EdgeIndex(drawn.edge_index, drawn.weight.double(), len(x), torch.float64)
    optimizer, rows = torch.optim.SGD(model.parameters(), RATE), torch.from_numpy(drawn.split == 0)
    losses, gradients = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, graph)[rows], drawn.label[rows])
        loss.backward()
        losses.append(loss.item())
        gradients.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
        optimizer.step()
    return Trained(losses, gradients, {key: p.detach().clone() for key, p in model.named_parameters()})


def planned_run(
    seed: int, dropping: bool, drawn: Sample, off: Collection[str], general: bool = False, stirred: bool = False
) -> Trained:
    """The same steps through a plan, on the local engine; `general` with one that can do no more than the paper's."""
    model = drawn_model(seed, dropping, stirred)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    options = Options(disabled=tuple(off), abilities=() if general else ABILITIES["local"])
    with closing(LocalEngine(chunk_rows=5)) as engine:
        return train(
            engine, compile_plan(*specs_of(seed, dropping), loss, drawn.graph.statistics, options), model, drawn
        )


def graph_of(seed: int) -> Sample:
    """Every other one with so few training vertices that several levels are pruned."""
    drawn = sample(seed, vertices=8 + seed % 13, edges=seed % 60, weighted=seed % 3 == 0)
    few = np.random.default_rng(seed).integers(0, len(drawn.x), 1 + seed % 3)
    return trained_on(drawn, few) if seed % 2 else drawn


@DRAWN
@given(seed=st.integers(0, 2**31), off=SOME_RULES, general=st.booleans())
def test_any_rules_off_equal_autograd(seed: int, off: set[str], general: bool) -> None:
    check_against_autograd(seed, seed, off, general)


def check_against_autograd(seed: int, graph: int, off: set[str], general: bool) -> None:
    """A case, by the seeds of its model and its graph."""
    drawn = graph_of(graph)
    off = off | {"reuse_evaluation"} if graph % 2 else off  # which needs all vertices, and so prunes none
    found, truth = planned_run(seed, False, drawn, off, general), by_autograd(seed, drawn)
    assert_equal(found, truth, TOLERANCE, rounded=[by_autograd(seed, drawn, stirred=True)])


@DRAWN
@given(seed=st.integers(0, 2**31), off=SOME_RULES)
@example(seed=1239, off=set())  # a gradient that autograd hands on as it was given
def test_any_rules_off_draw_the_same_random_numbers(seed: int, off: set[str]) -> None:
    check_random_numbers(seed, seed, off)


def check_random_numbers(seed: int, graph: int, off: set[str]) -> None:
    """A case of a model that draws, by the seeds of its model and its graph."""
    drawn = graph_of(graph)
    found, truth = planned_run(seed, True, drawn, off), planned_run(seed, True, drawn, RULES)
    assert_equal(found, truth, TOLERANCE, rounded=[planned_run(seed, True, drawn, RULES, stirred=True)])
