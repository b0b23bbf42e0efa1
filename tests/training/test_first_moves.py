"""The first moves of a user: a look at a run, a pickle, a name of another library, and classes as texts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import lotan
from lotan.nn import GCN
from lotan.training.trainer import Trainer


def graph(label: list[object]) -> lotan.Graph:
    features = np.random.default_rng(0).normal(size=(8, 3))
    split = ["train", "train", "val", "test"] * 2
    return lotan.Graph.from_arrays(features, [0, 1, 2, 3], [1, 2, 3, 4], label, split)


def trainer(label: list[object], outputs: int = 2, **options: object) -> Trainer:
    torch.manual_seed(0)
    return Trainer(GCN(3, 4, 1, outputs), graph(label), engine="local", epochs=2, progress=False, **options)


def test_texts_of_classes_come_back_in_predictions(tmp_path):
    run = trainer(["dog", "cat"] * 4).fit()
    numbers = trainer([1, 0] * 4).fit()
    assert run.metrics == numbers.metrics
    names = np.array(["cat", "dog"])
    assert run.predict()["prediction"].tolist() == names[numbers.predict()["prediction"]].tolist()
    run.save(tmp_path / "model")
    loaded = lotan.load(tmp_path / "model")
    assert loaded.classes == ("cat", "dog")
    assert loaded.predict(run.graph)["prediction"].tolist() == run.predict()["prediction"].tolist()


@pytest.mark.spark
def test_texts_of_classes_come_back_in_spark(spark):
    local = graph(["dog", "cat"] * 4)
    vertices, edges = local.frames(spark)
    names = spark.createDataFrame(
        [(number, ("dog", "cat")[number % 2]) for number in range(8)], "id bigint, label string"
    )
    splits = spark.createDataFrame(
        [(n, ("train", "train", "val", "test")[n % 4]) for n in range(8)], "id bigint, split string"
    )
    table = vertices.select("id", "features").join(names, "id").join(splits, "id")
    torch.manual_seed(0)
    run = Trainer(GCN(3, 4, 1, 2), lotan.Graph(table, edges), engine="local", epochs=2, progress=False).fit()
    expected = trainer(["dog", "cat"] * 4).fit().predict()
    found = run.predict()
    assert dict(found.dtypes)["prediction"] == "string"
    assert [row.prediction for row in found.orderBy("id").collect()] == expected["prediction"].tolist()


@pytest.mark.parametrize(
    ("task", "label", "outputs"),
    [("regression", [0, 1, 2, 3] * 2, 1), ("multilabel", [0, 1] * 4, 1), ("classification", [0.0, 1.0] * 4, 2)],
)
def test_a_named_task_decides(task, label, outputs):
    run = trainer(label, outputs, task=task).fit()
    assert run.report["task"] == task
    classes = task == "classification"
    expected = trainer(np.array(label, np.int64 if classes else np.float32)[:, None], outputs, task=task).fit()
    assert [epoch["loss"] for epoch in run.history] == [epoch["loss"] for epoch in expected.history]


def test_runs_and_trainers_can_be_pickled_and_describe_themselves():
    before = trainer([0, 1] * 4)
    run = pickle.loads(pickle.dumps(before)).fit()
    assert [epoch["loss"] for epoch in run.history] == [epoch["loss"] for epoch in before.fit().history]
    again = pickle.loads(pickle.dumps(run))
    assert again.predict().equals(run.predict())
    lines = repr(run).splitlines()
    assert lines[0].startswith("Run of 2 epochs on local, best in epoch ")
    assert [line.split()[0] for line in lines[1:]] == ["train", "val", "test"]


@pytest.mark.parametrize(("name", "meant"), [("train", "fit"), ("predict", "fit().predict"), ("describe", "explain")])
def test_names_of_other_libraries_are_answered(name, meant):
    with pytest.raises(AttributeError, match="has no attribute") as raised:
        getattr(trainer([0, 1] * 4), name)
    assert f"did you mean '{meant}'?" in str(raised.value)
    with pytest.raises(AttributeError, match=r"'Trainer' object has no attribute 'colour'$"):
        _ = trainer([0, 1] * 4).colour


def test_notes_on_what_is_not_read_are_said_at_the_start(capsys, tmp_path):
    np.savez(
        tmp_path / "graph.npz",
        x=np.ones((2, 1)),
        edge_index=[[0], [1]],
        y=[0, 1],
        train_idx=[0, 1],
        degree=[1, 2],
    )
    Trainer(GCN(1, 2, 1, 2), lotan.Graph.read(tmp_path / "graph.npz"), engine="local", epochs=1).fit()
    assert "the arrays degree are not read" in capsys.readouterr().err
