"""BatchNorm in mini-batches: its statistics are those of the batch's rows, as PyG's loaders give them."""

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
from lotan.errors import ModelError
from lotan.stages.randomness import Randomness
from tests.links.graphs import graph as links

WIDTH, OUT = 5, 3


def graph(vertices: int = 60) -> lotan.Graph:
    random = np.random.default_rng(1)
    ends = random.integers(0, vertices, (2, 5 * vertices))
    return lotan.Graph.from_arrays(
        features=random.normal(size=(vertices, WIDTH)).astype(np.float32),
        src=ends[0],
        dst=ends[1],
        label=random.integers(0, OUT, vertices),
        split=random.choice(np.array([0, 0, 0, 1, 2], dtype=np.int8), vertices),
    )


class NormalisedFirst(nn.Module):
    """A norm of the features, whose statistics a full batch would compute once."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.rest = nn.BatchNorm1d(WIDTH, momentum=None), pyg.GCN(WIDTH, 6, 2, OUT, norm="batch_norm")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.rest(self.norm(x), edge_index)


MODELS = {
    "GraphSAGE": lambda: pyg.GraphSAGE(WIDTH, 6, 2, OUT, norm="batch_norm"),
    "features": NormalisedFirst,
    "without weights": lambda: pyg.GraphSAGE(WIDTH, 6, 2, OUT, norm="batch_norm", norm_kwargs={"affine": False}),
}


def by_hand(model: nn.Module, given: lotan.Graph, regime: lotan.MiniBatch, epochs: int) -> None:
    """The steps of PyG on the same samples. GCN's normalisation is the graph's, so it is left to the other models."""
    arrays = given.arrays()
    sampler, examples = Sampler(arrays), examples_of(arrays)
    optimizer, x = torch.optim.SGD(model.parameters(), 0.1), torch.from_numpy(arrays.features)
    for epoch in range(1, epochs + 1):
        targets = batches_of_epoch(examples, arrays.keys, regime.batch_size, Randomness(regime.seed, epoch))
        for number, some in enumerate(targets):
            drawn = sampler.sample(some, regime.fanouts, Randomness(regime.seed, epoch, batch=number))
            edges = torch.from_numpy(np.stack([drawn.src, drawn.dst]))
            optimizer.zero_grad()
            out = model(x[drawn.rows], edges)[: len(some)]
            functional.cross_entropy(out, torch.from_numpy(arrays.label[some])).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("name", "fanouts"), [("GraphSAGE", (2, 3)), ("GraphSAGE", ("all", "all")), ("without weights", (2, "all"))]
)
def test_steps_and_running_statistics_are_those_of_pyg_on_the_same_samples(name: str, fanouts: Any) -> None:
    given, regime = graph(), lotan.MiniBatch(8, fanouts, seed=3)
    torch.manual_seed(0)
    ours = MODELS[name]()
    theirs = deepcopy(ours)
    run = lotan.Trainer(
        ours, given, regime=regime, optimizer=lotan.SGD(lr=0.1), epochs=2, eval_every=0, progress=False
    ).fit()
    by_hand(theirs, given, regime, 2)
    assert len(examples_of(given.arrays())) % 8  # the last batch has fewer targets
    for key, expected in theirs.state_dict().items():
        torch.testing.assert_close(run.model.weights[key], expected, rtol=1e-5, atol=1e-6, msg=key)
    arrays = given.arrays()
    with torch.no_grad():
        rows = theirs.eval()(torch.from_numpy(arrays.features), torch.from_numpy(np.stack([arrays.src, arrays.dst])))
    found = np.stack(run.predict()["probability"])  # of the whole graph, with running statistics
    np.testing.assert_allclose(found, rows.softmax(1).numpy(), rtol=1e-4, atol=1e-5)


def test_statistics_of_features_are_the_batches_and_not_computed_once() -> None:
    given, regime = graph(), lotan.MiniBatch(8, ("all", "all"), seed=3)
    torch.manual_seed(0)
    model = NormalisedFirst()
    trainer = lotan.Trainer(model, given, regime=regime, epochs=1, progress=False)
    assert trainer.job.batch.plan.hoisted == ()
    trainer.fit()
    arrays = given.arrays()
    targets = batches_of_epoch(examples_of(arrays), arrays.keys, 8, Randomness(3, 1))
    sampler = Sampler(arrays)
    drawn = [sampler.sample(some, ("all", "all"), Randomness(3, 1, batch=n)).rows for n, some in enumerate(targets)]
    means = np.stack([arrays.features[rows].mean(0) for rows in drawn])
    np.testing.assert_allclose(model.norm.running_mean, means.mean(0), rtol=1e-5, atol=1e-6)


def test_a_batch_of_everything_is_the_full_batch_and_models_share_batches() -> None:
    given = graph(40)
    torch.manual_seed(0)
    one = pyg.GraphSAGE(WIDTH, 6, 1, OUT, norm="batch_norm")
    models = [pyg.GraphSAGE(WIDTH, 6, 2, OUT, norm="batch_norm") for _ in range(2)]
    regime = lotan.MiniBatch(8, (2, 2))
    alone = [lotan.Trainer(deepcopy(m), given, regime=regime, epochs=2, progress=False).fit() for m in models]
    with lotan.ModelBatch(given, [lotan.Member(m, epochs=2) for m in models], regime=regime, progress=False) as batch:
        batch.train()
        for number, run in batch.runs().items():
            assert run.metrics == alone[number].metrics
            for name, weight in run.model.weights.items():
                assert torch.equal(weight, alone[number].model.weights[name]), name
    assert lotan.Trainer(one, given, regime=lotan.MiniBatch(8, (2,)), epochs=1, progress=False).fit().best_epoch == 1


def test_a_batch_of_one_vertex_and_links_train() -> None:
    arrays = {"features": np.eye(4, dtype=np.float32), "src": np.array([0]), "dst": np.array([1])}
    lone = lotan.Graph.from_arrays(**arrays, label=np.array([0, 1, 0, 1]), split=np.array([0, 0, 0, 1]))
    run = lotan.Trainer(
        pyg.GraphSAGE(4, 3, 2, 2, norm="batch_norm"), lone, regime=lotan.MiniBatch(1, (1, 1)), epochs=2, progress=False
    ).fit()
    assert all(bool(torch.isfinite(one).all()) for one in run.model.weights.values())
    task, regime = lotan.LinkPrediction(negatives=9), lotan.MiniBatch(32, (2, 2))
    model = pyg.GraphSAGE(WIDTH, 6, 2, 4, norm="batch_norm")
    run = lotan.Trainer(model, links(1), task=task, regime=regime, epochs=1, progress=False).fit()
    training = int((links(1).linked_columns()[1].split == 0).sum())
    assert int(model.norms[0].module.num_batches_tracked) == -(-training // 32)


@pytest.mark.parametrize(
    "norm", [pyg.BatchNorm(6, track_running_stats=False), pyg.GraphNorm(6), pyg.PairNorm()], ids=str
)
def test_other_statistics_of_all_vertices_are_refused_by_name(norm: nn.Module) -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = pyg.SAGEConv(WIDTH, 6), norm, pyg.SAGEConv(6, OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.last(self.norm(self.first(x, edge_index)), edge_index)

    with pytest.raises(ModelError, match=r"norm.*: reads the rows of all vertices"):
        lotan.Trainer(Normed(), graph(), regime=lotan.MiniBatch(8, (2, 2)), progress=False).job  # noqa: B018
