"""What the README says can be run, runs; the files it names exist."""

from __future__ import annotations

import re
import shlex

import pytest
import torch

import lotan
from lotan.cli import main
from planner.rules import RULE_NAMES
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
PYTHON = [block for language, block in BLOCKS if language == "python"]
LINES = [line.partition("  #")[0] for language, block in BLOCKS if not language for line in block.split("\n")]


def test_quick_start_trains_predicts_and_saves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(PYTHON[0].replace("epochs=100", "epochs=3, progress=False"), names)
    assert len(names["run"].history) == 3
    predictions = lotan.load("model").predict(names["graph"], engine="local")
    assert list(predictions.columns) == ["id", "prediction", "probability"]


def test_own_layer_trains():
    block = next(block for block in PYTHON if "MessagePassing" in block)
    names = {"lotan": lotan}
    exec(block, names)
    torch.manual_seed(0)
    graph = lotan.Graph.read("digits")
    run = lotan.Trainer(names["Damped"](64, 10), graph, epochs=3, engine="local", progress=False).fit()
    assert run.history[-1]["loss"] < run.history[0]["loss"]


def test_grid_trains_and_predicts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = next(block for _, block in BLOCKS if "<<'END'" in block)
    written, commands = block.partition("<<'END'\n")[2].split("\nEND\n")
    (tmp_path / "grid.toml").write_text(written.replace("epochs = 30", "epochs = 2"))
    for line in commands.splitlines():
        assert main([*shlex.split(line)[1:], "--engine", "local"]) == 0
    assert {"tune.html", "tune.json", "model", "predictions.parquet"} <= {path.name for path in tmp_path.iterdir()}


def test_notebook_shows_its_plan():
    block = next(block for block in PYTHON if "trainer.plan  #" in block)
    names = {}
    exec(block.replace("epochs=20", "epochs=1, progress=False"), names)
    assert "<iframe" in names["trainer"].plan._repr_html_()
    assert len(names["run"].history) == 1


def test_script_for_spark_submit_is_the_example():
    lines = [line for line in (ROOT / "examples" / "train.py").read_text().split("\n") if line]
    block = next(block for block in PYTHON if "sys.exit" in block)
    assert [line for line in block.split("\n") if line] == lines
    assert len(lines) == 3


def test_commands_have_the_options_the_readme_gives_them(capsys):
    commands = [shlex.split(line) for line in LINES if line.startswith("lotan ") and "COMMAND" not in line]
    assert {words[1] for words in commands} == {
        "train",
        "tune",
        "explain",
        "predict",
        "router",
        "worker",
        "doctor",
        "datasets",
    }
    for words in commands:
        with pytest.raises(SystemExit) as exited:
            main([*words[1:], "--help"])
        assert exited.value.code == 0
        shown = capsys.readouterr().out
        assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in shown] == []


def test_each_point_of_the_tour_names_a_file():
    tour = README.partition("each names the file to read:")[2].partition("## Graphs")[0]
    points = re.split(r"^\d+\. ", tour, flags=re.MULTILINE)[1:]
    assert len(points) == 10
    assert [point for point in points if not re.search(r"`(?:lotan|planner)/", point)] == []
    assert {"`lotan/epochs.py`", "`lotan/learner.py`"} <= set(re.findall(r"`[^`]+`", tour))


def test_files_and_rules_named_exist():
    named = set(re.findall(r"`((?:lotan|planner|messenger|examples)/[\w/]*(?:\.py)?)`", README))
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert [rule for rule in RULE_NAMES if f"`{rule}`" not in README] == []
