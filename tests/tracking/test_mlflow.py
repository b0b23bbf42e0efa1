"""MLflow's own client finds what a run was, in a store of files."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import lotan
from lotan.errors import ConfigurationError, EngineError
from lotan.tracking import mlflow as ours
from tests.tracking.runs import EPOCHS, train


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "tests")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    yield mlflow.tracking.MlflowClient()
    mlflow.set_tracking_uri(before)


def runs(client: Any) -> list[Any]:
    return list(client.search_runs([client.get_experiment_by_name("tests").experiment_id]))


def test_a_run_has_parameters_figures_plan_report_and_model(client: Any, tmp_path: Path) -> None:
    run = train(mlflow=True)
    (logged,) = runs(client)
    assert logged.info.status == "FINISHED"
    assert logged.data.params["settings.optimizer.name"] == "Adam"
    assert logged.data.params["engine"] == "local"
    history = client.get_metric_history(logged.info.run_id, "loss/step")
    assert [(point.step, point.value) for point in history] == [(e["epoch"], e["loss"]) for e in run.history]
    assert logged.data.metrics["best/accuracy/val"] == run.metrics["val"]["accuracy"]
    assert logged.data.metrics["best/epoch"] == run.best_epoch
    got = Path(client.download_artifacts(logged.info.run_id, "", str(tmp_path)))
    assert (got / "plan.html").read_text().startswith("<!doctype html>")
    assert len(json.loads((got / "report.json").read_text())["epochs"]) == EPOCHS
    assert lotan.load(got / "model").weights.keys() == run.model.weights.keys()


def test_a_run_that_fails_is_said_to_have_failed(client: Any) -> None:
    with pytest.raises(EngineError, match="diverged"):
        train(mlflow=True, optimizer=lotan.SGD(lr=1e30))
    assert [one.info.status for one in runs(client)] == ["FAILED"]


def test_a_store_that_goes_away_ends_the_logging_and_not_the_training(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("the server has gone\nand more")

    monkeypatch.setattr(ours.Mlflow, "_figures", fail)
    with caplog.at_level(logging.WARNING, "lotan"):
        assert len(train(mlflow=True).history) == EPOCHS
    assert [record.getMessage() for record in caplog.records if record.name.startswith("lotan")] == [
        "MLflow is told no more of this run: the server has gone"
    ]


def test_a_store_that_cannot_be_is_told_before_the_first_epoch(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "")
    with pytest.raises(EngineError, match="does not take the run"):
        train(mlflow=True)


@pytest.mark.parametrize(
    ("store", "reason"), [("file", "MLFLOW_ALLOW_FILE_STORE"), ("nonsense://x", "unsupported URI")]
)
def test_a_store_of_a_kind_that_mlflow_refuses_is_one_line(
    store: str, reason: str, client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    pytest.importorskip("mlflow").set_tracking_uri(f"file:{tmp_path / 'other'}" if store == "file" else store)
    with pytest.raises(ConfigurationError, match=f"MLflow cannot use its store at .*{reason}") as raised:
        train(mlflow=True)
    assert "\n" not in str(raised.value)


def test_without_mlflow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'lotan\[mlflow\]'"):
        train(mlflow=True)
