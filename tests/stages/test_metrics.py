"""Metrics and losses against scikit-learn and torch; sums over chunks against sums over all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, mean_squared_error, r2_score
from torch import Tensor
from torch.nn import functional

from lotan.stages.metrics import loss_gradient, metrics, statistics, width
from planner.spec import SPLITS, LossSpec

ROWS, OUTPUTS = 60, 4
SPLIT = torch.tensor([0, 0, 1, 2, -1] * (ROWS // 5), dtype=torch.int8)
WEIGHTS = (0.5, 1.0, 2.0, 1.5)


def case(task: str, weighted: bool = False) -> tuple[LossSpec, Tensor, Tensor]:
    torch.manual_seed(1)
    logits = torch.randn(ROWS, OUTPUTS)
    weights = WEIGHTS if weighted else None
    train = SPLIT == 0
    if task == "classification":
        label = torch.randint(0, 3, (ROWS,))  # the last class has no vertex
        normalizer = torch.tensor(WEIGHTS)[label[train]].sum().item() if weighted else float(train.sum())
        return LossSpec(task, OUTPUTS, normalizer, weights), logits, label
    normalizer = float(train.sum()) * OUTPUTS
    if task == "multilabel":
        return LossSpec(task, OUTPUTS, normalizer, weights), logits, torch.randint(0, 2, (ROWS, OUTPUTS)).float()
    return LossSpec("regression", OUTPUTS, normalizer), logits, logits + torch.randn(ROWS, OUTPUTS)


CASES = [
    ("classification", False),
    ("classification", True),
    ("multilabel", False),
    ("multilabel", True),
    ("regression", False),
]


def torch_loss(loss: LossSpec, logits: Tensor, label: Tensor) -> Tensor:
    weights = None if loss.class_weights is None else torch.tensor(loss.class_weights)
    match loss.task:
        case "classification":
            return functional.cross_entropy(logits, label, weights)
        case "multilabel":
            return functional.binary_cross_entropy_with_logits(logits, label, weights)
    return functional.mse_loss(logits, label)


def expected(loss: LossSpec, logits: np.ndarray, label: np.ndarray) -> dict[str, float]:
    match loss.task:
        case "classification":
            guess = logits.argmax(1)
            return {"accuracy": accuracy_score(label, guess), "macro_f1": f1_score(label, guess, average="macro")}
        case "multilabel":
            guess = logits > 0
            return {"accuracy": accuracy_score(label, guess), "micro_f1": f1_score(label, guess, average="micro")}
    return {
        "mse": mean_squared_error(label, logits),
        "mae": mean_absolute_error(label, logits),
        "r2": r2_score(label, logits),
    }


@pytest.mark.parametrize(("task", "weighted"), CASES)
def test_metrics_of_every_split(task: str, weighted: bool) -> None:
    loss, logits, label = case(task, weighted)
    sums = statistics(loss, logits, label, SPLIT)
    assert sums.shape == (len(SPLITS), width(loss))
    found = metrics(loss, sums)
    for number, split in enumerate(SPLITS):
        rows = number == SPLIT
        assert found[split].pop("loss") == pytest.approx(torch_loss(loss, logits[rows], label[rows]).item(), rel=1e-6)
        assert found[split] == pytest.approx(expected(loss, logits[rows].numpy(), label[rows].numpy()), rel=1e-6)


@pytest.mark.parametrize(("task", "weighted"), CASES)
def test_the_gradient_is_that_of_the_training_loss(task: str, weighted: bool) -> None:
    loss, logits, label = case(task, weighted)
    leaf = logits.clone().requires_grad_()
    torch_loss(loss, leaf[SPLIT == 0], label[SPLIT == 0]).backward()
    torch.testing.assert_close(loss_gradient(loss, logits, label, SPLIT), leaf.grad)


@pytest.mark.parametrize(("task", "weighted"), CASES)
def test_chunks_add_up(task: str, weighted: bool) -> None:
    loss, logits, label = case(task, weighted)
    chunks = [
        statistics(loss, *rows) for rows in zip(*(x.split((0, 13, 47)) for x in (logits, label, SPLIT)), strict=True)
    ]
    assert np.allclose(sum(chunks), statistics(loss, logits, label, SPLIT), rtol=1e-7)


def test_train_only_leaves_the_others_zero() -> None:
    loss, logits, label = case("classification")
    some, full = statistics(loss, logits, label, SPLIT, counts="train"), statistics(loss, logits, label, SPLIT)
    assert np.array_equal(some[0], full[0])
    assert not some[1:].any()


@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_rows_without_label_count_nowhere(task: str) -> None:
    loss, logits, label = case(task)
    label, missing = label.clone(), torch.arange(ROWS) < 20
    label[missing] = -1 if task == "classification" else float("nan")
    split = torch.where(missing, -1, SPLIT).to(torch.int8)
    assert np.allclose(statistics(loss, logits, label, SPLIT), statistics(loss, logits, label.nan_to_num(0), split))
    gradient = loss_gradient(loss, logits, label, SPLIT)
    assert not gradient[missing].any()
    assert gradient.isfinite().all()


def test_a_split_without_vertices_has_no_metrics() -> None:
    loss, logits, label = case("classification")
    assert set(metrics(loss, statistics(loss, logits, label, torch.zeros_like(SPLIT)))) == {"train"}


def test_targets_in_one_column() -> None:
    loss = LossSpec("regression", 1, 3.0)
    prediction, label, split = (
        torch.tensor([[1.0], [2.0], [4.0]]),
        torch.tensor([1.0, 3.0, 5.0]),
        torch.zeros(3, dtype=torch.int8),
    )
    assert metrics(loss, statistics(loss, prediction, label, split))["train"]["mse"] == pytest.approx(2 / 3)
    assert loss_gradient(loss, prediction, label, split).view(-1).tolist() == pytest.approx([0, -2 / 3, -2 / 3])
