"""Named and traced losses, against torch: values, gradients, weights, unknown entries."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lotan.errors import ConfigurationError, ModelError, StageError
from lotan.graph.labels import LabelStatistics, loss_spec
from lotan.planning.losses import form_of
from lotan.settings.config import TrainerConfig
from lotan.settings.losses import named_loss
from lotan.stages.codec import decode_loss, encode_loss
from lotan.stages.metrics import loss_gradient, metrics, statistics
from lotan.tracing.loss import trace_loss
from planner.loss import LossForm, LossSpec

ROWS, OUTPUTS = 60, 4
SPLIT = torch.tensor([0, 0, 1, 2, -1] * (ROWS // 5), dtype=torch.int8)
WEIGHTS = (0.5, 1.0, 2.0, 1.5)
TRAIN = SPLIT == 0


def _data(task: str, outputs: int = OUTPUTS) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    output = torch.randn(ROWS, outputs)
    if task == "classification":
        return output, torch.randint(0, max(outputs, 2), (ROWS,))
    if task == "multilabel":
        return output, torch.randint(0, 2, (ROWS, outputs)).float()
    return output, torch.randint(0, 5, (ROWS, outputs)).float()


def _loss(form: LossForm | None, task: str, label: Tensor, outputs: int = OUTPUTS, weights: Any = None) -> LossSpec:
    """As a graph with these labels makes it, and as a worker reads it."""
    train = label[TRAIN]
    counts = tuple(torch.bincount(train, minlength=outputs).tolist()) if weights and task == "classification" else None
    known = ~train.isnan() if train.dim() > 1 else torch.ones(len(train), 1, dtype=torch.bool)
    labels = LabelStatistics(
        task, outputs, (len(train), 0, 0), entries=int(known.sum()), complete=int(known.all(1).sum())
    )  # type: ignore[arg-type]
    loss = loss_spec(labels, task, outputs, weights, counts, form)  # type: ignore[arg-type]
    sent = decode_loss(msgpack.unpackb(msgpack.packb(encode_loss(loss))))
    assert sent == loss
    return sent


def _compare(loss: LossSpec, output: Tensor, label: Tensor, truth: Callable[[Tensor, Tensor], Tensor]) -> None:
    leaf = output.clone().requires_grad_()
    expected = truth(leaf[TRAIN], label[TRAIN])
    expected.backward()
    found = metrics(loss, statistics(loss, output, label, SPLIT))["train"]["loss"]
    assert found == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(loss_gradient(loss, output, label, SPLIT), leaf.grad, rtol=1e-4, atol=1e-7)


def _focal(output: Tensor, label: Tensor) -> Tensor:
    chance = output.softmax(1).gather(1, label[:, None])[:, 0]
    return (-((1 - chance) ** 1.5) * chance.log()).mean()


def _sigmoid_focal(output: Tensor, label: Tensor) -> Tensor:
    chance = torch.sigmoid(output)
    right = torch.where(label > 0.5, chance, 1 - chance)
    balance = torch.where(label > 0.5, 0.25, 0.75)
    return (-balance * (1 - right) ** 2 * right.log()).mean()


NAMED = [
    (
        "classification",
        "cross_entropy(label_smoothing=0.2)",
        lambda o, y: functional.cross_entropy(o, y, label_smoothing=0.2),
    ),
    ("classification", "focal(gamma=1.5)", _focal),
    ("classification", "focal(gamma=0.0)", functional.cross_entropy),
    ("multilabel", "focal(alpha=0.25)", _sigmoid_focal),
    (
        "multilabel",
        "bce_with_logits(pos_weight=[1.0, 2.0, 3.0, 4.0])",
        lambda o, y: functional.binary_cross_entropy_with_logits(o, y, pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0])),
    ),
    ("regression", "l1", functional.l1_loss),
    ("regression", "smooth_l1(beta=0.5)", lambda o, y: functional.smooth_l1_loss(o, y, beta=0.5)),
    ("regression", "huber(delta=2.0)", lambda o, y: functional.huber_loss(o, y, delta=2.0)),
    ("regression", "poisson_nll(full=True)", lambda o, y: functional.poisson_nll_loss(o, y, full=True)),
]


@pytest.mark.parametrize(("task", "text", "truth"), NAMED, ids=[text for _, text, _ in NAMED])
def test_named_losses_are_those_of_torch(task: Any, text: str, truth: Any) -> None:
    output, label = _data(task)
    _compare(_loss(form_of(text, task, OUTPUTS), task, label), output, label, truth)


def test_nll_is_for_outputs_that_are_logarithms() -> None:
    output, label = _data("classification")
    output = output.log_softmax(1)
    _compare(
        _loss(form_of("nll_loss", "classification", OUTPUTS), "classification", label),
        output,
        label,
        functional.nll_loss,
    )


def test_class_weights_beside_label_smoothing_are_those_of_torch() -> None:
    output, label = _data("classification")
    loss = _loss(
        form_of("cross_entropy(label_smoothing=0.2)", "classification", OUTPUTS),
        "classification",
        label,
        weights=WEIGHTS,
    )
    _compare(
        loss, output, label, lambda o, y: functional.cross_entropy(o, y, torch.tensor(WEIGHTS), label_smoothing=0.2)
    )


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        (
            "bce_with_logits(pos_weight=3.0)",
            lambda o, y: functional.binary_cross_entropy_with_logits(o[:, 0], y.float(), pos_weight=torch.tensor(3.0)),
        ),
        ("focal(alpha=0.25)", lambda o, y: _sigmoid_focal(o[:, 0], y.float())),
    ],
)
def test_losses_of_one_output(text: str, truth: Any) -> None:
    output, label = _data("classification", 1)
    _compare(_loss(form_of(text, "classification", 1), "classification", label, 1), output, label, truth)


def _of_row(output: Tensor, label: Tensor) -> Tensor:
    return functional.cross_entropy(output, label, reduction="none") + 0.1 * output.square().mean(1)


def _one_hot(output: Tensor, label: Tensor) -> Tensor:
    own = output.softmax(1).gather(1, label.unsqueeze(1)).squeeze(1)
    return torch.log1p(1 - own).clamp(min=0.01)


def _margins(output: Tensor, label: Tensor) -> Tensor:
    return functional.softplus(-(2 * label - 1) * output)


def _of_all_labels(output: Tensor, label: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(output, label, reduction="none").amax(dim=-1)


def _quantile(output: Tensor, label: Tensor) -> Tensor:
    error = label - output
    return torch.maximum(0.9 * error, -0.1 * error)


TRACED = [
    ("classification", _of_row),
    ("classification", _one_hot),
    ("multilabel", _margins),
    ("multilabel", _of_all_labels),
    ("regression", _quantile),
    ("regression", lambda output, label: functional.huber_loss(output, label, reduction="none").sum(1)),
    ("regression", lambda output, label: functional.mse_loss(output, label, reduction="none")),
    ("regression", lambda output, label: torch.exp(output) - label * output),
]


@pytest.mark.parametrize(("task", "function"), TRACED)
def test_a_function_is_followed(task: Any, function: Any) -> None:
    output, label = _data(task)
    loss = _loss(form_of(function, task, OUTPUTS), task, label)
    _compare(loss, output, label, lambda o, y: function(o, y).mean())


def test_class_weights_weigh_the_rows_of_a_function() -> None:
    output, label = _data("classification")
    weight = torch.tensor(WEIGHTS)
    loss = _loss(form_of(_of_row, "classification", OUTPUTS), "classification", label, weights=WEIGHTS)
    _compare(loss, output, label, lambda o, y: (_of_row(o, y) * weight[y]).sum() / weight[y].sum())


@pytest.mark.parametrize("function", [_margins, _of_all_labels])
def test_unknown_entries_count_nowhere_in_a_function(function: Any) -> None:
    output, label = _data("multilabel")
    label[torch.rand(ROWS, OUTPUTS) < 0.2] = float("nan")
    loss = _loss(form_of(function, "multilabel", OUTPUTS), "multilabel", label)

    def truth(output: Tensor, label: Tensor) -> Tensor:
        known = ~label.isnan() if function is _margins else ~label.isnan().any(1)
        return function(output, label.nan_to_num())[known].mean()

    _compare(loss, output, label, truth)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda output, label: functional.huber_loss(output, label), 'pass reduction="none"'),
        (lambda output, label: (output - label).abs().mean(), "a loss for each vertex"),
        (lambda output, label: (output - output.mean(0)).abs(), "over all vertices"),
        (lambda output, label: (output - label) if output.sum() > 0 else output, "depends on values|over all vertices"),
        (lambda output, label: output.detach() - label, "does not depend on the output"),
        (lambda output, label: output, "computes nothing"),
        (lambda output, label: (output.T @ output).sum(1), "rows"),
        (lambda output, label: functional.dropout(output - label).abs(), "dropout|random"),
        (lambda output: output, "takes 1 positional argument"),
        (
            lambda output, label: (output - label) * torch.tensor([1.0, 2.0, 3.0, 4.0]),
            "reads a tensor of its own.*class_weights",
        ),
        (
            lambda output, label: (output - label).abs() * (2 if random.random() < 1e-6 else 1),
            "it draws random numbers from",
        ),
        (torch.nn.Linear(4, 4), "has neither parameters nor buffers"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_reason(function: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        trace_loss(function, "regression", OUTPUTS)
    assert str(caught.value).startswith("loss ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hubert", "did you mean huber"),
        ("huber(beta=1.0)", "no argument 'beta'; it has delta"),
        ("huber(delta='x')", "delta"),
        ("cross_entropy(label_smoothing=2.0)", "from 0 to 1"),
        ("cross_entropy(0.1)", "argument without a name"),
        (torch.nn.MSELoss(reduction="sum"), "reduction='sum'"),
        (torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])), "class_weights="),
        (torch.nn.CrossEntropyLoss, "expected a text such as"),
        (3, "expected a text such as"),
    ],
)
def test_unusable_losses_are_refused_at_once(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TrainerConfig(loss=given)


@pytest.mark.parametrize(
    ("text", "task", "outputs", "message"),
    [
        ("huber", "classification", 3, "which has cross_entropy, nll, focal"),
        ("cross_entropy", "regression", 3, "the task is regression"),
        ("cross_entropy", "classification", 1, "the model has 1"),
        ("bce_with_logits", "classification", 2, "one output for the classes 0 and 1"),
        ("bce_with_logits(pos_weight=[1.0, 2.0])", "multilabel", 3, "of 2 numbers; expected one number, or 3"),
        ("focal(alpha=0.3)", "classification", 3, "class_weights"),
    ],
)
def test_a_loss_of_another_task_is_refused(text: str, task: Any, outputs: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        form_of(text, task, outputs)


def test_losses_of_torch_become_names() -> None:
    assert str(named_loss(torch.nn.CrossEntropyLoss(label_smoothing=0.1))) == "cross_entropy(label_smoothing=0.1)"
    assert str(named_loss(torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0])))) == (
        "bce_with_logits(pos_weight=(1.0, 2.0))"
    )
    assert str(named_loss(functional.smooth_l1_loss)) == "smooth_l1"
    assert str(named_loss("SmoothL1Loss(beta=2.0)")) == "smooth_l1(beta=2.0)"
    assert form_of(torch.nn.CrossEntropyLoss(), "classification", 3) is None


@pytest.mark.parametrize(
    "change",
    [
        {"form": {"name": "system", "arguments": [], "calls": []}},
        {"form": {"name": "huber", "arguments": [], "calls": []}},
        {"form": {"name": "focal", "arguments": [["path", "x"]], "calls": []}},
        {"metrics": ["rm"]},
        {"thresholds": [0.5, 1.0]},
        {"class_weights": "ab"},
        {"further": [["z"]]},
        {"shown": 1.5},
    ],
)
def test_a_worker_takes_known_losses_only(change: dict[str, Any]) -> None:
    data = encode_loss(LossSpec("classification", 3, 1.0))
    with pytest.raises(StageError):
        decode_loss({**data, **change})
    old = {key: value for key, value in data.items() if key not in ("form", "metrics")}
    assert decode_loss(old) == LossSpec("classification", 3, 1.0)  # as version 0.1 has saved it
