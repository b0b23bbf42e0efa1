"""What the models of a search have in common, said again as options: `lotan train` reads the same settings from them."""

from __future__ import annotations

import argparse
from dataclasses import fields

import pytest

from lotan.cli import train
from lotan.cli.options import loss_settings, plan_settings
from lotan.settings.config import TrainerConfig, make_config
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction
from lotan.tuning.train_words import RESULTS, UNSAID, words_in_common


def read(words: list[str]) -> TrainerConfig:
    """As `lotan train` reads them."""
    parser = argparse.ArgumentParser()
    train.add_options(parser)
    options = parser.parse_args(["--graph", "digits", *words])
    return make_config(
        {
            **plan_settings(options),
            **loss_settings(options),
            "eval_every": options.eval_every,
            "monitor": options.monitor,
        }
    )


GIVEN = {
    "engine": "rows",
    "plan": "general",
    "disable": ("push_down", "share_models"),
    "rgb": False,
    "propagate": "messages",
    "master": "local[2]",
    "partitions": 3,
    "workers": 2,
    "router": "tcp://host:5570",
    "keys": "my keys",
    "memory_limit": "3g",
    "worker_memory": "512m",
    "worker_rows": "256m",
    "eval_every": 2,
    "monitor": "loss",
    "task": "classification",
    "loss": "cross_entropy(label_smoothing=0.1)",
    "class_weights": {1: 0.1, 3: 2.0},
    "metrics": ("roc_auc", "f1"),
    "threshold": 0.25,
    "label_rate": 0.5,
    "neighbour_order": 1,
}
BATCHES = {
    "regime": MiniBatch(64, (10, "all"), seed=3),
    "tables": 2,
    "asynchrony": "none",
    "table_memory": "64m",
}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        GIVEN,
        BATCHES,
        {"regime": MiniBatch(64, ()), "tables": "tcp://127.0.0.1:5571,tcp://127.0.0.1:5572"},
        {"plan": "blocks-hoist_invariant"},
        {"disable": []},
        {"task": LinkPrediction(), "regime": MiniBatch(64, (), order="comet(partitions=8, buffer=4, groups=4)")},
        {"class_weights": [1.0, 0.3]},
        {"threshold": [0.25, 0.5]},
    ],
    ids=str,
)
def test_they_are_read_as_they_were_given(settings):
    config = make_config(settings)
    found = read(words_in_common(config))
    assert {**vars(found), "disable": tuple(found.disable)} == {**vars(config), "disable": tuple(config.disable)}


def test_every_setting_is_said_or_known_not_to_be():
    results = set(RESULTS)
    own = {"optimizer", "lr_scheduler", "clip_grad_norm", "seed", "epochs", "patience"}
    assert {item.name for item in fields(TrainerConfig)} == {*GIVEN, *BATCHES, *UNSAID, *results, *own}


@pytest.mark.parametrize("settings", [{"loss": abs}, {"penalty": abs}, {"chunk_rows": 8}])
def test_where_there_is_no_option_there_are_no_words(settings):
    assert words_in_common(make_config(settings)) is None
