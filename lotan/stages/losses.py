"""The terms of a loss: one number for each vertex, or one for each entry of its label. Their sum is divided once, at the end.

A loss is one of the named functions below, or a user's function as calls. Each is torch's function with
reduction="none", so a mean of all terms is torch's own mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from lotan.errors import StageError
from lotan.settings.losses import LOSSES
from lotan.stages.chunk import Chunk
from lotan.stages.operators import Frame, compile_call
from lotan.stages.randomness import Randomness
from planner.loss import LossForm, LossSpec
from planner.spec import Call

Terms = Callable[..., Tensor]
"""A function of the output, the label and the weight of each row, of each output or None, and then of its arguments."""

OUTPUT, LABEL = "output", "label"
"""The names of the two values that the calls of a traced loss read."""


def _cross_entropy(output: Tensor, label: Tensor, weight: Tensor | None, label_smoothing: float = 0.0) -> Tensor:
    return functional.cross_entropy(output, label, weight, reduction="none", label_smoothing=label_smoothing)


def _nll(output: Tensor, label: Tensor, weight: Tensor | None) -> Tensor:
    return functional.nll_loss(output, label, weight, reduction="none")


def _binary(output: Tensor, label: Tensor, weight: Tensor | None, pos_weight: Any = None) -> Tensor:
    positive = None if pos_weight is None else torch.tensor(pos_weight, dtype=torch.float32)
    return functional.binary_cross_entropy_with_logits(output, label, weight, reduction="none", pos_weight=positive)


def _focal(output: Tensor, label: Tensor, weight: Tensor | None, gamma: float = 2.0, alpha: float = -1.0) -> Tensor:
    """Return the focal loss (Lin et al. 2017, equations 4 and 5). `alpha` below 0 stands for none, as in torchvision."""
    if not label.is_floating_point():
        surprise = functional.cross_entropy(output, label, reduction="none")
        terms = _hardness(surprise) ** gamma * surprise
        return terms if weight is None else terms * weight.index_select(0, label)
    surprise = functional.binary_cross_entropy_with_logits(output, label, reduction="none")
    terms = _hardness(surprise) ** gamma * surprise
    if alpha >= 0:
        terms = terms * (alpha * label + (1 - alpha) * (1 - label))
    return terms if weight is None else terms * weight


def _hardness(surprise: Tensor) -> Tensor:
    """Return 1 - p for the probability p of the label, above 0, where every power has a derivative."""
    return (-torch.expm1(-surprise)).clamp_min(1e-12)


def _regression(function: Callable[..., Tensor]) -> Terms:
    def terms(output: Tensor, label: Tensor, weight: Tensor | None, **arguments: Any) -> Tensor:
        return function(output, label, reduction="none", **arguments)

    return terms


_TERMS: Mapping[str, Terms] = {
    "cross_entropy": _cross_entropy,
    "nll": _nll,
    "bce_with_logits": _binary,
    "focal": _focal,
    "mse": _regression(functional.mse_loss),
    "l1": _regression(functional.l1_loss),
    "smooth_l1": _regression(functional.smooth_l1_loss),
    "huber": _regression(functional.huber_loss),
    "poisson_nll": _regression(functional.poisson_nll_loss),
}


def loss_terms(loss: LossSpec, output: Tensor, label: Tensor) -> Tensor:
    """Return the weighted terms of a loss that is not the task's own, float32 [rows] or [rows, outputs].

    Args:
        loss: The loss, which has a form.
        output: The model's output, float32 [rows, outputs], followed by the columns of further outputs that the loss reads.
        label: The labels, int64 [rows], or float32 [rows, outputs] with NaN for unknown entries, which count 0.
    """
    assert loss.form is not None
    weight = None if loss.class_weights is None else torch.tensor(loss.class_weights, dtype=torch.float32)
    if not label.is_floating_point():
        return _of_classes(loss, loss.form, output, label, weight)
    known = ~label.isnan()
    label = label.nan_to_num()
    if not loss.form.traced:
        terms = _TERMS[loss.form.name](output, label, weight, **dict(loss.form.arguments))
    else:
        terms = _traced(loss.form.calls)(*split_rows(loss, output), label)
        terms = terms if weight is None else terms * weight
    known = known if terms.shape == known.shape else known.all(1).view(-1, *[1] * (terms.dim() - 1))
    return torch.where(known, terms, 0.0)


def _of_classes(loss: LossSpec, form: LossForm, output: Tensor, label: Tensor, weight: Tensor | None) -> Tensor:
    if form.traced:
        terms = _traced(form.calls)(*split_rows(loss, output), label)
        of_row = None if weight is None else weight.index_select(0, label)
        return terms if of_row is None else terms * of_row.view(-1, *[1] * (terms.dim() - 1))
    named = _TERMS[form.name]
    if not loss.binary:
        return named(output, label, weight, **dict(form.arguments))
    of_row = None if weight is None else weight.index_select(0, label)
    return named(output[:, 0], label.float(), of_row, **dict(form.arguments))


@lru_cache(maxsize=32)
def _traced(calls: tuple[Call, ...]) -> Callable[[Tensor, Mapping[str, Tensor], Tensor], Tensor]:
    """Return the function that runs the calls of a traced loss on an output, what is beside it, and a label."""
    compiled = [(call.output, compile_call(call, {})) for call in calls]

    def run(output: Tensor, further: Mapping[str, Tensor], label: Tensor) -> Tensor:
        values: dict[str, Any] = {OUTPUT: output, LABEL: label, **further}
        rows = torch.arange(output.shape[0])  # a loss draws no random numbers, so any keys will do
        frame = Frame(values, Chunk(rows, values, {}), Randomness(0, 0), len(rows))
        for name, evaluate in compiled:
            values[name] = evaluate(frame)
        return cast(Tensor, values[calls[-1].output])

    return run


def split_rows(loss: LossSpec, rows: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output of a model's rows, and by name what the loss reads beside it, [rows, *shape]."""
    if not loss.further:
        return rows, {}
    further, at = {}, loss.outputs
    for name, shape in loss.further:
        further[name] = rows[:, at : at + prod(shape)].reshape(len(rows), *shape)
        at += prod(shape)
    return rows[:, : loss.outputs], further


def terms_gradient(loss: LossSpec, output: Tensor, label: Tensor) -> Tensor:
    """Return the gradient of the sum of `loss_terms` by the output, divided by the normalizer."""
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        terms = loss_terms(loss, leaf, label)
        if not terms.requires_grad:
            return torch.zeros_like(output)
        weight = torch.full_like(terms, 1 / loss.normalizer)
        return torch.autograd.grad(terms, leaf, weight)[0]


def validate_loss(loss: LossSpec) -> None:
    """Check that a loss can run.

    Raises:
        StageError: There is no loss of that name for the task, or it has no such argument. A call of a traced loss is not
            allowed, or reads a value that was not made before it.
    """
    form = loss.form
    if form is None:
        return
    if not form.traced:
        named = LOSSES.get(form.name)
        if named is None or loss.task not in named.tasks:
            raise StageError(f"loss: {loss.task} has no loss {form.name!r}")
        unknown = [name for name, _ in form.arguments if name not in named.arguments]
        if unknown:
            raise StageError(f"loss: {form.name} has no argument {unknown[0]!r}")
        return
    made = {OUTPUT, LABEL, *(name for name, _ in loss.further)}
    for call in form.calls:
        missing = [name for name in call.reads if name not in made]
        if missing or call.op.startswith("lotan."):
            raise StageError(f"loss: {call.output} = {call.op} reads {missing or 'the graph'}, which a loss cannot")
        compile_call(call, {})
        made.add(call.output)
