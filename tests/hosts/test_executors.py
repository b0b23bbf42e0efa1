"""The Python of Spark's executors: one that lacks the package is found before training, with the line that helps."""

from __future__ import annotations

import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import pytest
from pyspark.sql import SparkSession

import lotan
from lotan.cli.checks import check_executors_python
from lotan.errors import EngineError
from lotan.hosts import executors
from lotan.hosts.executors import check_executors


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python without any package."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    return str(tmp_path / "bare" / "bin" / "python")


@pytest.fixture
def unchecked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The session, as if it had not been checked yet."""
    monkeypatch.setattr(executors, "_CHECKED", WeakSet())
    return spark


@pytest.mark.spark
def test_a_python_without_the_package_is_found_before_training(
    unchecked: SparkSession, bare_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = unchecked.sparkContext
    rows = [(1, [0.0], 0, "train"), (2, [1.0], 1, "val")]
    vertices = unchecked.createDataFrame(rows, "id int, features array<float>, label int, split string")
    graph = lotan.Graph(vertices, unchecked.createDataFrame([(1, 2)], "src int, dst int"))
    trainer = lotan.Trainer(lotan.nn.GCN(1, 2, 1, 2), graph, engine="rows", epochs=1, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(context, "pythonExec", bare_python)
        with pytest.raises(EngineError, match=r"cannot import lotan: No module named") as found:
            trainer.fit()
        assert bare_python in str(found.value)
        assert f'os.environ["PYSPARK_PYTHON"] = "{sys.executable}"' in str(found.value)
        assert context not in executors._CHECKED
        patch.setattr(context, "pythonExec", "/nowhere/python")
        with pytest.raises(EngineError, match=r"run no Python task: .*Cannot run program \"/nowhere/python\""):
            check_executors(unchecked)
    with monkeypatch.context() as patch:
        patch.setattr(executors, "__version__", "9.9")
        with pytest.raises(EngineError, match=rf"has lotan {lotan.__version__}, and this is 9\.9"):
            check_executors(unchecked)
    check_executors(unchecked)
    assert context in executors._CHECKED
    monkeypatch.setattr(context, "pythonExec", "/nowhere/python")
    check_executors(unchecked)  # is not asked again


def test_on_a_cluster_the_advice_is_about_every_host() -> None:
    assert "--conf spark.pyspark.python=PATH" in executors.advice("spark://host:7077")


def test_doctor_finds_it(bare_python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_executors_python()[0].status == "ok"
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", bare_python)
    found = check_executors_python()[0]
    assert found.status == "warning"
    assert "No module named" in found.found
    assert sys.executable in found.mend
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    assert "there is no /nowhere/python" in check_executors_python()[0].found
