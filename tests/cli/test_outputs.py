"""Places that cannot take results are refused before the work starts, and nothing is left in them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from lotan.cli import explain, main, outputs
from lotan.cli.outputs import RESULTS, option_name
from lotan.files import write_atomically


@pytest.mark.parametrize("command", ["train", "tune"])
def test_what_says_where_results_go_is_known_as_such(command, capsys):
    """What is not is taken for a part of the run: it would be in its command.json."""
    with pytest.raises(SystemExit):
        main([command, "--help"])
    section = capsys.readouterr().out.partition("\nresults:\n")[2]
    found = re.findall(r"^  (--[a-z-]+)", section, re.MULTILINE)
    assert len(found) >= 7
    assert set(found) <= {option_name(name) for name in RESULTS}


@pytest.mark.parametrize("option", ["--report", "--save", "--checkpoint-dir"])
def test_train_refuses_a_place_below_a_file(option, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    given = str(tmp_path / "file" / "below")
    assert main(["train", "--graph", "digits", "--engine", "local", "--epochs", "1", option, given]) == 2
    shown = capsys.readouterr()
    assert (
        shown.err
        == f"lotan: {option} {given} cannot be written: {tmp_path / 'file'} is not a directory; name another place\n"
    )
    assert "epoch" not in shown.out
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("words", [["--save", ""], ["--log-dir", " "], ["--report", ""]])
def test_an_option_without_a_place_is_refused(words, tmp_path, capsys, monkeypatch):
    """Such as of a shell's variable that is not set."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--graph", "digits", *words]) == 2
    assert capsys.readouterr().err == f"lotan: {words[0]} is empty; name a place, or leave the option out\n"
    assert os.listdir(tmp_path) == []


def test_two_results_in_one_place_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--graph", "digits", "--report", "x", "--save", "./x"]) == 2
    assert capsys.readouterr().err == "lotan: --report and --save are both ./x; name another place\n"


@pytest.mark.parametrize(("name", "expected"), [("folder", "is a directory"), ("pipe", "is a device or a pipe")])
@pytest.mark.parametrize(
    "command", [["train", "--report"], ["predict", "--model-dir", "model", "--out"], ["explain", "--out"]]
)
def test_only_an_ordinary_file_is_replaced(name, expected, command, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert main([*command, str(tmp_path / name), "--graph", "digits"]) == 2
    assert expected in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


@pytest.mark.parametrize("place", ["/dev/stdout", "/proc/self/fd/1"])
def test_a_device_is_no_file_whatever_it_leads_to(place, capsys, monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    monkeypatch.setattr(explain, "_trainer", lambda *_: pytest.fail("it was planned"))
    assert main(["explain", "--graph", "digits", "--out", place]) == 2
    assert capsys.readouterr().err.startswith(f"lotan: --out {place} is ")


@pytest.mark.parametrize("words", [[], ["--format", "html"]])
def test_explain_without_a_place_is_refused(words, capsys, monkeypatch):
    monkeypatch.setattr(explain, "_trainer", lambda *_: pytest.fail("it was planned"))
    assert main(["explain", "--graph", "digits", "--out", "", *words]) == 2
    assert capsys.readouterr().err == "lotan: --out is empty; name a place, or leave the option out\n"


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", lambda stream: stream.write(b"new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_place_that_takes_no_files_is_refused_before_anything_is_planned(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(explain, "_trainer", lambda *_: pytest.fail("it was planned"))
    monkeypatch.chdir(tmp_path)
    common = ["explain", "--graph", "digits", "--format", "html"]
    assert main([*common, "--out", str(tmp_path / ("a" * 250))]) == 2
    assert f"--out {tmp_path}"[:40] in capsys.readouterr().err

    def full(**_):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(outputs, "TemporaryFile", full)
    assert main(common) == 2  # plan.html, here
    assert "--out plan.html cannot be written" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_plan_is_written_whole_or_not_at_all(tmp_path, capsys, monkeypatch):
    out = tmp_path / "plan.txt"
    out.write_text("the one before")

    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lotan.files.os.replace", fails)
    assert main(["explain", "--graph", "digits", "--engine", "local", "--stage", "logical", "--out", str(out)]) == 1
    assert out.read_text() == "the one before"
    assert os.listdir(tmp_path) == ["plan.txt"]


def test_predictions_that_are_to_be_of_another_format_are_refused(tmp_path, capsys):
    words = ["--graph", "digits", "--model-dir", str(tmp_path), "--out", str(tmp_path / "p.CSV")]
    assert main(["predict", *words]) == 2
    assert "predictions are written as Parquet" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_is_one_line(tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", "report.json")

    monkeypatch.setattr("lotan.results.report.write_report", fail)
    words = ["--graph", "digits", "--engine", "local", "--epochs", "1", "--report", str(tmp_path / "report.json")]
    assert main(["train", *words]) == 1
    assert "No space left on device" in capsys.readouterr().err
