"""A trained model takes features in the order of training, whatever the order of a table's columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lotan
from lotan.errors import GraphError

COLUMNS = [f"f_{number}" for number in range(4)]


def tables(columns: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A graph whose columns of features are in that order."""
    random = np.random.default_rng(0)
    features = pd.DataFrame(random.normal(size=(30, 4)), columns=COLUMNS)
    vertices = features[columns].assign(id=range(30), label=random.integers(0, 3, 30), split="train")
    return vertices, pd.DataFrame(random.integers(0, 30, (90, 2)), columns=["src", "dst"])


def graph(columns: list[str], features: object, folder: Path | None) -> lotan.Graph:
    """The same in memory, or in a folder."""
    vertices, edges = tables(columns)
    if folder is None:
        return lotan.Graph(vertices, edges, features=features)
    folder.mkdir()
    vertices.to_parquet(folder / "vertices.parquet")
    edges.to_parquet(folder / "edges.parquet")
    return lotan.Graph.read(folder, features=features)


@pytest.mark.parametrize("in_files", [False, True])
def test_the_columns_of_training_in_another_order_are_refused(tmp_path: Path, in_files: bool) -> None:
    def place(name: str) -> Path | None:
        return tmp_path / name if in_files else None

    known = graph(COLUMNS, "f_*", place("known"))
    run = lotan.Trainer(lotan.nn.GCN(4, 4, 1, 3), known, engine="local", epochs=1, progress=False).fit()
    run.save(tmp_path / "model")
    model = lotan.load(tmp_path / "model")
    assert model.features == tuple(COLUMNS)
    turned = COLUMNS[::-1]
    with pytest.raises(GraphError, match=r"another order: f_3 is where f_0 was.*features=list\(model\.features\)"):
        model.predict(graph(turned, "f_*", place("turned")), engine="local")
    again = model.predict(graph(turned, list(model.features), place("again")), engine="local")
    pd.testing.assert_frame_equal(again, model.predict(known, engine="local"))


def test_columns_of_other_names_are_taken_in_their_order() -> None:
    vertices, edges = tables(COLUMNS)
    run = lotan.Trainer(
        lotan.nn.GCN(4, 4, 1, 3), lotan.Graph(vertices, edges, features="f_*"), engine="local", epochs=1, progress=False
    ).fit()
    renamed = vertices.rename(columns=lambda name: name.replace("f_", "x"))
    found = run.model.predict(lotan.Graph(renamed, edges, features="x*"), engine="local")
    pd.testing.assert_frame_equal(found, run.predict())
