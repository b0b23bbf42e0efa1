"""Errors on the command line name options, and not the settings of the Python API."""

from __future__ import annotations

import pytest

from lotan.cli import main
from lotan.cli.option_words import in_options

NAMES = ("memory_limit", "order", "engine", "workers", "partitions", "batch_size", "log_dir", "lr", "negatives")


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("give workers=1, or batch_size=64.", "give --workers 1, or --batch-size 64."),
        ("order 'comet' needs memory_limit", "order 'comet' needs --memory-limit"),
        ("leave order out of the regime", "leave --order out of the regime"),
        ("as in order='comet(partitions=16, buffer=4)'", "as in --order 'comet(partitions=16, buffer=4)'"),
        ("such as 'comet(partitions=16)'", "such as 'comet(partitions=16)'"),
        ("such as MiniBatch(batch_size=4)", "such as MiniBatch(batch_size=4)"),
        ("/data/log_dir/x, log_dir/y and 'memory_limit' stay", "/data/log_dir/x, log_dir/y and 'memory_limit' stay"),
        ("the graph's log_dir and the model's memory_limit", "the graph's --log-dir and the model's --memory-limit"),
        ("it got negatives=5,000, but", "it got --negatives 5,000, but"),
        ("train with regime=lotan.FullBatch()", "train without --batch-size and --fanouts"),
        ("regime=lotan.MiniBatch(1024, (), order='comet'), or", "--batch-size 1024 --fanouts none --order comet, or"),
        ("give one, as in Trainer(order=Order(4, (2,)), engine=1)", "give one, as in Trainer(order=Order(4, (2,)), engine=1)"),
        ("got lr=1e+40; expected", "got --lr 1e+40; expected"),
        ("--memory-limit is 1m and memory_limits are no option", "--memory-limit is 1m and memory_limits are no option"),
    ],
)  # fmt: skip
def test_settings_become_options(said: str, wanted: str) -> None:
    assert in_options(said, NAMES) == wanted


def test_a_flag_has_no_value_and_a_command_may_have_another_name_for_a_setting() -> None:
    assert in_options("go on with resume=True", ("resume",)) == "go on with --resume"
    assert in_options("name another folder with storage_dir", ("out",), "partition") == "name another folder with --out"


def test_a_limit_that_is_too_low_is_refused_in_options(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "--graph", "digits", "--engine", "local", "--memory-limit", "300m"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("lotan: --memory-limit is 300m, and engine 'local' needs at least ")
    assert not {"memory_limit", "blocks", "regime"} & set(said.replace(",", " ").split())
