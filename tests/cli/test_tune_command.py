"""`lotan tune` as a user meets it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

import lotan
from lotan.cli import main
from lotan.tuning.search_names import SEARCHES

GRID = """
epochs = 3
[model]
hidden = [4, 8]
[optimizer]
lr = [0.01]
"""


@pytest.fixture
def grid(tmp_path) -> str:
    (tmp_path / "grid.toml").write_text(GRID)
    return str(tmp_path / "grid.toml")


def test_it_trains_writes_and_says_how_to_train_the_best_alone(grid, tmp_path, capsys):
    report, page, best, alone = (tmp_path / name for name in ("tune.json", "tune.html", "best", "alone.json"))
    words = ["--graph", "digits", "--grid", grid, "--engine", "local", "--eval-every", "2"]
    words += ["--log-dir", str(tmp_path / "runs"), "--monitor", "loss", "--disable", "push_down", "--no-rgb"]
    assert main(["tune", *words, "--report", str(report), "--html", str(page), "--save-best", str(best)]) == 0
    shown = capsys.readouterr()
    found = json.loads(report.read_text())
    lines = shown.out.splitlines()
    assert lines[0].split()[:2] == ["trial", "hidden"]
    assert [line.split()[0] for line in lines[1:3]] == [str(trial["number"]) for trial in found["trials"]]
    assert "model 0 (hidden 4)  epoch 3/3" in shown.err
    assert page.read_text().startswith("<!doctype html>")
    assert len(list(tmp_path.glob("runs/model-000[01]/report.json"))) == 2
    assert list(lotan.load(best).predict(lotan.Graph.read("digits"), engine="local").columns)[:2] == [
        "id",
        "prediction",
    ]
    command = shlex.split(lines[-1].partition("lotan ")[2])
    assert command[:12] == shlex.split(
        "train --graph digits --eval-every 2 --monitor loss --engine local --disable push_down --no-rgb"
    )
    assert main([*command, "--quiet", "--report", str(alone)]) == 0
    single = json.loads(alone.read_text())
    assert {name: single[name] for name in ("metrics", "best_epoch")} == {
        name: found["trials"][0][name] for name in ("metrics", "best_epoch")
    }
    assert "push_down" not in single["plan"]["rules_fired"]


def test_quiet_is_quiet(grid, capsys):
    words = ["tune", "--graph", "digits", "--grid", grid, "--engine", "local", "--quiet", "--max-models-per-batch", "1"]
    assert main(words) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--grid", "no-such.toml"], "the grid no-such.toml cannot be read"),
        (["--resume"], "--checkpoint-dir"),
        (["--report", "/"], "--report / is a directory"),
        (["--trials", "3"], "'grid' takes all"),
        (["--epochs", "5"], "sets epochs, and so does an option"),
        (["--monitor", "beauty"], "unknown metric 'beauty'"),
        (["--graph", "no-such-graph"], "no-such-graph"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(words, expected, grid, capsys):
    assert main(["tune", "--graph", "digits", "--grid", grid, *words]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lotan: ")
    assert expected in shown
    assert shown.count("\n") == 1


def test_wrong_usage_is_status_2(capsys):
    for words in (["--max-models-per-batch", "few"], ["--search", "annealing"]):
        with pytest.raises(SystemExit) as exited:
            main(["tune", "--graph", "digits", "--grid", "grid.toml", *words])
        assert exited.value.code == 2
        assert words[0] in capsys.readouterr().err


def test_all_diverged_is_status_1_and_the_report_is_there(tmp_path, capsys):
    (tmp_path / "grid.toml").write_text('epochs = 2\n[optimizer]\nname = "sgd"\nlr = [1e30]\n')
    words = ["--graph", "digits", "--grid", str(tmp_path / "grid.toml"), "--engine", "local", "--quiet"]
    assert main(["tune", *words, "--report", str(tmp_path / "tune.json")]) == 1
    assert "none of 1 models can be used" in capsys.readouterr().err
    assert json.loads((tmp_path / "tune.json").read_text())["trials"][0]["state"] == "diverged"


@pytest.mark.processes
def test_help_loads_no_torch_and_knows_every_search():
    script = (
        "import sys, lotan.cli\n"
        "try: lotan.cli.main(['tune', '--help'])\n"
        "except SystemExit: pass\n"
        "print('LOADED', sorted({'torch', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "LOADED []" in done.stdout
    assert f"--search {{{','.join(SEARCHES)}}}" in done.stdout
