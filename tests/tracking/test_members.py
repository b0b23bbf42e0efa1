"""Models of a batch are tracked one by one, each as the run that it would be alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import lotan
from lotan.errors import ConfigurationError
from lotan.tracking import MemberTrackers, Tracker
from lotan.tracking.tracker import Trackers
from tests.tracking.runs import trainer


def members() -> list[lotan.Member]:
    """Of different lengths; the last one diverges."""
    models = [trainer().model for _ in range(3)]
    return [
        lotan.Member(models[0], epochs=2, name="short"),
        lotan.Member(models[1], epochs=3, name="long"),
        lotan.Member(models[2], optimizer=lotan.SGD(lr=1e30), epochs=3, name="lost"),
    ]


def train(folder: Path | None, **options: Any) -> lotan.ModelBatch:
    options = {"engine": "local", "progress": False, "log_dir": folder, **options}
    with lotan.ModelBatch(trainer().graph, members(), **options) as batch:
        batch.train()
    return batch


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]


def test_each_has_a_folder_of_its_own(tmp_path: Path) -> None:
    batch = train(tmp_path)
    for number in (0, 1):
        folder = tmp_path / f"model-000{number}"
        assert lines(folder) == batch.states[number].history
        configuration = json.loads((folder / "configuration.json").read_text())
        assert configuration["settings"]["epochs"] == len(batch.states[number].history)
        saved = lotan.load(folder / "model").weights
        assert all(torch.equal(saved[name], weight) for name, weight in batch.run_of(number).model.weights.items())
    assert not (tmp_path / "model-0002" / "report.json").exists(), "it diverged"


def test_what_was_measured_of_a_batch_is_beside_no_estimate_of_one_model(tmp_path: Path) -> None:
    train(tmp_path)
    report = json.loads((tmp_path / "model-0000" / "report.json").read_text())
    assert report["measured"] == "in a batch"
    assert [name for name in report["plan"] if name.startswith("estimated")] == []
    alone = trainer().fit().report
    assert alone["measured"] == "alone"
    assert {"estimated_peak_bytes", "estimated_epoch_seconds"} < set(alone["plan"])
    assert set(report) == set(alone)


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(ConfigurationError, match=r"model-0000 holds a run already"):
        train(tmp_path)


def stop_in_between(folder: Path) -> None:
    options: dict[str, Any] = {"engine": "local", "progress": False, "log_dir": folder}
    with lotan.ModelBatch(trainer().graph, members(), **options) as batch:
        batch.train(upto=2)  # all epochs of the first model
        raise ZeroDivisionError


def test_an_error_in_between_finishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        stop_in_between(tmp_path)
    assert len(lines(tmp_path / "model-0000")) == 2
    assert not list(tmp_path.glob("*/report.json"))


def test_mlflow_has_a_run_for_each_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "tests")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    try:
        train(None, mlflow=True)
        client = mlflow.tracking.MlflowClient()
        found = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    finally:
        mlflow.set_tracking_uri(before)
    assert {one.info.run_name: one.info.status for one in found} == {
        "short": "FINISHED",
        "long": "FINISHED",
        "lost": "FAILED",
    }


def test_one_that_fails_to_close_leaves_none_open():
    closed = []

    class Open(Tracker):
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "full disk":
                raise OSError("no space left")

    members = MemberTrackers()
    members._open = {0: Trackers([Open("a"), Open("full disk"), Open("b")]), 1: Open("c")}
    with pytest.raises(OSError, match="no space"):
        members.close()
    assert sorted(closed) == ["a", "b", "c", "full disk"]
    members.close()
    assert len(closed) == 4
