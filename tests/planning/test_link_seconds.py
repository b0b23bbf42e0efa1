"""The estimated seconds of link tasks: each line says whether it is training or an evaluation, and they agree."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

import lotan
from lotan.planning.link_seconds import BATCH_SECONDS, ranking_seconds, scoring_seconds
from planner.cost.seconds import Pricing
from planner.explain.sizes import duration
from tests.links.graphs import columns

TASK = lotan.LinkPrediction("distmult", negatives=20)
STORED = "comet(partitions=8, buffer=4, groups=4)"
REGIMES = {
    "full batch": lotan.FullBatch(),
    "mini-batches": lotan.MiniBatch(16, ()),
    "from a disk": lotan.MiniBatch(16, (), order=STORED),
}


def trainer(regime: str, **settings: Any) -> lotan.Trainer:
    graph = lotan.Graph.from_arrays(**columns(4, vertices=45, edges=300))
    model = lotan.nn.LearnedRows(6)
    given = {"optimizer": lotan.Adagrad(), "epochs": 2, "progress": False, "engine": "local"} | settings
    return lotan.Trainer(model, graph, task=TASK, regime=REGIMES[regime], **given)


@pytest.mark.parametrize("regime", REGIMES)
def test_the_head_says_training_and_evaluation_apart(regime: str) -> None:
    asked = trainer(regime)
    job, data = asked.job, json.loads(asked.explain("json"))
    text = " ".join(asked.explain().split())
    assert job.link_seconds.ranking > 0
    assert job.evaluation_seconds > job.link_seconds.ranking
    assert (
        f"{duration(float(f'{job.training_seconds:.3g}'))} {'estimated ' * (regime == 'full batch')}for an epoch's training,"
        in text
    )
    assert f"{duration(float(f'{job.evaluation_seconds:.3g}'))} for an evaluation, " in text
    assert f"{duration(float(f'{job.link_seconds.ranking:.3g}'))} of them to rank links" in text
    assert data["estimated_training_seconds"] == pytest.approx(job.training_seconds, rel=0.01)
    assert data["estimated_evaluation_seconds"] == pytest.approx(job.evaluation_seconds, rel=0.01)
    assert job.epoch_seconds == pytest.approx(job.training_seconds + job.evaluation_seconds)
    if regime == "from a disk":
        storage = data["storage"]
        training = storage["estimated_compute_seconds"] + storage["estimated_wait_seconds"]
        assert data["estimated_training_seconds"] == pytest.approx(training, rel=0.01)


@pytest.mark.parametrize("regime", REGIMES)
def test_the_report_has_the_estimate_and_the_measure_of_each(regime: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = trainer(regime, progress=True)
    job = asked.job
    run = asked.fit()
    plan, history = run.report["plan"], run.history
    assert plan["estimated_epoch_seconds"] == pytest.approx(job.training_seconds)
    assert plan["estimated_evaluation_seconds"] == pytest.approx(job.evaluation_seconds)
    assert plan["measured_epoch_seconds"] == history[-1]["train_seconds"]
    assert plan["measured_evaluation_seconds"] == median(entry["eval_seconds"] for entry in history)
    said = capsys.readouterr().err
    assert f"{duration(job.training_seconds)} estimated for an epoch's training" in said
    assert (
        f"{duration(job.evaluation_seconds)} for an evaluation, {duration(2 * job.epoch_seconds)} for 2 epochs" in said
    )
    assert f"{history[0]['train_seconds']:.2f} s, evaluated in {history[0]['eval_seconds']:.2f} s" in said


def test_seconds_follow_the_number_of_scores() -> None:
    pricing = Pricing()
    ranking, scoring = (ranking_seconds(TASK, 10, 500, 16, pricing), scoring_seconds(TASK, 10, 0, 500, 16, pricing))
    assert ranking_seconds(TASK, 20, 1500, 16, pricing) == pytest.approx(6 * ranking)
    assert ranking_seconds(TASK, 0, 500, 16, pricing) == 0
    assert scoring_seconds(replace(TASK, negatives=60), 20, 0, 500, 16, pricing) == pytest.approx(6 * scoring)
    assert scoring_seconds(TASK, 10, 4, 500, 16, pricing) == pytest.approx(scoring + 4 * BATCH_SECONDS)
    every = replace(TASK, negatives="all")
    assert scoring_seconds(every, 10, 0, 500, 16, pricing) == pytest.approx(scoring * 500 / 20)
    distances = replace(TASK, decoder="transe")
    assert ranking_seconds(distances, 10, 500, 64, pricing) > ranking_seconds(TASK, 10, 500, 64, pricing)


def test_an_epoch_has_its_share_of_the_evaluations() -> None:
    often, seldom, never = (trainer("mini-batches", eval_every=every).job for every in (1, 4, 0))
    assert often.epoch_seconds - often.training_seconds == pytest.approx(often.evaluation_seconds)
    assert seldom.epoch_seconds - seldom.training_seconds == pytest.approx(seldom.evaluation_seconds / 4)
    assert never.epoch_seconds == never.training_seconds


def test_epochs_that_score_links_correct_no_estimates_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("lotan.training.trainer.remember_epochs", lambda *given: told.append(given))
    monkeypatch.setattr("lotan.training.trainer.LoadWatch", lambda: SimpleNamespace(quiet=True))
    trainer("full batch").fit()
    assert told == []
    graph = lotan.datasets.generate(60, 90, width=4, classes=3)
    lotan.Trainer(lotan.nn.GCN(4, 4, 2, 3), graph, epochs=1, progress=False, engine="local").fit()
    assert len(told) == 1
