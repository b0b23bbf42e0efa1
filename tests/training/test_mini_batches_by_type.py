"""Mini-batches of graphs with several types of vertices: a fanout holds for each relation, and steps are those of PyG."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import lotan
from lotan.batches.examples import batches_of_epoch, examples_of
from lotan.batches.sampler import Sample, Sampler
from lotan.errors import ConfigurationError, ModelError
from lotan.stages.randomness import Randomness
from tests.tracing.hetero_models import made, messy_data
from tests.training.test_hetero import rows_of
from tests.training.test_learned_rows_by_type import data_of, embedded

pytestmark = pytest.mark.thorough

RATE, SEED = 0.05, 3


class Part:
    """A sample as PyG has it: a tensor for each type and each relation, by attributes of a HeteroData."""

    def __init__(self, graph: lotan.HeteroGraph, drawn: Sample) -> None:
        arrays, types = graph.arrays(), graph.vertex_types
        assert types is not None
        features = torch.from_numpy(arrays.features[drawn.rows])
        number = features[:, types.type_column].long()
        place = torch.zeros(len(number), dtype=torch.int64)
        self.x_dict, self.rows = {}, {}
        for kind, name in enumerate(types.names):
            here = (number == kind).nonzero().view(-1)
            place[here] = torch.arange(len(here))
            self.rows[name] = torch.from_numpy(drawn.rows)[here] - int((arrays.features[:, -1] < kind).sum())
            if types.widths[kind]:
                self.x_dict[name] = features[here, : types.widths[kind]]
        relation = torch.from_numpy(arrays.edge_type[drawn.edges])
        ends = torch.from_numpy(np.stack([drawn.src, drawn.dst]))
        self.edge_index_dict = {one: place[ends[:, relation == at]] for at, one in enumerate(types.relations)}


def by_hand(model: torch.nn.Module, graph: lotan.HeteroGraph, regime: lotan.MiniBatch, rows: Any, steps: Any) -> None:
    """The steps of PyG on the same samples, for two epochs. `rows` are those that a model has for a part."""
    arrays = graph.arrays()
    sampler, examples = Sampler(arrays, by_relation=True), examples_of(arrays)
    for epoch in (1, 2):
        for number, some in enumerate(
            batches_of_epoch(examples, arrays.keys, regime.batch_size, Randomness(SEED, epoch))
        ):
            part = Part(graph, sampler.sample(some, regime.fanouts, Randomness(SEED, epoch, batch=number)))
            steps.zero_grad()
            out = rows(model, part)[: len(some)]
            functional.cross_entropy(out, torch.from_numpy(arrays.label[some])).backward()
            steps.step()


def assert_steps_as_pyg(model: torch.nn.Module, graph: lotan.HeteroGraph, fanouts: Any, rows: Any) -> lotan.Run:
    regime, theirs = lotan.MiniBatch(5, fanouts, seed=SEED), copy.deepcopy(model)
    settings = {"optimizer": lotan.SGD(lr=RATE), "epochs": 2, "eval_every": 0, "engine": "local", "progress": False}
    run = lotan.Trainer(model, graph, regime=regime, **settings).fit()
    by_hand(theirs, graph, regime, rows, torch.optim.SGD(theirs.parameters(), RATE))
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(
            run.model.weights[name], value, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )
    return run


@pytest.mark.parametrize(("name", "fanouts"), [("RGCN", (2, 1)), ("HGT", ("all", 2)), ("to_hetero", ("all", "all"))])
def test_steps_are_those_of_pyg_on_the_same_samples(name: str, fanouts: Any) -> None:
    data = messy_data()
    graph, model = lotan.HeteroGraph.from_pyg(data), made(name)
    run = assert_steps_as_pyg(model, graph, fanouts, rows_of)
    with torch.no_grad():
        expected = rows_of(model.eval(), data).softmax(1).numpy()  # of the whole graph
    np.testing.assert_allclose(np.stack(run.predict()["probability"]), expected, rtol=1e-4, atol=1e-6)


def test_learned_rows_of_types_train_in_batches() -> None:
    def rows(model: Any, part: Part) -> Any:
        kept = model.authors, model.venues, model.papers
        chosen = (own(part.rows[name]) for own, name in zip(kept, ("author", "venue", "paper"), strict=True))
        found = tuple(chosen)
        model.rows = lambda: found
        return model(part.x_dict, part.edge_index_dict)

    assert_steps_as_pyg(embedded(), lotan.HeteroGraph.from_pyg(data_of()), (2, 2), rows)


def test_a_fanout_is_the_most_of_each_relation() -> None:
    graph = lotan.HeteroGraph.from_pyg(messy_data())
    arrays = graph.arrays()
    sampler, examples = Sampler(arrays, by_relation=True), examples_of(arrays)
    several = 0
    for number in range(5):
        drawn = sampler.sample(examples, (2, 2), Randomness(SEED, 1, batch=number))
        keys = np.stack([arrays.dst[drawn.edges], arrays.edge_type[drawn.edges]])
        pairs, counts = np.unique(keys, axis=1, return_counts=True)
        every = np.stack([arrays.dst, arrays.edge_type])
        for pair, count in zip(pairs.T, counts, strict=True):
            assert count == min(2, int((every == pair[:, None]).all(axis=0).sum()))
        several += int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())
        assert len(np.unique(drawn.edges)) == len(drawn.edges)
    assert several


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("turned", ConfigurationError, "on a graph of several types of vertices draws in-edges alone there"),
        ("to_hetero with BatchNorm", ConfigurationError, "takes no statistics of types there.*use LayerNorm"),
        pytest.param("HAN", ModelError, "reads the rows of all vertices", marks=pytest.mark.nightly),
    ],
)
def test_what_batches_of_several_types_do_not_have_is_refused(name: str, error: type[Exception], said: str) -> None:
    graph, fanouts = lotan.HeteroGraph.from_pyg(messy_data()), (2,) * (6 if name == "turned" else 2)
    with pytest.raises(error, match=said):
        lotan.Trainer(made(name), graph, regime=lotan.MiniBatch(2, fanouts), engine="local", progress=False).fit()
