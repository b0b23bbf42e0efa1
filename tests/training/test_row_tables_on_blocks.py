"""Learned rows in row tables on blocks: bit for bit the weights and the optimizer's state of rows in the trainer."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from pyspark.sql import SparkSession

import lotan
from lotan.hosts.jar import JAR
from tests.training.test_links_on_blocks import Classes, Embedded
from tests.training.test_links_on_blocks import tables as link_tables
from tests.training.test_mini_batches_on_blocks import in_spark, tables
from tests.training.test_row_tables import assert_same_bits, at_batch, repaired, started

__all__ = ["repaired", "started"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar"),
]

SETTINGS: dict[str, Any] = {"engine": "blocks", "workers": 2, "partitions": 3, "epochs": 2, "progress": False}


def classified(spark: SparkSession, folder: Path, **options: Any) -> lotan.results.run.Run:
    """Train on labels, by learned rows and features of vertices with texts as ids."""
    torch.manual_seed(0)
    graph, regime = in_spark(spark, tables(weighted=False)), lotan.MiniBatch(7, (3, 2), seed=4)
    trained = {"regime": regime, "optimizer": lotan.Adam(lr=0.05), "checkpoint_dir": folder, **SETTINGS, **options}
    return lotan.Trainer(Classes(), graph, **trained).fit()


def linked(spark: SparkSession, folder: Path, **options: Any) -> lotan.results.run.Run:
    """Train on links with relations, by learned rows."""
    torch.manual_seed(0)
    graph = in_spark(spark, link_tables())
    task = lotan.LinkPrediction(decoder="distmult", negatives=15, seed=4)
    regime = lotan.MiniBatch(32, (2, 3), seed=9)
    trained = {"task": task, "regime": regime, "optimizer": lotan.Adagrad(lr=0.1), "checkpoint_dir": folder}
    return lotan.Trainer(Embedded(), graph, **trained, **SETTINGS, **options).fit()


@pytest.mark.nightly  # by day on local
@pytest.mark.parametrize("asynchrony", ["optimistic", "none"])
@pytest.mark.parametrize("train", [classified, linked])
def test_rows_in_tables_train_as_rows_in_the_trainer(
    train: Any, asynchrony: str, spark: SparkSession, tmp_path: Path, repaired: list[int]
) -> None:
    here = train(spark, tmp_path / "here")
    there = train(spark, tmp_path / "there", tables=2, asynchrony=asynchrony)
    assert_same_bits(tmp_path / "here", tmp_path / "there")
    figures = there.report["mini_batches"]
    assert figures["batches"] == here.report["mini_batches"]["batches"]
    assert figures["row_tables"] == 2
    assert figures["rows_repaired"] == repaired[-1]
    assert (repaired[-1] > 0) == (asynchrony == "optimistic")


@pytest.mark.nightly  # by day on local
@pytest.mark.chaos
def test_a_killed_table_changes_no_bit(
    spark: SparkSession, tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    classified(spark, tmp_path / "here")
    at_batch(monkeypatch, {3}, lambda number: os.kill(started[-1].pids[0], signal.SIGKILL))
    classified(spark, tmp_path / "there", tables=2)
    assert_same_bits(tmp_path / "here", tmp_path / "there")


def test_a_run_that_fails_within_an_epoch_waits_for_nobody(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are listed and sent ahead when the step fails."""

    def failing(number: int) -> None:
        raise RuntimeError("no more")

    at_batch(monkeypatch, {2}, failing)
    with pytest.raises(RuntimeError, match="no more"):
        classified(spark, tmp_path / "there", tables=1)
