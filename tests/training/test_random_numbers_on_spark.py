"""Noise, feature masks and dropped edges on blocks and rows: the numbers of the local engine."""

from __future__ import annotations

import pytest
import torch
from pyspark.sql import SparkSession

from lotan.hosts.jar import JAR
from tests.training.test_random_numbers import _model
from tests.training.test_trainer import Data
from tests.training.test_trainer_rows import _fit

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "engine",
    [
        "rows",
        pytest.param("blocks", marks=pytest.mark.skipif(not JAR.is_file(), reason="there is no jar")),
    ],
)
def test_the_same_as_on_local(spark: SparkSession, engine: str) -> None:
    graph = Data().graph
    expected, found = (_fit(graph, _model(), engine=one, epochs=2) for one in ("local", engine))
    assert found.report["engine"] == engine
    assert [entry["loss"] for entry in found.history] == pytest.approx(
        [entry["loss"] for entry in expected.history], rel=1e-5
    )
    for name, weights in found.model.weights.items():
        torch.testing.assert_close(weights, expected.model.weights[name], rtol=1e-4, atol=1e-5, msg=name)
