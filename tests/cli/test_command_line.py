"""The `lotan` command as a user meets it: help, exit statuses, one clear line for an error."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

import lotan
from lotan.cli import COMMANDS, _parser, explain, main, train
from lotan.cli.models import make_model
from tests.night import at_night

pytestmark = pytest.mark.thorough

# The names that other tools are written against.
TRAIN_OPTIONS = [
    "--graph",
    "--model",
    "--layers",
    "--hidden",
    "--dropout",
    "--heads",
    "--aggr",
    "--lr",
    "--weight-decay",
    "--optimizer",
    "--epochs",
    "--patience",
    "--eval-every",
    "--monitor",
    "--engine",
    "--plan",
    "--disable",
    "--no-rgb",
    "--workers",
    "--partitions",
    "--seed",
    "--master",
    "--checkpoint-dir",
    "--resume",
    "--resume-with",
    "--report",
    "--save",
    "--quiet",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as exited:
        main([command, "--help"])
    assert exited.value.code == 0
    assert f"usage: lotan {command}" in capsys.readouterr().out


def test_train_has_the_agreed_options(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    assert [option for option in TRAIN_OPTIONS if option not in shown] == []


@pytest.mark.parametrize("command", ["explain", "train", "tune"])
def test_help_fits_a_hundred_columns(command, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert ("\n" + 24 * " " + "  seed = [0, 1]\n" in shown) == (command == "tune"), "an example's lines stay"


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"]])
@pytest.mark.processes
def test_help_loads_neither_torch_nor_spark(words):
    script = (
        "import sys, lotan.cli\n"
        f"try: lotan.cli.main({words})\n"
        "except SystemExit: pass\n"
        "print('LOADED', sorted({'torch', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "LOADED []" in done.stdout


def test_training_on_arrays_loads_no_library_that_it_has_no_use_for():
    """Each takes a third of a second or more of every start."""
    script = (
        "import sys, lotan.cli\n"
        "lotan.cli.main(['train', '--graph', 'digits', '--engine', 'local', '--epochs', '1', '--quiet'])\n"
        "print('LOADED', sorted({'pandas', 'sklearn', 'scipy', 'pyspark', 'torch.export._trace'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=True)
    assert "LOADED []" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--graph", "no-such-graph"], "no-such-graph"),
        (["--graph", "digits", "--model", "gnc"], "unknown model 'gnc'"),
        (["--graph", "digits", "--model", "no_such_module:make"], "no_such_module"),
        (["--graph", "digits", "--model", "gcn", "--heads", "4"], "--heads 4 is for --model gat"),
        (["--graph", "digits", "--model", ":make"], "Empty module name"),
        (["--graph", "x" * 300], "too long"),
        (["--graph", "digits", "--engine", "spork"], "spork"),
        (["--graph", "digits", "--disable", "push_up"], "push_up"),
        (["--graph", "digits", "--resume"], "--checkpoint-dir"),
        (["--graph", "digits", "--resume-with", "lr=0.1"], "--checkpoint-dir"),
        (["--graph", "digits", "--checkpoint-dir", "c", "--resume-with", "seed=3"], "'seed', which identifies a run"),
        (["--graph", "digits", "--lr", "1e40"], "--lr 1e+40"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_status_2(words, expected, capsys):
    assert main(["train", *words]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lotan: ")
    assert expected in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train"], "--graph"),
        (["train", "--graph", "digits", "--epochs", "0"], "0 is not at least 1"),
        (["train", "--graph", "digits", "--dropout", "1"], "less than 1"),
        (["train", "--graph", "digits", "--seed", str(2**64)], "less than"),
        (["train", "--graph", "digits", "--lr", "fast"], "invalid number value: 'fast'"),
        (["train", "--graph", "digits", "--resume-with", "lr=fast"], "'lr=fast' is no name with a number"),
        (["train", "--graph", "digits", "--lr", "nan"], "nan is not a finite number"),
        (["train", "--graph", "digits", "--weight-decay", "inf"], "inf is not a finite number"),
        (["train", "--graph", "digits", "--epochs", "1" + "0" * 400], "less than 9.22337e+18"),
        (["trian"], "invalid choice"),
    ],
)
def test_wrong_usage_is_status_2(words, expected, capsys):
    with pytest.raises(SystemExit) as exited:
        main(words)
    assert exited.value.code == 2
    assert expected in capsys.readouterr().err


def test_train_writes_report_and_model_that_predict_reads(tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    report, model, out = tmp_path / "report.json", tmp_path / "model", tmp_path / "predictions.parquet"
    common = ["--graph", "digits", "--engine", "local"]
    trained = ["--epochs", "3", "--eval-every", "0", "--report", str(report), "--save", str(model)]
    assert main(["train", *common, *trained]) == 0
    assert "test  " in capsys.readouterr().out
    assert main(["predict", *common, "--model-dir", str(model), "--out", str(out)]) == 0
    predictions = pandas.read_parquet(out)
    written = json.loads(report.read_text())
    assert list(predictions.columns) == ["id", "prediction", "probability"]
    assert len(predictions) == written["graph"]["vertices"]
    assert len(written["epochs"]) == 3


def test_quiet_prints_nothing(capfd):
    assert main(["train", "--graph", "digits", "--engine", "local", "--epochs", "1", "--quiet"]) == 0
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "epoch" not in shown.err


def test_explain_prints_text_and_json(capsys):
    assert main(["explain", "--graph", "digits", "--engine", "local"]) == 0
    assert "push_down" in capsys.readouterr().out
    assert main(["explain", "--graph", "digits", "--engine", "local", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_explain_is_brief_unless_all_is_asked_for(capsys):
    words = ["explain", "--graph", "digits", "--engine", "local", "--model", "gcn", "--layers", "3"]
    shown = {}
    for more in ([], ["--verbose"], ["--stage", "all"]):
        assert main([*words, *more]) == 0
        shown[*more] = capsys.readouterr().out
    assert len(shown[()].splitlines()) <= 40
    assert "did not fire" not in shown[()]
    assert "did not fire" in shown["--verbose",]
    assert shown["--verbose",] == shown["--stage", "all"]


def test_train_says_in_five_lines_what_will_run(capfd, tmp_path):
    words = ["train", "--graph", "digits", "--model", "gcn", "--engine", "local", "--epochs", "2"]
    assert main([*words, "--report", str(tmp_path / "report.json")]) == 0
    shown = capfd.readouterr()
    before, after = shown.out.split("best epoch")[0].splitlines(), shown.err.split("epoch 1/2")[0].splitlines()
    assert [line.split(":")[0] for line in (*before, *after)] == ["model", "engine", "rules", "results", "memory"]
    assert before[0].startswith("model: gcn with 4,810 parameters, on digits: 1,797 vertices, ")
    assert before[1] == "engine: local (asked for)"
    assert "push_down" in before[2]
    assert before[3] == f"results: {tmp_path / 'report.json'}"
    assert "estimated for an epoch" in after[0]


def test_explain_draws_to_a_file_and_shows_one_stage(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common = ["explain", "--graph", "digits", "--engine", "local"]
    assert main([*common, "--format", "html"]) == 0
    assert capsys.readouterr().out == "the plan is in plan.html\n"
    assert (tmp_path / "plan.html").read_text().startswith("<!doctype html>")
    assert main([*common, "--format", "mermaid", "--stage", "rewritten", "--out", "plan.mmd"]) == 0
    assert (tmp_path / "plan.mmd").read_text().count("subgraph") == 1
    assert main([*common, "--format", "html", "--out", str(tmp_path)]) == 2
    assert "--out" in capsys.readouterr().err


def test_explain_sets_two_plans_side_by_side(capsys):
    common = ["explain", "--graph", "digits", "--engine", "local", "--hidden", "8"]
    assert main([*common, "--diff=--disable push_down --hidden 16"]) == 0
    shown = capsys.readouterr().out
    assert f"{'push_down':<24}{'fired 2x':<24}off" in shown
    assert "[V, 8]" in shown
    assert "[V, 16]" in shown
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("command", ["explain", "train"])
@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ([-1, -1, -1], "no vertex has one"),
        ([0, 10_000_000, 1], "up to 10,000,000 on 3 vertices"),
        ([0, 2**40, 1], "up to"),
    ],
)
def test_labels_that_no_model_can_be_made_for_are_refused_before_one_is(command, label, expected, tmp_path, capsys):
    graph = tmp_path / "graph.npz"
    arrays = {
        "num_nodes": 3,
        "edge_src": [0, 1],
        "edge_dst": [1, 2],
        "x": np.ones((3, 2)),
        "y": label,
        "train_idx": [0],
    }
    np.savez(graph, **{name: np.asarray(array) for name, array in arrays.items()})
    assert main([command, "--graph", str(graph), "--engine", "local"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "vertices.label" in line
    assert expected in line


def test_explain_makes_the_folder_that_it_writes_to(tmp_path, capsys):
    out = tmp_path / "a" / "b" / "plan.json"
    assert main(["explain", "--graph", "digits", "--engine", "local", "--format", "json", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["engine"] == "local"


def test_explain_plans_for_as_many_epochs_and_evaluations_as_train_would_make():
    given = ["--graph", "digits", "--model", "gcn", "--engine", "local"]
    for more in ([], ["--epochs", "3", "--eval-every", "0"]):
        shown, trained = (_parser([command]).parse_args([command, *given, *more]) for command in ("explain", "train"))
        with ExitStack() as stack:
            config = explain._trainer(shown, stack).config
        assert (config.epochs, config.eval_every) == (trained.epochs, trained.eval_every)


def test_explain_plans_for_the_optimizer_and_the_storage_that_train_would_have(tmp_path):
    given = ["--graph", "digits", "--engine", "local", "--optimizer", "adagrad", "--lr", "0.1", "--weight-decay", "0"]
    given += ["--batch-size", "64", "--fanouts", "4,4", "--order", "each_once(partitions=4, buffer=2)"]
    shown, trained = (
        _parser([command]).parse_args([command, *given, "--storage-dir", str(tmp_path)])
        for command in ("explain", "train")
    )
    with ExitStack() as stack:
        trainer = explain._trainer(shown, stack)
        assert trainer.config.optimizer == train.make_trainer(trained, trainer.graph).config.optimizer
    assert trainer.config.optimizer == lotan.Adagrad(lr=0.1, weight_decay=0.0)
    assert str(trainer.config.storage_dir) == str(tmp_path)


def test_train_prints_and_reports_the_partitions_of_a_run_from_a_disk(tmp_path, capsys):
    given = ["--graph", "digits", "--engine", "local", "--epochs", "1", "--batch-size", "512", "--fanouts", "4,4"]
    given += ["--order", "each_once(partitions=4, buffer=2)", "--report", str(tmp_path / "report.json")]
    assert main(["train", *given]) == 0
    division = "each_once, 2 of 4 partitions in memory"
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("regime:"))
    assert line.endswith(f"; {division}")
    assert json.loads((tmp_path / "report.json").read_text())["mini_batches"]["partitions"] == division


@pytest.mark.parametrize("words", ["--graph other", "--format json", "--no-such", "--disable 'push"])
def test_explain_refuses_to_set_beside_it_what_it_cannot(words, capsys):
    try:
        status = main(["explain", "--graph", "digits", "--engine", "local", f"--diff={words}"])
    except SystemExit as exited:
        status = exited.code
    assert status == 2
    assert "--diff" in capsys.readouterr().err


def test_a_generated_graph_has_the_form_that_its_name_says(tmp_path, capsys):
    sizes = ["--vertices", "50", "--edges", "100", "--features", "4", "--classes", "3"]
    for name in ("graph.npz", "graph"):
        assert main(["datasets", "generate", str(tmp_path / name), *sizes]) == 0
    assert (tmp_path / "graph.npz").is_file()
    assert (tmp_path / "graph").is_dir()
    assert main(["explain", "--graph", str(tmp_path / "graph.npz"), "--stage", "logical"]) == 0


def test_datasets_lists_the_built_in_one(capsys):
    assert main(["datasets"]) == 0
    assert "digits" in capsys.readouterr().out


def test_own_factory_gets_only_what_it_asks_for(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(
        "import torch\ndef make(in_channels, out_channels): return torch.nn.Linear(in_channels, out_channels)\n"
    )
    monkeypatch.chdir(tmp_path)
    options = SimpleNamespace(model="own_model:make", hidden=8, layers=2, dropout=0.5, heads=None, aggr=None, seed=0)
    assert make_model(options, in_channels=3, out_channels=2).weight.shape == (2, 3)


def test_factory_that_makes_no_module_is_named(tmp_path, monkeypatch):
    (tmp_path / "no_model.py").write_text("def make(): return 7\n")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--graph", "digits", "--model", "no_model:make"]) == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("def make(:", "SyntaxError"),
        ("raise ValueError('at import')", "ValueError: at import"),
        ("make = 7", "'make' is a int"),
        ("def make(): raise RuntimeError('my own bug')", "failed with no arguments: RuntimeError: my own bug"),
        ("def make(out_channels, other): pass", "failed with out_channels=10: TypeError"),
    ],
)
def test_own_factory_that_fails_is_one_line(content, expected, tmp_path, monkeypatch, capsys):
    (tmp_path / "failing_model.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_model", raising=False)
    assert main(["train", "--graph", "digits", "--model", "failing_model:make"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("lotan: --model failing_model:make")
    assert expected in shown


def test_model_that_no_memory_holds_is_one_line(capsys):
    assert main(["train", "--graph", "digits", "--hidden", str(10**13)]) == 2
    assert "--model gcn failed with in_channels=64, hidden_channels=10000000000000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("closing", "status"),
    at_night(
        [("<&-", 0), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 1)],
        unless=[(">/dev/full", 1)],
    ),
)
@pytest.mark.processes
def test_streams_that_lead_nowhere(closing, status):
    """As a shell may start it. What is opened next must not become standard output, nor Python complain at its exit."""
    script = (
        "import os, sys\n"
        "from lotan.cli import main\n"
        "status = main(['datasets'])\n"
        "assert [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)] == [0, 1, 2]\n"
        "assert all(os.get_inheritable(number) for number in (0, 1, 2))\n"
        "sys.exit(status)"
    )
    words = ["sh", "-c", f'"$0" -c "$1" {closing}', sys.executable, script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr
    assert ("No space left on device" in done.stderr) == bool(status)


def test_results_are_kept_in_the_order_of_their_worth(tmp_path, capsys, monkeypatch):
    """A report that cannot be written costs neither the model nor the metrics."""

    def fail(*_):
        raise OSError(28, "No space left on device", "report.json")

    monkeypatch.setattr("lotan.results.report.write_report", fail)
    words = ["--report", str(tmp_path / "report.json"), "--save", str(tmp_path / "model")]
    assert main(["train", "--graph", "digits", "--engine", "local", "--epochs", "1", *words]) == 1
    assert "test  " in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "weights.pt"]


def test_a_full_disk_without_a_name_is_told_by_where_it_may_be(monkeypatch, capsys):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lotan.cli.datasets.run", fail)
    assert main(["datasets"]) == 1
    assert f"TMPDIR (now {tempfile.gettempdir()})" in capsys.readouterr().err


def test_memory_that_runs_out_is_one_line(monkeypatch, capsys):
    def fail(_):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("lotan.cli.datasets.run", fail)
    assert main(["datasets"]) == 1
    assert capsys.readouterr().err.startswith("lotan: out of memory: Unable to allocate 9 TiB")


def test_predictions_go_to_a_folder_that_is_not_there_yet(tmp_path):
    common = ["--graph", "digits", "--engine", "local"]
    assert main(["train", *common, "--epochs", "1", "--quiet", "--save", str(tmp_path / "model")]) == 0
    out = tmp_path / "a" / "b" / "predictions.parquet"
    assert main(["predict", *common, "--model-dir", str(tmp_path / "model"), "--out", str(out)]) == 0
    assert [path.name for path in out.parent.iterdir()] == ["predictions.parquet"]


def test_memory_of_a_worker_is_written_as_that_of_a_training(monkeypatch, capsys):
    served = []
    monkeypatch.setattr("lotan.worker.serving.serve", served.append)
    monkeypatch.setattr("os.environ", {})  # the command sets variables of its process
    words = ["worker", "--router", "tcp://127.0.0.1:5570"]
    assert [main(words), main([*words, "--memory", "512m"]), main([*words, "--memory", "0"])] == [0, 0, 0]
    assert [settings.memory for settings in served] == [1 << 30, 512 << 20, 0]
    assert main([*words, "--memory", "lots"]) == 2
    assert "--memory is 'lots', which is no size in bytes; expected" in capsys.readouterr().err
