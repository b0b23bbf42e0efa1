"""Losses by name with arguments, or as a user's function of the output and the label.

    loss="cross_entropy(label_smoothing=0.1)"
    loss=torch.nn.HuberLoss(delta=0.5)
    loss=lambda output, label: (output - label).abs().sqrt()

`LOSSES` has the names. A function returns a loss for each vertex; the mean over them is taken later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lotan.arguments import LARGEST, described, nearest, require_flag, require_number
from lotan.errors import ConfigurationError
from lotan.settings.named_calls import NamedCall, read_call, words_of
from planner.loss import LossForm, Task

Kind = Literal["number", "share", "flag", "weights"]
"""The kind of an argument: a number of at least 0, one from 0 to 1, True or False, or one number or one for each output."""


class NamedLoss(NamedTuple):
    """A loss that has a name: the tasks that it is for, and its arguments. `lotan.stages.losses` computes it."""

    tasks: tuple[Task, ...]
    arguments: Mapping[str, Kind]


LOSSES: Mapping[str, NamedLoss] = {
    "cross_entropy": NamedLoss(("classification",), {"label_smoothing": "share"}),
    "nll": NamedLoss(("classification",), {}),
    "bce_with_logits": NamedLoss(("classification", "multilabel"), {"pos_weight": "weights"}),
    "focal": NamedLoss(("classification", "multilabel"), {"gamma": "number", "alpha": "share"}),
    "mse": NamedLoss(("regression",), {}),
    "l1": NamedLoss(("regression",), {}),
    "smooth_l1": NamedLoss(("regression",), {"beta": "number"}),
    "huber": NamedLoss(("regression",), {"delta": "number"}),
    "poisson_nll": NamedLoss(("regression",), {"log_input": "flag", "full": "flag", "eps": "number"}),
}

LossSetting = str | Callable[[Tensor, Tensor], Tensor]
"""A name with arguments, a loss module or loss function of torch's, or a function of the user's own."""

EXAMPLE = "cross_entropy(label_smoothing=0.1)"
OWN: Mapping[Task, str] = {"classification": "cross_entropy", "multilabel": "bce_with_logits", "regression": "mse"}
"""The loss of each task. Of classification with one output, it is "bce_with_logits"."""

_FUNCTIONS: Mapping[Any, str] = {
    functional.cross_entropy: "cross_entropy",
    functional.nll_loss: "nll",
    functional.binary_cross_entropy_with_logits: "bce_with_logits",
    functional.mse_loss: "mse",
    functional.l1_loss: "l1",
    functional.smooth_l1_loss: "smooth_l1",
    functional.huber_loss: "huber",
    functional.poisson_nll_loss: "poisson_nll",
}
_MODULES: Mapping[type[torch.nn.Module], str] = {
    torch.nn.CrossEntropyLoss: "cross_entropy",
    torch.nn.NLLLoss: "nll",
    torch.nn.BCEWithLogitsLoss: "bce_with_logits",
    torch.nn.MSELoss: "mse",
    torch.nn.L1Loss: "l1",
    torch.nn.SmoothL1Loss: "smooth_l1",
    torch.nn.HuberLoss: "huber",
    torch.nn.PoissonNLLLoss: "poisson_nll",
}
_SAME = {
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "mae": "l1",
    **{module.__name__: name for module, name in _MODULES.items()},
}
"""Other names of losses: those of torch's modules, and of metrics."""


def named_loss(given: LossSetting) -> NamedCall | None:
    """Return a loss as a name with arguments, or None for a function of the user's own.

    Raises:
        ConfigurationError: If there is no loss of that name, if it has no such argument, or if an argument is unusable.

    >>> str(named_loss("huber_loss(delta=2.0)")), str(named_loss("HuberLoss")), str(named_loss(torch.nn.MSELoss()))
    ('huber(delta=2.0)', 'huber', 'mse')
    """
    if isinstance(given, str):
        call = read_call("loss", given, EXAMPLE)
    elif type(given) in _MODULES:
        call = _of_module(given)  # type: ignore[arg-type]  # its type is one of torch's modules
    elif isinstance(given, Hashable) and given in _FUNCTIONS:
        call = NamedCall(_FUNCTIONS[given])
    elif callable(given) and not isinstance(given, type):
        return None
    else:
        raise ConfigurationError(
            f"loss is {described(given)}; expected a text such as {EXAMPLE!r}, a loss of torch.nn such as "
            "torch.nn.HuberLoss(), or a function of output and label"
        )
    name = _SAME.get(call.name, call.name.removesuffix("_loss"))
    if name not in LOSSES:
        near = nearest(name, LOSSES)
        meant = f"did you mean {near}? " if near else ""
        raise ConfigurationError(
            f"unknown loss {call.name!r}; {meant}There are {', '.join(LOSSES)}, or give a function of output and label"
        )
    kinds = LOSSES[name].arguments
    for argument, value in call.arguments:
        if argument not in kinds:
            there = f"it has {', '.join(kinds)}" if kinds else "it has none"
            raise ConfigurationError(f"loss {name} has no argument {argument!r}; {there}")
        _check(name, argument, value, kinds[argument])
    return NamedCall(name, call.arguments)


def _of_module(module: torch.nn.Module) -> NamedCall:
    name = _MODULES[type(module)]
    if getattr(module, "reduction", "mean") == "sum":
        raise ConfigurationError(
            f"loss is {described(module)} with reduction='sum', but the mean over vertices is taken: leave reduction out"
        )
    weight = getattr(module, "weight", None)
    if weight is not None:
        raise ConfigurationError(f"loss {name} has weights of its own; give them as class_weights={weight.tolist()}")
    if getattr(module, "ignore_index", -100) != -100:
        raise ConfigurationError(f"loss {name} has an ignore_index; give vertices without a label the label -1")
    found = []
    for argument in LOSSES[name].arguments:
        value = getattr(module, argument, None)
        if value is not None:
            plain = value.tolist() if isinstance(value, Tensor) else value
            found.append((argument, tuple(plain) if isinstance(plain, list) else plain))
    return NamedCall(name, tuple(found))


def _check(loss: str, argument: str, value: Any, kind: Kind) -> None:
    owner = f"loss {loss}"
    match kind:
        case "flag":
            require_flag(owner, argument, value)
        case "weights" if isinstance(value, tuple):
            for one in value:
                require_number(owner, argument, one, 0.0)
        case _:
            require_number(owner, argument, value, 0.0, 1.0 if kind == "share" else LARGEST)


def form_of_name(call: NamedCall, task: Task, outputs: int) -> LossForm | None:
    """Return a named loss for a task; None for the task's own loss without arguments.

    Raises:
        ConfigurationError: If the loss is for other tasks, or if an argument has not one number for each output.
    """
    binary = task == "classification" and outputs == 1
    if call.name not in losses_of(task, outputs):
        raise ConfigurationError(_misfit(call.name, task, outputs))
    if call.name == "focal" and task == "classification" and not binary and "alpha" in call.keywords:
        raise ConfigurationError("loss focal takes alpha for classes of 0 and 1 only; give class_weights instead")
    for argument, value in call.arguments:
        if isinstance(value, tuple) and len(value) != outputs:
            raise ConfigurationError(
                f"loss {call.name} got {argument} of {len(value)} numbers; expected one number, or {outputs}, one per output"
            )
    arguments = tuple((name, value) for name, value in call.arguments if (name, value) != ("label_smoothing", 0.0))
    own = "bce_with_logits" if binary else OWN[task]
    return None if call.name == own and not arguments else LossForm(call.name, arguments)


def losses_of(task: Task, outputs: int) -> tuple[str, ...]:
    """Return the names of the losses that a task has."""
    if task == "classification":
        return ("bce_with_logits", "focal") if outputs == 1 else ("cross_entropy", "nll", "focal")
    return tuple(name for name, loss in LOSSES.items() if task in loss.tasks)


def _misfit(name: str, task: Task, outputs: int) -> str:
    if task == "classification" and name == "bce_with_logits":
        return (
            f"loss bce_with_logits needs one output for the classes 0 and 1, but the model has {outputs}; give it "
            "1 output, or labels as arrays of 0 and 1"
        )
    if task == "classification" and outputs == 1 and "classification" in LOSSES[name].tasks:
        return f"loss {name} needs an output for each class, but the model has 1; take bce_with_logits, or 2 outputs"
    there = ", ".join(losses_of(task, outputs))
    return f"loss {name} is for {' or '.join(LOSSES[name].tasks)}, but the task is {task}, which has {there}"


def further_of(given: LossSetting | None) -> tuple[str, ...]:
    """Return what a loss reads beside the output and the label: the names of a function's further arguments.

    >>> further_of(lambda output, label, aux: output), further_of("cross_entropy"), further_of(None)
    (('aux',), (), ())
    """
    if given is None or named_loss(given) is not None:
        return ()
    function: Any = given.forward if isinstance(given, torch.nn.Module) else given
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function that is not written in Python
        return ()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in [*arguments][2:] if one.kind in plain and one.default is one.empty)


def loss_words(given: LossSetting) -> str:
    """Return a loss in words that do not change between runs.

    >>> loss_words(torch.nn.HuberLoss(delta=2.0)), loss_words(loss_words)
    ('huber(delta=2.0)', 'lotan.settings.losses:loss_words')
    """
    return str(named_loss(given) or words_of(given))


def one_output(loss: LossSetting | None, task: Task, classes: int) -> bool:
    """Return True if a loss asks for one output for two classes."""
    if loss is None or task != "classification" or classes > 2:
        return False
    call = named_loss(loss)
    return call is not None and call.name == "bce_with_logits"
