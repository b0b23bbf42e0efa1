"""Mini-batches of models that sum along edges turned round: out-edges are drawn as in-edges are."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.sampler import Sampler
from lotan.stages.randomness import Randomness
from tests.links.graphs import graph as links
from tests.training.test_batch_norm import OUT, WIDTH, graph


class Directed(nn.Module):
    """Two layers that sum along edges in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = (pyg.DirGNNConv(pyg.SAGEConv(*widths), alpha=0.3) for widths in ((WIDTH, 6), (6, OUT)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


class TurnedRound(nn.Module):
    """One layer along the edges turned round, and one along the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = pyg.GraphConv(WIDTH, 6, flow="target_to_source"), pyg.GATConv(6, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


def made(kind: Any) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def fit(model: nn.Module, given: lotan.Graph, regime: Any, **options: Any) -> lotan.results.run.Run:
    settings = {"optimizer": lotan.SGD(lr=0.1), "epochs": 2, "progress": False, **options}
    return lotan.Trainer(model, given, regime=regime, **settings).fit()


@pytest.mark.parametrize("kind", [Directed, TurnedRound])
@pytest.mark.parametrize("fanouts", [(2, 3), ("all", 1)], ids=str)
def test_steps_are_those_of_pyg_on_the_sampled_edges(kind: Any, fanouts: Any) -> None:
    given, regime = graph(), lotan.MiniBatch(8, fanouts, seed=3)
    ours, theirs = made(kind), made(kind)
    run = fit(ours, given, regime, eval_every=0)
    arrays = given.arrays()
    sampler, optimizer = Sampler(arrays, both=True), torch.optim.SGD(theirs.parameters(), 0.1)
    for epoch in (1, 2):
        for number, some in enumerate(batches_of_epoch(examples_of(arrays), arrays.keys, 8, Randomness(3, epoch))):
            drawn = sampler.sample(some, fanouts, Randomness(3, epoch, batch=number))
            optimizer.zero_grad()
            out = theirs(
                torch.from_numpy(arrays.features[drawn.rows]), torch.from_numpy(np.stack([drawn.src, drawn.dst]))
            )
            functional.cross_entropy(out[: len(some)], torch.from_numpy(arrays.label[some])).backward()
            optimizer.step()
    for name, expected in theirs.state_dict().items():
        torch.testing.assert_close(run.model.weights[name], expected, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("kind", [Directed, TurnedRound])
def test_a_batch_of_all_edges_is_the_full_batch(kind: Any) -> None:
    """The full batch equals autograd, see tests/exactness."""
    one, full = made(kind), made(kind)
    runs = [
        fit(model, graph(), regime, eval_every=0)
        for model, regime in ((one, lotan.MiniBatch(1_000, ("all", "all"))), (full, lotan.FullBatch()))
    ]
    for name, expected in runs[1].model.weights.items():
        torch.testing.assert_close(runs[0].model.weights[name], expected, rtol=1e-5, atol=1e-6, msg=name)
    assert runs[0].metrics["test"]["loss"] == pytest.approx(runs[1].metrics["test"]["loss"], rel=1e-5)


def test_each_vertex_draws_from_both_of_its_ends() -> None:
    arrays = graph().arrays()
    sampler, whole = Sampler(arrays, both=True), (arrays.src, arrays.dst)
    drawn = sampler.sample(np.arange(0, 60, 9), (2, 3), Randomness(0, 1))
    assert len(np.unique(drawn.edges)) == len(drawn.edges)
    assert len(np.unique(drawn.rows)) == len(drawn.rows) == drawn.counts[-1]
    np.testing.assert_array_equal(drawn.rows[drawn.src], arrays.src[drawn.edges])
    np.testing.assert_array_equal(drawn.rows[drawn.dst], arrays.dst[drawn.edges])
    assert (np.diff(drawn.dst) >= 0).all()
    for level, (start, end) in enumerate(((0, drawn.counts[0]), (drawn.counts[0], drawn.counts[1]))):
        for row in drawn.rows[start:end]:
            for side in whole:
                least = min((2, 3)[level], int((side == row).sum()))
                assert (side[drawn.edges] == row).sum() >= least  # others may have drawn more of its edges
    far = set(drawn.rows[drawn.counts[1] :].tolist())
    assert not [e for e in drawn.edges if arrays.src[e] in far and arrays.dst[e] in far]
    again = sampler.sample(np.arange(0, 60, 9), (2, 3), Randomness(0, 1))
    np.testing.assert_array_equal(again.edges, drawn.edges)


def test_links_models_that_share_batches_and_estimates() -> None:
    encoder = pyg.DirGNNConv(pyg.SAGEConv(WIDTH, 6))
    task, regime = lotan.LinkPrediction(negatives=9), lotan.MiniBatch(32, (2,))
    alone = fit(deepcopy(encoder), links(1), regime, task=task)
    members = [lotan.Member(deepcopy(encoder), optimizer=lotan.SGD(lr=0.1), epochs=2) for _ in range(2)]
    with lotan.ModelBatch(links(1), members, task=task, regime=regime, progress=False) as batch:
        batch.train()
        assert [run.metrics for run in batch.runs().values()] == [alone.metrics] * 2
    regime = lotan.MiniBatch(8, (2, 2))
    kinds = (Directed, TurnedRound, lambda: pyg.GraphSAGE(WIDTH, 6, 2, OUT))  # the last one draws in-edges alone
    members = [lotan.Member(made(kind), optimizer=lotan.SGD(lr=0.1), epochs=2) for kind in kinds]
    with lotan.ModelBatch(graph(), members, regime=regime, progress=False) as batch:
        batch.train()
        assert sorted(map(len, batch.batches)) == [1, 2]
        for number, kind in enumerate(kinds):
            run = fit(made(kind), graph(), regime)
            assert run.metrics == batch.run_of(number).metrics
    trainer = lotan.Trainer(
        made(Directed), graph(), regime=lotan.MiniBatch(8, ("all", "all")), epochs=1, progress=False
    )
    sizes = trainer.job.batch.statistics
    found = trainer.fit().report["mini_batches"]
    assert sizes.vertices == pytest.approx(found["vertices"] / found["batches"], rel=0.2)
    assert sizes.edges == pytest.approx(found["edges"] / found["batches"], rel=0.3)
