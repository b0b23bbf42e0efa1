"""The Trainer where an epoch's pass evaluates the weights before its step: all is as with an evaluation after each step."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.engines.base import Pass, run
from lotan.engines.choice import ENGINES
from lotan.engines.local.engine import LocalEngine
from lotan.errors import EngineError
from lotan.results.run import Run
from lotan.tracing.trace import trace_modes
from lotan.training.progress import Progress
from planner import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.loss import LossSpec
from planner.rules import reuse_evaluation
from planner.steps.pipe import PipeStep
from tests.exactness.cases import OUT, WIDTH
from tests.exactness.random_models import Drawn
from tests.exactness.test_random_models import graph_of
from tests.night import at_night
from tests.training.test_trainer import Data, _fit, _pair, assert_same_checkpoint

pytestmark = pytest.mark.thorough

DROPPING = 0.5  # dropout, with which evaluation goes beside the next epoch
ON = {"disable": ["prune_vertices"]}  # which has vertices in another order, and so sums
OFF = {"disable": ["reuse_evaluation", "prune_vertices"]}


def fit(
    kind: str = "GCN", data: Data | None = None, dropout: float = 0.0, **options: Any
) -> tuple[Run, dict[str, Any]]:
    """A run, and the weights it ends with."""
    model = _pair(kind, dropout)[0]
    return _fit(model, data or Data(), **ON | options), model.state_dict()


def assert_same(one: tuple[Run, dict[str, Any]], other: tuple[Run, dict[str, Any]]) -> None:
    """Epochs, losses, metrics of each, the best one, and its weights, bit by bit."""
    histories = [[without_seconds(entry) for entry in run.history] for run, _ in (one, other)]
    assert histories[0] == histories[1]
    assert (one[0].best_epoch, one[0].metrics) == (other[0].best_epoch, other[0].metrics)
    assert all(torch.equal(tensor, other[1][name]) for name, tensor in one[1].items())


def without_seconds(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if not key.endswith("_seconds")}


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 6},
        {"epochs": 7, "eval_every": 3},
        {"epochs": 1},
        {"epochs": 4, "eval_every": 0},
        {"epochs": 60, "patience": 3, "optimizer": lotan.Adam(lr=0.05)},
        {"epochs": 60, "patience": 2, "eval_every": 2, "monitor": "loss", "optimizer": lotan.Adam(lr=0.05)},
        {"epochs": 25, "monitor": "loss", "optimizer": lotan.Adam(lr=0.05)},
    ],
    ids=lambda options: ", ".join(f"{name}={value}" for name, value in options.items() if name != "optimizer"),
)
@pytest.mark.parametrize("dropout", [0.0, DROPPING])
def test_a_run_is_as_with_an_evaluation_after_each_step(dropout: float, options: dict[str, Any]) -> None:
    options = options | {"dropout": dropout}
    assert_same(fit(**options), fit(**options, **OFF))


@pytest.mark.parametrize("kind", ["GraphSAGE", "GAT"])
def test_so_it_is_for_other_models(kind: str) -> None:
    for dropout in (0.0, DROPPING):
        assert_same(fit(kind, dropout=dropout, epochs=3), fit(kind, dropout=dropout, epochs=3, **OFF))


@pytest.mark.parametrize("label", ["labels", "targets"])
def test_so_it_is_for_other_tasks(label: str) -> None:
    data = Data(label)
    assert_same(fit(data=data, epochs=5), fit(data=data, epochs=5, **OFF))


def test_so_it_is_without_validation_vertices() -> None:
    data = Data()
    data.graph = lotan.Graph.from_arrays(
        data.x, *data.edge_index, data.label, np.where(data.split == 1, -1, data.split)
    )
    assert_same(fit(data=data, epochs=5), fit(data=data, epochs=5, **OFF))


def passes(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """The ends of all passes over the model that a run takes."""
    ends: list[str] = []
    pipe = LocalEngine.pipe

    def noted(engine: LocalEngine, step: PipeStep, values: Any) -> Any:
        if step.mode in ("turn", "evaluate"):
            ends.append(step.mode)
        return pipe(engine, step, values)

    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "pipe", noted)
        fit(**options)
    return ends


def test_metrics_cost_one_pass_after_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert passes(monkeypatch, epochs=3) == ["turn"] * 3 + ["evaluate"]
    assert passes(monkeypatch, epochs=3, **OFF) == ["turn", "evaluate"] * 3
    assert passes(monkeypatch, epochs=3, dropout=0.5) == ["turn", *["evaluate", "turn"] * 2, "evaluate"]


@pytest.mark.parametrize(
    ("stop", "options"), [(1, {}), (4, {}), (2, {"patience": 1, "monitor": "loss"}), (3, {"eval_every": 2})]
)
@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.nightly), DROPPING])
def test_a_resumed_run_equals_the_straight_one(
    dropout: float, stop: int, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped as an epoch is shown, which is once its metrics are known; `last.pt` is then that of an epoch or of its metrics."""
    settings = {"epochs": 5, "optimizer": lotan.Adam(lr=0.1), "dropout": dropout, **options}
    straight = fit(checkpoint_dir=tmp_path / "straight", **settings)

    def interrupt(_: Progress, entry: dict[str, Any]) -> None:
        if entry["epoch"] == stop:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "epoch", interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            fit(checkpoint_dir=tmp_path / "stopped", **settings)
    assert_same(fit(checkpoint_dir=tmp_path / "stopped", resume=True, **settings), straight)
    for name in ("last.pt", "best.pt"):
        assert_same_checkpoint(tmp_path / "stopped" / name, tmp_path / "straight" / name)


def test_a_run_that_was_to_be_shorter_resumes_to_the_same_metrics(tmp_path: Path) -> None:
    """The last epoch of the shorter run was evaluated by a pass of its own."""
    straight = fit(epochs=6)
    fit(epochs=3, checkpoint_dir=tmp_path)
    assert_same(fit(epochs=6, checkpoint_dir=tmp_path, resume=True), straight)


def test_a_run_that_is_resumed_with_fewer_epochs_keeps_the_metrics_that_it_ends_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an epoch that was not to be evaluated, and with it the best weights."""

    def interrupt(_: Progress, entry: dict[str, Any]) -> None:
        if entry["epoch"] == 3:
            raise KeyboardInterrupt

    options = {"eval_every": 0, "checkpoint_dir": tmp_path}
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Progress, "epoch", interrupt)
        fit(epochs=6, **options)
    assert fit(epochs=3, resume=True, **options)[0].best_epoch == 3
    for name in ("last.pt", "best.pt"):
        kept = torch.load(tmp_path / name, weights_only=True)
        assert (kept["epoch"], "metrics" in kept["history"][-1]) == (3, True)


@pytest.mark.parametrize("dropout", [0.0, DROPPING])
def test_a_run_resumed_by_a_plan_that_evaluates_apart_makes_up_for_what_is_owed(
    dropout: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds are estimated anew, by rates that may have changed: so may the plan have."""
    straight = fit(epochs=5, dropout=dropout)

    def interrupt(_: Progress, entry: dict[str, Any]) -> None:
        if entry["epoch"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Progress, "epoch", interrupt)
        fit(epochs=5, dropout=dropout, checkpoint_dir=tmp_path)
    monkeypatch.setattr("planner.choices.evaluation.beside_training", lambda *_: "not here")
    monkeypatch.setattr(reuse_evaluation, "reuse_evaluation", lambda *_: False)
    assert_same(fit(epochs=5, dropout=dropout, checkpoint_dir=tmp_path, resume=True), straight)


@pytest.mark.parametrize("place", ["last.pt", "best.pt"])
def test_checkpoints_are_those_of_an_evaluation_after_each_step(place: str, tmp_path: Path) -> None:
    options = {"epochs": 30, "patience": 2, "optimizer": lotan.Adam(lr=0.1)}
    stopped, _ = fit(checkpoint_dir=tmp_path / "with", **options)
    fit(checkpoint_dir=tmp_path / "without", **options, **OFF)
    assert len(stopped.history) < 30
    contents = [torch.load(tmp_path / name / place, weights_only=True) for name in ("with", "without")]
    for content in contents:
        content["history"] = [without_seconds(entry) for entry in content["history"]]
    for key in ("epoch", "stopping", "history"):
        assert contents[0][key] == contents[1][key]
    for key in ("weights", "best_weights"):
        assert all(torch.equal(tensor, contents[1][key][name]) for name, tensor in contents[0][key].items())


@pytest.mark.parametrize("resume", [False, True])
def test_each_epoch_is_shown_once_with_its_metrics(
    resume: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    if resume:
        fit(epochs=2, checkpoint_dir=tmp_path)
    fit(epochs=4, progress=True, checkpoint_dir=tmp_path, resume=resume)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("epoch ")]
    assert [line.split()[1] for line in lines] == [f"{epoch}/4" for epoch in range(3 if resume else 1, 5)]
    assert all("val accuracy" in line for line in lines)


def test_seconds_of_an_evaluation_that_was_spared_are_none() -> None:
    history = fit(epochs=3)[0].history
    assert [entry["eval_seconds"] > 0 for entry in history] == [False, False, True]
    assert all(entry["train_seconds"] > 0 for entry in history)


def test_a_step_that_diverges_is_told_with_its_epoch() -> None:
    with pytest.raises(EngineError, match=r"epoch 1: the loss is .* after the step"):
        fit(epochs=5, optimizer=lotan.SGD(lr=1e38))


@pytest.mark.parametrize("seed", at_night([(seed,) for seed in range(12)], unless=[(seed,) for seed in range(6)]))
def test_a_turn_counts_what_evaluation_counts(seed: int) -> None:
    """Of random models of every layer type, to the bit: the forward half is the same operators on the same chunks."""
    torch.manual_seed(seed)
    model, drawn = Drawn(seed, dropping=False), graph_of(seed)
    specs = trace_modes(model, WIDTH)
    loss = LossSpec("classification", OUT, float((drawn.split == 0).sum()))
    options = Options(pricing=Pricing(ENGINES["local"]))
    plan = compile_plan(*specs, loss, drawn.graph.statistics, options).plan
    assert plan.reuses_evaluation
    engine = LocalEngine(chunk_rows=5)
    engine.load(drawn.graph, plan)
    a_pass = Pass(1, {name: value.detach() for name, value in model.state_dict().items()})
    turn, evaluation = (run(engine, plan, steps, a_pass) for steps in (plan.train, plan.evaluate))
    engine.close()
    np.testing.assert_array_equal(turn.statistics, evaluation.evaluation)
