"""Schedulers, clipped gradients and other optimizers in training: equal to the loop that everyone writes in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.optim import lr_scheduler

import lotan
from lotan.errors import ConfigurationError
from lotan.settings.optimizers import OPTIMIZERS, Optimizer
from lotan.training.checkpoint import CheckpointError
from tests.training.test_trainer import Data, _fit, _losses, _pair, assert_same_checkpoint

pytestmark = pytest.mark.thorough

EPOCHS = 12
SCHEDULES = {
    "StepLR(step_size=3, gamma=0.5)": lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.5),
    "LinearLR(start_factor=0.1, total_iters=5)": lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
    "OneCycleLR(max_lr=0.05, total_steps=12)": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.05, 12),
    "ReduceLROnPlateau(patience=0, factor=0.5, threshold=0.05)": lambda optimizer: lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", patience=0, factor=0.5, threshold=0.05
    ),
}


def _by_hand(
    data: Data, model: torch.nn.Module, optimizer: torch.optim.Optimizer, make: Any, clip: float | None
) -> tuple[list[float], list[float]]:
    """Losses and learning rates of the loop in torch."""
    scheduler = None if make is None else make(optimizer)
    rows, validation, label = data.rows(0), data.rows(1), torch.from_numpy(data.label)
    losses, rates = [], []
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(data.logits(model)[rows], label[rows])
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        losses.append(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            hits = data.logits(model)[validation].argmax(1) == label[validation]
            scheduler.step(hits.double().mean().item())
        elif scheduler is not None:
            scheduler.step()
    return losses, rates


@pytest.mark.parametrize("text", SCHEDULES)
def test_a_schedule_equals_the_loop_in_torch(text: str) -> None:
    data = Data()
    ours, theirs = _pair()
    groups = {"convs.0": {"lr": 0.02, "weight_decay": 1e-3}}
    run = _fit(
        ours, data, epochs=EPOCHS, lr_scheduler=text, clip_grad_norm=0.05, optimizer=lotan.Adam(lr=0.01, groups=groups)
    )
    optimizer = torch.optim.Adam(
        [{"params": theirs.convs[0].parameters(), **groups["convs.0"]}, {"params": theirs.convs[1].parameters()}],
        lr=0.01,
    )
    losses, rates = _by_hand(data, theirs, optimizer, SCHEDULES[text], 0.05)
    assert _losses(run) == pytest.approx(losses, rel=1e-4)
    assert [entry["lr"] for entry in run.history] == pytest.approx(rates, rel=1e-9)
    assert len(set(rates)) > 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_equals_the_loop_in_torch(name: str) -> None:
    data = Data()
    ours, theirs = _pair()
    kind: type[Optimizer] = OPTIMIZERS[name]
    run = _fit(ours, data, epochs=EPOCHS, optimizer=kind(lr=0.01), eval_every=0)
    losses, _ = _by_hand(data, theirs, kind.torch_class(theirs.parameters(), lr=0.01), None, None)
    assert _losses(run) == pytest.approx(losses, rel=1e-3)
    assert "lr" not in run.history[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"lr_scheduler": "CosineAnnealingLR(T_max=9)", "clip_grad_norm": 0.1},
        {"lr_scheduler": "ReduceLROnPlateau(patience=0, factor=0.5, threshold=0.2)", "monitor": "loss"},
        {"lr_scheduler": "ReduceLROnPlateau(patience=0)", "disable": ["reuse_evaluation"]},
        {"lr_scheduler": "StepLR(step_size=2)", "optimizer": lotan.RMSprop(lr=0.01, momentum=0.9, centered=True)},
    ],
    ids=str,
)
def test_a_resumed_run_has_the_bits_of_the_straight_one(settings: dict[str, Any], tmp_path: Path) -> None:
    data = Data()
    for epochs in (3, 4, EPOCHS):  # stopped after an epoch that owes its metrics, and once more
        resumed = _fit(
            _pair(dropout=0.5)[0], data, epochs=epochs, checkpoint_dir=tmp_path / "a", resume=True, **settings
        )
    straight = _fit(_pair(dropout=0.5)[0], data, epochs=EPOCHS, checkpoint_dir=tmp_path / "b", **settings)
    assert_same_checkpoint(tmp_path / "a" / "last.pt", tmp_path / "b" / "last.pt")
    assert [entry["lr"] for entry in resumed.history] == [entry["lr"] for entry in straight.history]
    assert len({entry["lr"] for entry in straight.history}) > 1


def test_another_schedule_is_another_run(tmp_path: Path) -> None:
    data = Data()
    _fit(_pair()[0], data, epochs=2, checkpoint_dir=tmp_path)
    for settings in ({"lr_scheduler": "StepLR(step_size=2)"}, {"clip_grad_norm": 1.0}):
        with pytest.raises(CheckpointError, match=next(iter(settings))):
            _fit(_pair()[0], data, epochs=4, checkpoint_dir=tmp_path, resume=True, **settings)


def test_each_member_of_a_batch_has_its_own() -> None:
    data = Data()
    settings: list[dict[str, Any]] = [
        {},
        {"lr_scheduler": "StepLR(step_size=2)"},
        {"lr_scheduler": "ReduceLROnPlateau(patience=0)", "clip_grad_norm": 0.1},
        {"clip_grad_norm": 0.01, "optimizer": lotan.NAdam(lr=0.01)},
    ]
    members = [lotan.Member(_pair(dropout=0.5)[0], epochs=6, **own) for own in settings]
    with lotan.ModelBatch(data.graph, members, engine="local", progress=False) as batch:
        batch.train()
        runs, told = batch.runs(), batch.report()["members"]
    for number, own in enumerate(settings):
        alone = _fit(_pair(dropout=0.5)[0], data, epochs=6, **own)
        assert _losses(runs[number]) == _losses(alone)
        for name, weight in alone.model.weights.items():
            assert torch.equal(weight, runs[number].model.weights[name]), name
    assert [member["lr_scheduler"] for member in told][:2] == [None, "StepLR(step_size=2)"]


def test_a_grid_varies_the_schedule() -> None:
    data = Data()
    grid = {"epochs": 4, "lr_scheduler": ["none", "StepLR(step_size=1)"], "clip_grad_norm": 0.5, "model": {"hidden": 4}}
    tuned = lotan.tune(data.graph, grid, engine="local", progress=False)
    assert [
        trial.settings.values.get("lr_scheduler") for trial in sorted(tuned.trials, key=lambda one: one.number)
    ] == [
        None,
        "StepLR(step_size=1)",
    ]
    assert any("--lr-scheduler" in (trial.train_options or ()) for trial in tuned.trials)
    with pytest.raises(ConfigurationError, match="did you mean StepLR"):
        lotan.tune(data.graph, {"lr_scheduler": ["StpLR(step_size=1)"]}, engine="local")


def test_a_plateau_needs_validation_vertices() -> None:
    data = Data()
    graph = lotan.Graph.from_arrays(data.x, *data.edge_index, label=data.label, split=data.split * 0)
    for given in ("ReduceLROnPlateau", lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer)):
        with pytest.raises(ConfigurationError, match="split 'val'"):
            lotan.Trainer(_pair()[0], graph, engine="local", progress=False, lr_scheduler=given).fit()


def test_a_schedule_that_ends_before_the_epochs_says_so() -> None:
    settings = {"epochs": 6, "lr_scheduler": "OneCycleLR(max_lr=0.1, total_steps=3)"}
    with pytest.raises(ConfigurationError, match="as many steps as there are epochs"):
        _fit(_pair()[0], Data(), **settings)
