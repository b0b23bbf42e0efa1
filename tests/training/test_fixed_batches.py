"""Batches that stay the same until validation flattens, and are drawn anew from then on."""

from __future__ import annotations

import argparse
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.batches.sampler import Sampler
from lotan.cli import train
from lotan.cli.options import regime_of
from lotan.errors import ConfigurationError
from lotan.planning.identity import identity
from lotan.settings.regimes import FIXED
from lotan.training.early_stopping import FLAT
from tests.training.test_batch_norm import OUT, WIDTH, graph

REGIME = lotan.MiniBatch(8, (2, 2), seed=3, order=FIXED)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return lotan.nn.GraphSAGE(WIDTH, 6, num_layers=2, out_channels=OUT)


def fit(regime: Any, lr: float = 0.0, **options: Any) -> lotan.results.run.Run:
    settings = {"epochs": 7, "optimizer": lotan.SGD(lr=lr), "progress": False, **options}
    return lotan.Trainer(model(), graph(), regime=regime, **settings).fit()


def test_the_first_batches_are_used_until_the_metric_is_flat_and_sampled_once(monkeypatch) -> None:
    drawn: list[tuple[int, int]] = []
    sample = Sampler.sample

    def noted(self: Sampler, targets: Any, fanouts: Any, of: Any, without: Any = None) -> Any:
        drawn.append((of.epoch, of.batch))
        return sample(self, targets, fanouts, of, without)

    monkeypatch.setattr(Sampler, "sample", noted)
    found = fit(REGIME)
    losses = [entry["loss"] for entry in found.history]
    elbow = 1 + FLAT  # without a step no epoch is better than the first
    assert losses[:elbow] == [losses[0]] * elbow
    assert len(set(losses[elbow:])) == 7 - elbow
    batches = max(batch for _, batch in drawn) + 1
    assert [one for one in drawn if one[0] == 1] == [(1, batch) for batch in range(batches)]  # each once
    assert not {2, 3, elbow} & {epoch for epoch, _ in drawn}
    shuffled = fit(lotan.MiniBatch(8, (2, 2), seed=3))
    assert losses[elbow:] == [entry["loss"] for entry in shuffled.history][elbow:]
    assert found.report["mini_batches"]["batches"] >= 7 * batches


def test_a_resumed_run_has_the_same_bits(tmp_path) -> None:
    whole = fit(REGIME, 0.1)
    for epochs in (2, 7):
        run = fit(REGIME, 0.1, epochs=epochs, checkpoint_dir=tmp_path, resume=True)
    assert [entry["loss"] for entry in run.history] == [entry["loss"] for entry in whole.history]
    assert all(torch.equal(run.model.weights[name], one) for name, one in whole.model.weights.items())


def test_the_order_belongs_to_a_run_and_its_memory() -> None:
    trainers = {
        regime: lotan.Trainer(model(), graph(), regime=regime, progress=False)
        for regime in (REGIME, lotan.MiniBatch(8, (2, 2), seed=3))
    }
    fixed, shuffled = (identity(one.job, one.config.settled())["regime"] for one in trainers.values())
    assert fixed == "MiniBatch(batch_size=8, fanouts=(2, 2), seed=3, order='fixed until the elbow')"
    assert shuffled == "MiniBatch(batch_size=8, fanouts=(2, 2), seed=3)"  # as before there was an order
    peaks = [one.job.needs(one.config).peak for one in trainers.values()]
    assert peaks[0] > peaks[1]
    parser = argparse.ArgumentParser()
    train.add_options(parser)
    words = ["--graph", "digits", "--batch-size", "8", "--fanouts", "2,2", "--sampling-seed", "3", "--fixed-batches"]
    assert regime_of(parser.parse_args(words)) == REGIME


def test_what_has_no_elbow_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="MiniBatch got order='once'"):
        lotan.MiniBatch(order="once")
    with pytest.raises(ConfigurationError, match="which needs evaluations"):
        lotan.TrainerConfig(engine="local", regime=REGIME, eval_every=0)
    with pytest.raises(ConfigurationError, match="draws other negatives in each epoch"):
        lotan.TrainerConfig(engine="local", regime=REGIME, task=lotan.LinkPrediction())
    with pytest.raises(ConfigurationError, match="follows the validation of one model"):
        lotan.ModelBatch(graph(), [lotan.Member(deepcopy(model()))], regime=REGIME)
    arrays = graph().arrays()
    unseen = graph().relabelled(arrays.label, np.zeros(len(arrays.ids), dtype=np.int8))
    with pytest.raises(ConfigurationError, match="follows a metric of the split 'val'"):
        lotan.Trainer(model(), unseen, regime=REGIME, progress=False).fit()
