"""A run's folder: whole at the end, of use before, and enough to run it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import lotan
from lotan.errors import ConfigurationError, EngineError
from lotan.tracking import plain_settings
from tests.tracking.runs import EPOCHS, train, trainer

pytestmark = pytest.mark.thorough


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]


def content(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def test_a_folder_holds_all_of_a_run(tmp_path: Path) -> None:
    run = train(log_dir=tmp_path, optimizer=lotan.SGD(lr=0.5))
    assert lines(tmp_path) == run.history
    assert content(tmp_path, "report.json") == json.loads(json.dumps(run.report))
    assert (tmp_path / "plan.txt").read_text() == trainer(log_dir=tmp_path / "other").explain(stage="all")
    assert (tmp_path / "plan.html").read_text().startswith("<!doctype html>")
    configuration, environment = content(tmp_path, "configuration.json"), content(tmp_path, "environment.json")
    assert configuration["settings"]["optimizer"]["name"] == "SGD"
    assert configuration["settings"]["epochs"] == EPOCHS
    assert configuration["model"]["class"] == "lotan.nn.models.GCN"
    assert configuration["graph"]["vertices"] == 30
    assert environment["packages"]["torch"] == environment["versions"]["torch"] == torch.__version__.partition("+")[0]
    saved = lotan.load(tmp_path / "model").weights
    assert all(torch.equal(weight, run.model.weights[name]) for name, weight in saved.items())


def test_the_initial_weights_are_those_before_the_first_step(tmp_path: Path) -> None:
    fresh = trainer(log_dir=tmp_path)
    before = {name: weight.clone() for name, weight in fresh.model.state_dict().items()}
    fresh.fit()
    kept = torch.load(tmp_path / "initial.pt", weights_only=True)
    assert all(torch.equal(kept[name], weight) for name, weight in before.items())


def test_lines_are_there_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.Adam, "step", failing_in(3, torch.optim.Adam.step))
    with pytest.raises(EngineError):
        train(log_dir=tmp_path)
    assert [line["epoch"] for line in lines(tmp_path)] == [1, 2]
    assert not (tmp_path / "report.json").exists()


def failing_in(call: int, real: Any) -> Any:
    calls = []

    def step(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise RuntimeError("value cannot be converted to type float without overflow")
        return real(*arguments, **keywords)

    return step


@pytest.mark.parametrize("dropout", [0.5, 0.0])  # with none, an epoch's metrics come with the pass after it
def test_a_resumed_run_leaves_the_lines_of_a_straight_one(tmp_path: Path, dropout: float) -> None:
    for folder, parts in (("straight", [4]), ("resumed", [2, 4])):
        for epochs in parts:
            places = {"log_dir": tmp_path / folder, "checkpoint_dir": tmp_path / f"{folder} checkpoints"}
            trainer(dropout, epochs=epochs, resume=True, **places).fit()
    straight, resumed = ([timeless(line) for line in lines(tmp_path / name)] for name in ("straight", "resumed"))
    assert resumed == straight
    assert len(straight) == 4


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.endswith("seconds")}


def test_the_folder_of_another_run_is_refused_before_any_work(tmp_path: Path) -> None:
    train(log_dir=tmp_path)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    with pytest.raises(ConfigurationError, match="holds a run already"):
        train(log_dir=tmp_path)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="is a file"):
        train(log_dir=tmp_path / "file")


def test_secrets_of_the_environment_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    train(log_dir=tmp_path, epochs=1)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()]


def test_settings_are_plain_whatever_holds_them() -> None:
    settings = lotan.TrainerConfig(
        optimizer=lotan.Adam(groups={"convs.0": {"lr": 0.1}}),
        class_weights=torch.tensor([1.0, 2.0]),
        keys=Path("keys"),
        disable=("push_down",),
    )
    plain = plain_settings(settings)
    assert json.loads(json.dumps(plain)) == plain
    assert plain["class_weights"] == [1.0, 2.0]
    assert plain["keys"] == "keys"
    assert plain["optimizer"]["groups"] == {"convs.0": {"lr": 0.1}}
