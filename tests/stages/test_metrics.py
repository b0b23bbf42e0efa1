"""Metrics and losses against scikit-learn and torch; sums over chunks against sums over all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    roc_auc_score,
)
from torch import Tensor
from torch.nn import functional

from lotan.stages import ranking
from lotan.stages.metrics import loss_gradient, metrics, statistics, width
from planner.loss import LossSpec
from planner.spec import SPLITS

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
            return {
                "accuracy": accuracy_score(label, guess),
                "micro_f1": f1_score(label, guess, average="micro"),
                "macro_f1": f1_score(label, guess, average="macro"),
            }
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


FURTHER = ("roc_auc", "average_precision", "f1")


def ranked_case(kind: str, rows: int = 400) -> tuple[LossSpec, Tensor, Tensor]:
    """Outputs with ties and scores far out, and labels that follow them roughly."""
    torch.manual_seed(3)
    outputs = {"one output": 1, "two classes": 2, "classes": 5, "labels": 4}[kind]
    logits = torch.randn(rows, outputs) * torch.tensor([0.01, 1.0, 30.0])[torch.randint(0, 3, (rows, 1))]
    logits[::7] = 0.25
    if kind == "labels":
        label = (logits + torch.randn(rows, outputs) > 0.5).float()
        label[torch.rand(rows, outputs) < 0.3] = float("nan")
        return LossSpec("multilabel", outputs, 1.0, metrics=FURTHER), logits, label
    noisy = logits + torch.randn(rows, outputs)
    label = (noisy[:, 0] > 0).long() if outputs == 1 else noisy.argmax(1)
    return LossSpec("classification", outputs, 1.0, metrics=FURTHER), logits, label


def one_against_all(loss: LossSpec, logits: Tensor, label: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each ranked class, whether a row is of it, and its score; by brute force."""
    if loss.task == "multilabel":
        pairs = [(label[:, one], logits[:, one]) for one in range(loss.outputs)]
        return [(own[~own.isnan()].numpy(), score[~own.isnan()].double().numpy()) for own, score in pairs]
    if loss.binary:
        return [((label == 1).numpy(), logits[:, 0].double().numpy())]
    chance = logits.double().softmax(1)
    classes = [1] if loss.outputs == 2 else range(loss.outputs)
    odds = [
        torch.stack([torch.logsumexp(logits.double()[:, [o for o in range(loss.outputs) if o != one]], 1)], 1)[:, 0]
        for one in classes
    ]
    assert chance.isfinite().all()
    return [
        ((label == one).numpy(), (logits.double()[:, one] - other).numpy())
        for one, other in zip(classes, odds, strict=True)
    ]


@pytest.mark.parametrize("kind", ["one output", "two classes", "classes", "labels"])
def test_ranks_are_exact_for_binned_scores_and_close_for_scores(kind: str) -> None:
    loss, logits, label = ranked_case(kind)
    split = torch.zeros(len(logits), dtype=torch.int8)
    chunks = [
        statistics(loss, *rows) for rows in zip(*(x.split((30, 170, 200)) for x in (logits, label, split)), strict=True)
    ]
    assert np.array_equal(sum(chunks)[:, 2:], statistics(loss, logits, label, split)[:, 2:])  # counts are exact
    found = metrics(loss, sum(chunks))["train"]
    truth = one_against_all(loss, logits, label)
    binned = [(own, ranking.bins_of(torch.from_numpy(score)).numpy()) for own, score in truth]
    assert found["roc_auc"] == pytest.approx(np.mean([roc_auc_score(*pair) for pair in binned]), rel=1e-12)
    assert found["average_precision"] == pytest.approx(
        np.mean([average_precision_score(*pair) for pair in binned]), rel=1e-12
    )
    exact = np.mean([roc_auc_score(*pair) for pair in truth])
    assert abs(found["roc_auc"] - exact) <= found["roc_auc_error"] + 1e-12
    assert found["roc_auc_error"] < 0.05
    guess = (logits[:, 0] > 0).long() if loss.binary else logits.argmax(1)
    for number in range(loss.classes):
        own = label == number if loss.task == "classification" else label[:, number] > 0.5
        hit = guess == number if loss.task == "classification" else (logits[:, number] > 0) & ~label[:, number].isnan()
        assert found[f"f1_{number}"] == pytest.approx(f1_score(own, hit, zero_division=0.0))


def test_bins_are_in_the_order_of_scores_and_symmetric() -> None:
    scores = torch.cat([torch.logspace(-6, 3, 5000, dtype=torch.float64), torch.zeros(1)]).sort().values
    scores = torch.cat([-scores.flip(0), scores])
    bins = ranking.bins_of(scores)
    assert (bins.diff() >= 0).all()
    assert bins.min() == 0
    assert bins.max() == ranking.BINS - 1
    assert torch.equal(bins.flip(0), ranking.BINS - 1 - bins)


def test_training_alone_counts_no_scores() -> None:
    loss, logits, label = ranked_case("classes")
    sums = statistics(loss, logits, label, torch.zeros(len(logits), dtype=torch.int8), counts="train")
    assert sums.shape == (len(SPLITS), width(loss, "train"))
    assert "roc_auc" not in metrics(loss, sums)["train"]


def test_a_class_alone_has_no_area() -> None:
    loss = LossSpec("classification", 2, 1.0, metrics=("roc_auc",))
    sums = statistics(loss, torch.randn(5, 2), torch.ones(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int8))
    assert np.isnan(metrics(loss, sums)["train"]["roc_auc"])


@pytest.mark.parametrize("weighted", [False, True])
def test_one_output_is_the_binary_loss(weighted: bool) -> None:
    torch.manual_seed(2)
    logits, label = torch.randn(ROWS, 1), torch.randint(0, 2, (ROWS,))
    weights = torch.tensor([0.5, 3.0]) if weighted else torch.ones(2)
    train = SPLIT == 0
    normalizer = weights[label[train]].sum().item()
    loss = LossSpec("classification", 1, normalizer, tuple(weights.tolist()) if weighted else None)
    leaf = logits.clone().requires_grad_()
    both = torch.cat([torch.zeros_like(leaf), leaf], 1)  # the same model with two outputs
    expected = functional.cross_entropy(both[train], label[train], weights)
    expected.backward()
    found = metrics(loss, statistics(loss, logits, label, SPLIT))["train"]
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-6)
    assert found["accuracy"] == pytest.approx(accuracy_score(label[train], logits[train, 0] > 0))
    assert found["macro_f1"] == pytest.approx(f1_score(label[train], logits[train, 0] > 0, average="macro"))
    torch.testing.assert_close(loss_gradient(loss, logits, label, SPLIT), leaf.grad)


def test_unknown_entries_of_several_labels_count_nowhere() -> None:
    loss, logits, label = case("multilabel", weighted=True)
    label[torch.rand(ROWS, OUTPUTS) < 0.4] = float("nan")
    train = (SPLIT == 0) & ~label.isnan().all(1)
    known = ~label[train].isnan()
    loss = LossSpec("multilabel", OUTPUTS, float(known.sum()), WEIGHTS)
    leaf = logits.clone().requires_grad_()
    terms = functional.binary_cross_entropy_with_logits(
        leaf[train], label[train].nan_to_num(), torch.tensor(WEIGHTS), reduction="none"
    )
    expected = terms[known].sum() / known.sum()
    expected.backward()
    found = metrics(loss, statistics(loss, logits, label, SPLIT))["train"]
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(loss_gradient(loss, logits, label, SPLIT), leaf.grad)
    hits, truth = (logits[train] > 0)[known], label[train][known]
    assert found["micro_f1"] == pytest.approx(f1_score(truth, hits))
    right = ((logits[train] > 0).float() == label[train]) | ~known
    assert found["accuracy"] == pytest.approx(right.all(1).double().mean().item())
