"""Optimizers as plain data: torch's names, arguments and defaults. The driver builds torch's optimizer from them.

    Adam(lr=0.01, weight_decay=5e-4)
    Adam(lr=0.01, groups={"convs.0": {"weight_decay": 5e-4}})  # weight decay on the first layer only

`groups` maps the qualified name of a module or a parameter to the arguments that differ there. If several names match a
parameter, the longest one applies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch

from lotan.arguments import LARGEST, described, require_flag, require_number, unknown, wrong
from lotan.errors import ConfigurationError
from lotan.settings.row_wise import LazyAdam, check_row_wise

Overrides = Mapping[str, Mapping[str, Any]]

WEIGHT_DECAY = 5e-4
"""The weight decay of `lotan train`, of grids and of Spark ML, where none is given."""
_PAIR = "tuple[float, float]"
_HOW = "it changes how torch runs a step, and not its result; leave it out"
_OF_TORCH = {
    **dict.fromkeys(("capturable", "differentiable", "foreach", "fused"), _HOW),
    "maximize": "training minimises a loss; pass a loss of your own that returns the negative",
    "decoupled_weight_decay": "use AdamW",
    "params": "the Trainer gives it the model's parameters; groups={name: {...}} sets other values for some",
    "learning_rate": "pass it as lr",
}
"""The arguments of torch's classes and of other libraries that no optimizer takes here, each with what to do instead."""


@dataclass(frozen=True)
class Optimizer:
    """The base class of all optimizers. It checks the arguments and builds torch's optimizer.

    Raises:
        ConfigurationError: If an argument has the wrong type, or is out of the range that torch takes.
    """

    torch_class: ClassVar[type[torch.optim.Optimizer]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse arguments of other names, among them those of torch's class that change nothing here."""
        takes = [item.name for item in dataclasses.fields(cls)]
        if others := [name for name in kwargs if name not in takes]:
            raise unknown(cls.__name__, others, takes, _OF_TORCH, ConfigurationError)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse arguments that torch would refuse only when training starts, or not at all."""
        arguments = self._arguments()
        groups = arguments.pop("groups")
        if not isinstance(groups, Mapping) or not all(isinstance(item, Mapping) for item in groups.values()):
            expected = 'a mapping such as {"convs.0": {"weight_decay": 5e-4}}'
            raise wrong(type(self).__name__, "groups", groups, expected)
        self._check_values(arguments)
        for group, overrides in groups.items():
            self._check_names(group, overrides, arguments)
            self._check_values({**arguments, **overrides})

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], by_row: Collection[str] = ()
    ) -> torch.optim.Optimizer:
        """Return torch's optimizer over a model's parameters.

        Args:
            parameters: The trainable parameters by their qualified names.
            by_row: The names of those with a row for each vertex that have sparse gradients: see `lotan.settings.row_wise`.

        Raises:
            ConfigurationError: If `groups` names something that the model lacks, if there are no parameters, or if rows
                cannot be trained by this optimizer.
        """
        if not parameters:
            raise ConfigurationError(
                "the model has no parameters to train; leave requires_grad True for some, or predict without training"
            )
        arguments = self._arguments()
        groups: Overrides = arguments.pop("groups")
        _check_groups(groups, parameters)
        members: dict[str, dict[str, torch.nn.Parameter]] = {}
        for name, parameter in parameters.items():
            members.setdefault(_group_of(name, groups), {})[name] = parameter
        param_groups = [{"params": list(named.items()), **groups.get(group, {})} for group, named in members.items()]
        rows = [name for name in parameters if name in by_row]
        for name in rows:
            check_row_wise(type(self).__name__, name, {**arguments, **groups.get(_group_of(name, groups), {})})
        if rows and self.torch_class is torch.optim.Adam:
            return LazyAdam(param_groups, **arguments)
        return self.torch_class(param_groups, **arguments)

    def trial(self) -> torch.optim.Optimizer:
        """Return torch's optimizer over a parameter that no model has, to try things on."""
        arguments = self._arguments()
        del arguments["groups"]
        return self.torch_class([torch.nn.Parameter(torch.zeros(1))], **arguments)

    def _arguments(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def _check_names(self, group: str, overrides: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        for argument in overrides:
            if argument not in arguments:
                raise ConfigurationError(
                    f"groups[{group!r}] sets {argument!r}, which {type(self).__name__} does not take; "
                    f"it takes {', '.join(arguments)}"
                )

    def _check_values(self, arguments: Mapping[str, Any]) -> None:
        owner = type(self).__name__
        types = {item.name: item.type for item in dataclasses.fields(self)}  # as text
        for name, value in arguments.items():
            if types[name] == "bool":
                require_flag(owner, name, value)
            elif types[name] == _PAIR:
                _check_pair(owner, name, value, most=1.0 if name == "betas" else LARGEST)
            else:
                require_number(owner, name, value)
        try:  # torch checks its own limits
            self.torch_class([torch.nn.Parameter(torch.zeros(1))], **arguments)
        except ValueError as error:
            given = ", ".join(f"{name}={described(value)}" for name, value in arguments.items())
            raise ConfigurationError(f"{owner}({given}): {error}") from error


def _check_pair(owner: str, name: str, pair: Any, most: float) -> None:
    """Require two numbers of at least 0."""
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        limits = " from 0 to 1" if most == 1.0 else ""
        raise wrong(owner, name, pair, f"two numbers{limits}, such as (0.9, 0.999)")
    for number in pair:
        require_number(owner, name, number, 0.0, most)


def _check_groups(groups: Overrides, parameters: Mapping[str, Any]) -> None:
    for group in groups:
        if not any(_belongs(name, group) for name in parameters):
            raise ConfigurationError(
                f"groups names {group!r}, but the model has no such module or trainable parameter; "
                f"it has {', '.join(parameters)}"
            )


def _belongs(parameter: str, group: str) -> bool:
    return parameter == group or parameter.startswith(group + ".")


def _group_of(parameter: str, groups: Overrides) -> str:
    return max((group for group in groups if _belongs(parameter, group)), key=len, default="")


@dataclass(frozen=True)
class Adam(Optimizer):
    """The settings of `torch.optim.Adam`, with the same defaults."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.Adam


@dataclass(frozen=True)
class AdamW(Optimizer):
    """The settings of `torch.optim.AdamW`, in which weight decay is separate from the gradient."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    amsgrad: bool = False
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.AdamW


@dataclass(frozen=True)
class SGD(Optimizer):
    """The settings of `torch.optim.SGD`, with the same defaults."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.SGD


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """The settings of `torch.optim.Adagrad`, with the same defaults."""

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.Adagrad


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """The settings of `torch.optim.Adadelta`, with the same defaults."""

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.Adadelta


@dataclass(frozen=True)
class Adamax(Optimizer):
    """The settings of `torch.optim.Adamax`, with the same defaults."""

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.Adamax


@dataclass(frozen=True)
class NAdam(Optimizer):
    """The settings of `torch.optim.NAdam`, with the same defaults."""

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.NAdam


@dataclass(frozen=True)
class RAdam(Optimizer):
    """The settings of `torch.optim.RAdam`, with the same defaults."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.RAdam


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """The settings of `torch.optim.RMSprop`, with the same defaults."""

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.RMSprop


@dataclass(frozen=True)
class Rprop(Optimizer):
    """The settings of `torch.optim.Rprop`, with the same defaults. It has no weight decay."""

    lr: float = 1e-2
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50.0)
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.Rprop


@dataclass(frozen=True)
class ASGD(Optimizer):
    """The settings of `torch.optim.ASGD`, with the same defaults. The averaged weights are not used."""

    lr: float = 1e-2
    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6
    weight_decay: float = 0.0
    groups: Overrides = field(default_factory=dict)

    torch_class = torch.optim.ASGD


OPTIMIZERS: dict[str, type[Optimizer]] = {
    kind.__name__.lower(): kind
    for kind in (Adam, AdamW, SGD, Adagrad, Adadelta, Adamax, NAdam, RAdam, RMSprop, Rprop, ASGD)
}
_REFUSED = {
    "lbfgs": "it computes several losses a step, and an epoch has one",
    "sparseadam": "use adam, which trains learned rows in mini-batches as SparseAdam does, and other parameters as ever",
}


def optimizer_by_name(name: str, **arguments: Any) -> Optimizer:
    """Return the optimizer with a given name, as in `optimizer_by_name("adam", lr=0.01)`.

    Args:
        name: One of the keys of `OPTIMIZERS`, in upper or lower case.
        arguments: The arguments of the optimizer's class.

    Raises:
        ConfigurationError: If the name or an argument is unknown.
    """
    if name.lower() not in OPTIMIZERS:
        reason = _REFUSED.get(name.lower())
        why = f"{name} is not supported: {reason}" if reason else f"unknown optimizer {name!r}"
        raise ConfigurationError(f"{why}; there are {', '.join(OPTIMIZERS)}")
    try:
        return OPTIMIZERS[name.lower()](**arguments)
    except TypeError as error:
        raise ConfigurationError(f"optimizer {name!r}: {error}") from error


def plain_optimizer(name: str, lr: float, weight_decay: float | None) -> Optimizer:
    """Return an optimizer by the settings that a command line has.

    Args:
        name: One of the keys of `OPTIMIZERS`.
        lr: The learning rate.
        weight_decay: The weight decay; None: `WEIGHT_DECAY`, or none if the optimizer has no weight decay.

    Raises:
        ConfigurationError: If the name is unknown, or if an optimizer without weight decay is given one.

    >>> plain_optimizer("sgd", 0.1, None).weight_decay
    0.0005
    """
    decay = {} if weight_decay is None else {"weight_decay": weight_decay}
    kind = OPTIMIZERS.get(name.lower())
    if weight_decay is None and kind is not None and "weight_decay" in kind.__dataclass_fields__:
        decay = {"weight_decay": WEIGHT_DECAY}
    return optimizer_by_name(name, lr=lr, **decay)
