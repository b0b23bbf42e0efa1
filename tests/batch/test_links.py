"""Models that learn links in step: each has the bits that it has alone, and all share links, negatives and edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import lotan
from lotan.batches.sampler import Sampler
from lotan.errors import ConfigurationError
from lotan.nn import GraphSAGE
from tests.links.graphs import WIDTH, columns, graph

TASK = lotan.LinkPrediction(decoder="distmult", negatives=15, seed=4)
MEMBERS = [(TASK, 8, 2), (replace(TASK, decoder="dot", loss="bce"), 6, 3), (replace(TASK, negatives=9), 8, 3)]


def model(outputs: int) -> GraphSAGE:
    torch.manual_seed(outputs)
    return GraphSAGE(WIDTH, 8, num_layers=2, out_channels=outputs, dropout=0.5)


def members() -> list[lotan.Member]:
    return [lotan.Member(model(outputs), task=task, epochs=epochs) for task, outputs, epochs in MEMBERS]


@pytest.mark.parametrize("regime", [lotan.FullBatch(), lotan.MiniBatch(32, (2, 3), seed=9)], ids=str)
def test_each_model_has_the_bits_that_it_has_alone(regime: Any, monkeypatch) -> None:
    given, drawn, sample = graph(1), [], Sampler.sample

    def counted(self: Sampler, *arguments: Any) -> Any:
        drawn.append(1)
        return sample(self, *arguments)

    monkeypatch.setattr(Sampler, "sample", counted)
    with lotan.ModelBatch(given, members(), task="link", regime=regime, progress=False) as batch:
        batch.train()
        runs, several = batch.runs(), len(drawn)
        assert batch.batches == [[0, 1], [2]]  # models that draw other negatives train apart
        assert "once, for all" in batch.explain()
        assert batch.report()["batches"][0]["models"] == [0, 1]
    alone = []
    for number, (task, outputs, epochs) in enumerate(MEMBERS):
        drawn.clear()
        run = lotan.Trainer(model(outputs), given, task=task, regime=regime, epochs=epochs, progress=False).fit()
        alone.append(len(drawn))
        assert run.metrics == runs[number].metrics
        assert {"val", "test"} == set(run.metrics) - {"train"}
        for name, weights in run.model.weights.items():
            assert torch.equal(weights, runs[number].model.weights[name]), name
    if isinstance(regime, lotan.MiniBatch):
        assert several < sum(alone)  # at most two batches were prepared ahead in vain


def test_models_of_other_fractions_pass_messages_along_other_edges() -> None:
    given = columns(1, relations=0)
    del given["edge_split"]
    whole = lotan.Graph.from_arrays(**given)
    tasks = [lotan.LinkPrediction(negatives=9, fractions=(share, share)) for share in (0.1, 0.3)]
    with lotan.ModelBatch(
        whole, [lotan.Member(model(4), task=task, epochs=2) for task in tasks], progress=False
    ) as batch:
        batch.train()
        runs = batch.runs()
    for number, task in enumerate(tasks):
        alone = lotan.Trainer(model(4), whole, task=task, epochs=2, progress=False).fit()
        assert alone.metrics == runs[number].metrics


def test_memory_divides_models_and_one_that_diverges_ends_alone() -> None:
    wild = lotan.Member(model(8), optimizer=lotan.SGD(lr=1e38), epochs=3)
    calm = lotan.Member(model(8), epochs=2)
    with lotan.ModelBatch(graph(1), [wild, calm], task=TASK, progress=False) as batch:
        batch.train()
        assert [state.state for state in batch.states] == ["diverged", "done"]
        assert batch.batches == [[0, 1]]
        run = batch.run_of(1)
    alone = lotan.Trainer(model(8), graph(1), task=TASK, epochs=2, progress=False).fit()
    assert run.metrics == alone.metrics
    with lotan.ModelBatch(graph(1), members()[:2], task=TASK, max_models=1, progress=False) as batch:
        batch.train(upto=1)
        assert batch.batches == [[0], [1]]


def test_links_and_labels_do_not_train_together() -> None:
    mixed = [lotan.Member(model(8)), lotan.Member(model(6), task=TASK)]
    with pytest.raises(ConfigurationError, match="some members have the task LinkPrediction"):
        lotan.ModelBatch(graph(1), mixed)
