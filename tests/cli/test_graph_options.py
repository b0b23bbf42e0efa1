"""The command line finds a graph by its tables and columns, wherever they are, and a model in a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lotan.cli import main

pytestmark = pytest.mark.thorough

MODEL = """
import torch
from beside import WIDTH


def make(in_channels, out_channels):
    assert WIDTH == 1
    return torch.nn.Linear(in_channels, out_channels)
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Two Parquet files, with string classes and no default names."""
    random = np.random.default_rng(0)
    classes = random.integers(0, 2, 40)
    vertices = pd.DataFrame({"user": np.arange(40), "f_a": classes + random.normal(size=40), "f_b": 1.0})
    vertices["kind"] = np.where(classes, "shop", "person")
    vertices["part"] = np.array(["Train", "valid", "test", None])[np.arange(40) % 4]
    vertices.to_parquet(tmp_path / "users.parquet")
    ends = {name: random.integers(0, 40, 80) for name in ("from", "to")}
    pd.DataFrame({**ends, "amount": random.random(80)}).to_parquet(tmp_path / "links.parquet")
    return tmp_path


def words(folder: Path, *more: str) -> list[str]:
    places = ["--vertices", str(folder / "users.parquet"), "--edges", str(folder / "links.parquet")]
    columns = [
        "--id",
        "user",
        "--src",
        "from",
        "--dst",
        "to",
        "--features",
        "f_*",
        "--label",
        "kind",
        "--split",
        "part",
    ]
    return [*places, *columns, "--weight", "amount", *more]


def test_tables_are_trained_on_and_predicted_and_run_again(tables, capsys):
    model, log = tables / "model", tables / "log"
    common = words(tables, "--engine", "local")
    trained = ["--epochs", "2", "--save", str(model), "--log-dir", str(log)]
    assert main(["train", *common, *trained]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f"on {tables}/users.parquet and {tables}/links.parquet: 40 vertices, 80 edges, 2 features" in first
    assert first.endswith("weights: column amount")
    assert main(["predict", *common, "--model-dir", str(model), "--out", str(tables / "out.parquet")]) == 0
    found = pd.read_parquet(tables / "out.parquet")
    assert set(found["prediction"]) <= {"shop", "person"}
    assert main(["rerun", str(log), "--quiet"]) == 0
    assert "the same to the last bit" in capsys.readouterr().out
    assert json.loads((log / "command.json").read_text())["features"] == "f_*"


def test_explain_has_a_format_of_its_own(tables, capsys):
    assert main(["explain", *words(tables, "--engine", "local", "--table-format", "parquet")]) == 0
    assert "weights: column amount" in capsys.readouterr().out


def test_the_best_model_of_a_grid_is_told_with_the_graphs_words(tables, capsys):
    (tables / "grid.toml").write_text("[model]\nhidden = [2, 4]\n")
    assert (
        main(["tune", *words(tables, "--grid", str(tables / "grid.toml"), "--epochs", "1", "--engine", "local")]) == 0
    )
    best = capsys.readouterr().out.splitlines()[-1]
    assert "lotan train" in best
    assert f"--vertices {tables}/users.parquet --edges {tables}/links.parquet" in best
    assert "--features 'f_*'" in best


def test_a_model_may_be_in_a_file(tables, capsys):
    (tables / "beside.py").write_text("WIDTH = 1\n")
    (tables / "mine.py").write_text(
        MODEL.replace("return torch.nn.Linear(in_channels, out_channels)", "return Model(in_channels, out_channels)")
        + "\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self, width, outputs):\n"
        "        super().__init__()\n"
        "        self.lin = torch.nn.Linear(width, outputs)\n\n"
        "    def forward(self, x, graph):\n"
        "        return self.lin(x)\n"
    )
    model = f"{tables}/mine.py:make"
    assert main(["train", *words(tables, "--model", model, "--epochs", "1", "--engine", "local", "--quiet")]) == 0
    for name, said in ((f"{tables}/none.py:make", "there is no file"), (f"{tables}/mine.py:none", "has no attribute")):
        assert main(["train", *words(tables, "--model", name)]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--vertices", "a.parquet"], "--vertices and --edges go together"),
        (["--graph", "digits", "--edges", "a.parquet"], "--vertices and --edges go together"),
        (["--vertices", "no/users.parquet", "--edges", "no/links.parquet"], "there is no such file"),
        (["--graph", "digits", "--label", "kind"], "digits is built in, and has no columns to name"),
    ],
)
def test_places_that_do_not_fit_are_one_line(given, said, capsys):
    assert main(["train", *given, "--engine", "local"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.spark
def test_a_table_of_the_catalog_is_read_by_the_session(spark, tables, capsys):
    for name in ("users", "links"):
        spark.read.parquet(str(tables / f"{name}.parquet")).createOrReplaceTempView(f"options_{name}")
    given = words(tables, "--engine", "local", "--epochs", "1")
    given[1], given[3] = "options_users", "SELECT * FROM options_links WHERE amount > 0"
    try:
        assert main(["train", *given]) == 0
        assert "40 vertices, 80 edges" in capsys.readouterr().out
        assert spark.range(1).count() == 1  # the session was there before, and stays
    finally:
        for name in ("users", "links"):
            spark.catalog.dropTempView(f"options_{name}")


def test_classes_that_are_stored_as_floats_are_classes_if_the_task_says_so(tmp_path, capsys):
    random = np.random.default_rng(0)
    vertices = pd.DataFrame({"id": np.arange(30), "features": list(random.normal(size=(30, 3))), "split": "train"})
    vertices["label"] = random.integers(0, 3, 30).astype(float)
    vertices.to_parquet(tmp_path / "vertices.parquet")
    pd.DataFrame({"src": random.integers(0, 30, 60), "dst": random.integers(0, 30, 60)}).to_parquet(
        tmp_path / "edges.parquet"
    )
    common = ["train", "--graph", str(tmp_path), "--engine", "local", "--epochs", "1"]
    assert main(common) == 0
    assert "mse" in capsys.readouterr().out
    assert main([*common, "--task", "classification"]) == 0
    assert "accuracy" in capsys.readouterr().out
