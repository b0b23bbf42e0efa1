"""`lotan rerun` trains what a run's folder holds, and says whether it came to the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lotan.cli import main
from tests.cli.test_by_hand import save_graph

pytestmark = pytest.mark.thorough

TRAIN = ["train", "--model", "gcn", "--hidden", "8", "--epochs", "3", "--engine", "local", "--quiet"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run that was started somewhere else, on a graph with a relative path."""
    save_graph(str(tmp_path / "graph"))
    with monkeypatch.context() as there:
        there.chdir(tmp_path)
        assert main([*TRAIN, "--graph", "graph", "--seed", "5", "--lr", "0.02", "--log-dir", "first"]) == 0
    return tmp_path / "first"


def test_a_rerun_is_the_same_to_the_last_bit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = folder.with_name("again")
    assert main(["rerun", str(folder), "--log-dir", str(again), "--quiet"]) == 0
    assert capsys.readouterr().out == "the same to the last bit: losses and metrics of 3 epochs\n"
    assert json.loads((again / "command.json").read_text()) == json.loads((folder / "command.json").read_text())


def test_what_is_not_the_same_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = json.loads((folder / "command.json").read_text())
    (folder / "command.json").write_text(json.dumps(command | {"lr": 0.05}))
    environment = json.loads((folder / "environment.json").read_text())
    environment["versions"]["torch"] = "1.0"
    (folder / "environment.json").write_text(json.dumps(environment))
    assert main(["rerun", str(folder), "--quiet"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("not the same: from epoch ")
    assert second.startswith("other versions than then: torch 1.0, now ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "holds no command.json"),
        ("{", "is no JSON"),
        ("[]", "holds no options"),
        ('{"from_another_version": 1}', "has from_another_version"),
    ],
)
def test_a_folder_that_cannot_be_run_is_one_line(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "command.json").write_text(content)
    assert main(["rerun", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


def test_a_model_of_a_search_is_rerun_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that the search stopped; not one with a setting that `lotan train` has no option for."""
    save_graph(str(tmp_path / "graph"))
    grid = '[model]\nhidden = 4\ndropout = 0.0\nnorm = ["none", "layer_norm"]\n[optimizer]\nlr = [0.001, 0.01, 0.1]'
    (tmp_path / "grid.toml").write_text(grid)
    with monkeypatch.context() as there:
        there.chdir(tmp_path)
        words = ["--graph", "graph", "--grid", "grid.toml", "--log-dir", "runs", "--engine", "local", "--quiet"]
        assert main(["tune", *words, "--monitor", "loss", "--search", "halving", "--epochs", "12"]) == 0
    found = {path.parent.name for path in tmp_path.glob("runs/*/command.json")}
    trained = {path.name: len(lines(path)) for path in tmp_path.glob("runs/*")}
    assert found == {name for name in trained if "norms.0.weight" not in weights(tmp_path / "runs" / name)}
    assert len(found) == 3
    assert min(trained[name] for name in found) < 12
    for name in found:
        assert main(["rerun", str(tmp_path / "runs" / name), "--quiet"]) == 0
        assert capsys.readouterr().out.startswith("the same to the last bit")


def lines(folder: Path) -> list[str]:
    return (folder / "epochs.jsonl").read_text().splitlines()


def weights(folder: Path) -> set[str]:
    return set(json.loads((folder / "configuration.json").read_text())["model"]["weights"])


def test_a_log_dir_that_is_taken_is_refused_before_the_graph_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "--graph", "nowhere", "--log-dir", str(folder)]) == 2
    assert "holds a run already" in capsys.readouterr().err
