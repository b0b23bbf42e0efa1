"""`lotan train --task link`: its options are those of LinkPrediction, and graphs without features train learned rows."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from lotan.cli import main, train
from lotan.cli.options import task_of
from lotan.errors import ConfigurationError
from lotan.graph.graph import Graph
from lotan.hosts.jar import JAR
from lotan.results.trained_model import load
from lotan.settings.tasks import LinkPrediction

LINES = {"train": ["a\tlikes\tb", "b\tlikes\tc", "c\tknows\ta", "d\tknows\ta", "d\tlikes\tb"],
         "valid": ["a\tlikes\tc"], "test": ["d\tlikes\tc"]}  # fmt: skip


@pytest.fixture
def triples(tmp_path: Path) -> Path:
    for name, lines in LINES.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def read(*words: str):
    parser = argparse.ArgumentParser()
    train.add_options(parser)
    return task_of(parser.parse_args(["--graph", "digits", *words]))


def test_options_are_the_arguments_of_the_task() -> None:
    words = "--decoder complex --negatives 7 --negative-sampling degree --filtered --link-loss bce --exclude-targets no"
    found = read("--task", "link", *words.split(), "--link-fractions", "0.1,0.2", "--link-seed", "3")
    assert found == LinkPrediction("complex", 7, "bce", "degree", True, False, (0.1, 0.2), 3)
    assert read("--task", "link", "--negatives", "all") == LinkPrediction(negatives="all")
    assert read("--task", "regression") == "regression"
    with pytest.raises(ConfigurationError, match="--negatives is for a link task: add --task link"):
        read("--negatives", "7")
    with pytest.raises(ConfigurationError, match="got negatives='many'"):
        read("--task", "link", "--negatives", "many")


def test_a_knowledge_graph_trains_and_is_saved(triples: Path, capsys) -> None:
    words = ["--task", "link", "--decoder", "distmult", "--negatives", "3", "--epochs", "2", "--optimizer", "adagrad"]
    rows = ["--model", "lotan.nn:LearnedRows", "--hidden", "4", "--batch-size", "2", "--fanouts", "none"]
    places = ["--save", str(triples / "model"), "--report", str(triples / "report.json")]
    assert main(["train", "--graph", str(triples), *words, *rows, "--weight-decay", "0", *places]) == 0
    assert "mini-batches of batch size 2 links" in capsys.readouterr().out
    report = json.loads((triples / "report.json").read_text())
    assert report["task"] == "link"
    assert set(report["metrics"]) == {"val", "test"}
    assert (triples / "model" / "model.json").is_file()
    assert main(["train", "--graph", str(triples), *words]) == 2
    assert "learn rows in their place: --model lotan.nn:LearnedRows" in capsys.readouterr().err


def test_triples_are_read_with_their_splits_and_broken_lines_named(triples: Path) -> None:
    from lotan.errors import GraphError

    _, edges = Graph.read(triples).linked_columns()
    assert edges.split.tolist() == [0, 0, 0, 0, 0, 1, 2]
    assert edges.relation.tolist()[:3] == ["likes", "likes", "knows"]
    (triples / "test.txt").write_text("")
    (triples / "valid.txt").write_text("a\tlikes\tnext\x85line\r\n")
    assert Graph.read(triples).linked_columns()[1].dst.tolist()[5:] == ["next\x85line"]
    (triples / "valid.txt").write_text("a\tlikes\tc\na likes d\n")
    with pytest.raises(GraphError, match=r"valid.txt: line 2 has 1 texts; expected three"):
        Graph.read(triples)
    (triples / "valid.txt").unlink()
    with pytest.raises(GraphError, match="cannot be read"):
        Graph.read(triples)


def test_a_saved_model_scores_files_of_pairs_and_ranks(triples: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("lotan.results.link_files.PIECE", 2)  # the file is read in several pieces
    model, out = str(triples / "model"), str(triples / "out.parquet")
    words = [
        "--graph",
        str(triples),
        "--task",
        "link",
        "--decoder",
        "distmult",
        "--negatives",
        "3",
        "--batch-size",
        "2",
    ]
    words += ["--model", "lotan.nn:LearnedRows", "--hidden", "4", "--fanouts", "none", "--epochs", "2"]
    assert main(["explain", *words]) == 0
    assert "ScorePairs" in capsys.readouterr().out
    assert main(["train", *words, "--weight-decay", "0", "--save", model, "--quiet"]) == 0
    pairs = pd.DataFrame({"src": list("abcda"), "dst": list("bcdac"), "relation": ["likes"] * 5, "note": range(5)})
    pairs.to_csv(triples / "pairs.csv", index=False)
    predict = ["predict", "--graph", str(triples), "--model-dir", model, "--out", out]
    assert main([*predict, "--pairs", str(triples / "pairs.csv")]) == 0
    trained, graph = load(model), Graph.read(triples)
    found, given = pd.read_parquet(out), pairs.drop(columns="note")
    pd.testing.assert_frame_equal(found[["src", "dst", "relation", "note"]], pairs)
    assert found["score"].tolist() == trained.predict_links(graph, given)["score"].tolist()
    queries = given.drop(columns="dst")
    queries.to_parquet(triples / "queries.parquet")
    ranks = [*predict, "--pairs", str(triples / "queries.parquet"), "--rank", "2"]
    for more, known in (([], False), (["--exclude-known"], True)):
        assert main([*ranks, *more]) == 0
        pd.testing.assert_frame_equal(pd.read_parquet(out), trained.rank(graph, queries, 2, exclude_known=known))
    for words, error in (
        ([], "was trained on links: give the pairs to score by --pairs"),
        (["--pairs", str(triples / "none.csv")], "none.csv: there is no such file"),
        (["--pairs", str(triples / "queries.parquet")], "pairs: there is no column 'dst'"),
        (["--pairs", str(triples / "pairs.csv"), "--exclude-known"], "give --rank K too"),
    ):
        capsys.readouterr()
        assert main([*predict, *words]) == 2
        assert error in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_a_knowledge_graph_trains_on_blocks(triples: Path, spark: SparkSession) -> None:
    """From a folder of tables, which Spark opens."""
    folder = str(triples / "tables")
    Graph.read(triples).save(folder)
    words = [
        "train",
        "--graph",
        folder,
        "--task",
        "link",
        "--negatives",
        "3",
        "--epochs",
        "1",
        "--model",
        "lotan.nn:LearnedRows",
    ]
    words += ["--hidden", "4", "--batch-size", "2", "--fanouts", "none", "--weight-decay", "0"]
    reports = [triples / f"{engine}.json" for engine in ("blocks", "local")]
    for report in reports:
        more = ["--workers", "1"] if report.stem == "blocks" else []
        assert main([*words, "--engine", report.stem, *more, "--report", str(report)]) == 0
    blocks, local = (json.loads(report.read_text()) for report in reports)
    assert blocks["engine"] == "blocks"
    assert blocks["epochs"][0]["loss"] == pytest.approx(local["epochs"][0]["loss"], rel=1e-5)
