"""A run that goes on with other settings: the epochs before and after are those of plain torch, and it is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lotan
from lotan.errors import ConfigurationError
from lotan.results.run import Run
from lotan.training.checkpoint import CheckpointError
from lotan.tuning.config import make_configs
from tests.training.test_trainer import Data, _pair

DATA = Data()
GROUPS = {"convs.0": {"lr": 0.3}}


def fit(model: torch.nn.Module, **settings: Any) -> Run:
    given = {
        "engine": "local",
        "progress": False,
        "optimizer": lotan.SGD(lr=0.5, momentum=0.9, groups=GROUPS),
        **settings,
    }
    return lotan.Trainer(model, DATA.graph, **given).fit()


def losses(run: Run) -> list[float]:
    return [entry["loss"] for entry in run.history]


def truth(model: torch.nn.Module, rates: list[float], decays: list[float]) -> list[float]:
    """The losses of plain torch, with a learning rate and a weight decay for each epoch."""
    first = [parameter for name, parameter in model.named_parameters() if name.startswith("convs.0")]
    others = [parameter for name, parameter in model.named_parameters() if not name.startswith("convs.0")]
    optimizer = torch.optim.SGD([{"params": first, "lr": 0.3}, {"params": others}], lr=0.5, momentum=0.9)
    rows, label, found = DATA.rows(0), torch.from_numpy(DATA.label), []
    for rate, decay in zip(rates, decays, strict=True):
        optimizer.param_groups[1]["lr"] = rate
        for group in optimizer.param_groups:
            group["weight_decay"] = decay
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(DATA.logits(model)[rows], label[rows])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_numbers_of_the_optimizer_change_from_the_checkpoint_on(tmp_path: Path) -> None:
    place = {"checkpoint_dir": tmp_path}
    fit(_pair()[0], epochs=3, **place)
    changed = {"lr": 0.05, "weight_decay": 0.01}
    fit(_pair()[0], epochs=4, resume=True, resume_with=changed, **place)
    fit(_pair()[0], epochs=5, resume=True, resume_with=changed, **place)  # once more, by a job that is restarted
    run = fit(_pair()[0], epochs=6, resume=True, **place)  # what has changed stays so
    expected = truth(_pair()[1], [0.5] * 3 + [0.05] * 3, [0.0] * 3 + [0.01] * 3)
    assert losses(run) == pytest.approx(expected, rel=1e-5)
    assert run.report["resumed_with"] == [{"after_epoch": 3, **changed}]


def test_a_run_that_stopped_early_goes_on_with_more_patience(tmp_path: Path) -> None:
    options = {"checkpoint_dir": tmp_path, "patience": 1, "epochs": 40, "optimizer": lotan.SGD(lr=20.0)}
    stopped = fit(_pair()[0], **options)
    assert len(stopped.history) < 40
    assert "resumed_with" not in stopped.report
    run = fit(_pair()[0], resume=True, resume_with={"patience": None}, **options)
    straight = fit(_pair()[0], **{**options, "checkpoint_dir": None, "patience": None})
    assert len(run.history) == 40
    assert losses(run) == losses(straight)
    assert run.report["resumed_with"] == [{"after_epoch": len(stopped.history), "patience": None}]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"resume_with": {"seed": 3}}, "'seed', which identifies a run; it may change patience, lr, momentum"),
        ({"resume_with": {"nesterov": True}}, "'nesterov', which identifies"),
        ({"resume_with": {"lr": -1.0}}, "lr"),
        ({"resume_with": {"lr": "fast"}}, "lr='fast'"),
        ({"resume_with": {"patience": 0}}, "patience 0; expected an integer of at least 1, or None"),
        ({"resume_with": {"patience": 3}, "eval_every": 0}, "eval_every is 0"),
        ({"resume_with": ["lr"]}, "expected a mapping"),
        ({"resume_with": {"lr": 0.1}, "resume": False}, "set resume=True"),
        ({"resume_with": {"lr": 0.1}, "lr_scheduler": "StepLR(step_size=2)"}, "lr_scheduler sets"),
    ],
    ids=str,
)
def test_what_cannot_change_is_refused_by_name(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=words):
        fit(_pair()[0], **{"checkpoint_dir": tmp_path, "resume": True, **settings})


def test_there_has_to_be_a_run_to_go_on_with(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        fit(_pair()[0], checkpoint_dir=tmp_path, resume=True, resume_with={"lr": 0.1})
    with pytest.raises(ConfigurationError, match="tune got resume_with"):
        make_configs({"resume_with": {"lr": 0.1}})
