"""A model that predicts on edges of another kind than those it was trained on says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import lotan
from lotan.nn.named_models import factory_of


def graph(weighted: bool = False, undirected: bool = False) -> lotan.Graph:
    random = np.random.default_rng(0)
    return lotan.Graph.from_arrays(
        random.standard_normal((12, 3)),
        *random.integers(0, 12, (2, 20)),
        label=random.integers(0, 2, 12),
        split=np.zeros(12, dtype=int),
        weight=random.uniform(1, 2, 20) if weighted else None,
        undirected=undirected,
    )


def saved(folder: Path, on: lotan.Graph, kind: str = "GCN") -> lotan.TrainedModel:
    torch.manual_seed(0)
    model = getattr(lotan.nn, kind)(3, 4, 2, 2)
    lotan.Trainer(model, on, epochs=1, engine="local", progress=False).fit().save(folder)
    return lotan.load(folder)


CASES = {
    "weights that training lacked": (
        graph(),
        graph(weighted=True),
        "has weights of edges, and the graph of training had none",
    ),
    "no weights": (graph(weighted=True), graph(), "has no weights of edges, and the graph of training had some"),
    "no reverses": (graph(undirected=True), graph(), "trained with undirected=True"),
}


@pytest.mark.parametrize("case", CASES)
def test_other_edges_are_told_of(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    on, other, said = CASES[case]
    model = saved(tmp_path, on)
    model.predict(on, engine="local")
    assert "training" not in caplog.text
    model.predict(other, engine="local")
    assert said in caplog.text


def test_weights_do_not_matter_to_a_model_that_reads_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved(tmp_path, graph(), "GAT").predict(graph(weighted=True), engine="local")
    assert "weights" not in caplog.text


def test_a_model_of_an_earlier_version_is_read_and_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path, graph())
    content = json.loads((tmp_path / "model.json").read_text())
    del content["edges"]
    (tmp_path / "model.json").write_text(json.dumps(content))
    lotan.load(tmp_path).predict(graph(weighted=True), engine="local")
    assert "training" not in caplog.text


@pytest.mark.parametrize(
    ("given", "said"), [("graphsage", "did you mean sage?"), ("gatt", "did you mean gat?"), ("xyz", "give one of gcn")]
)
def test_a_model_with_a_near_name_is_suggested(given: str, said: str) -> None:
    with pytest.raises(lotan.ConfigurationError, match=said.replace("?", r"\?")):
        factory_of(given, "--model")


@pytest.mark.parametrize(
    ("given", "said"), [("lr", "lotan.Adam"), ("epoch", "did you mean epochs?"), ("zzz", "there are")]
)
def test_a_setting_that_is_not_there_is_answered(given: str, said: str) -> None:
    with pytest.raises(lotan.ConfigurationError, match=said.replace("?", r"\?")):
        lotan.Trainer(lotan.nn.GCN(3, 4, 2, 2), graph(), **{given: 1})
