"""A model's `training` flags: setting them for a trace, and finding out whether a forward reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

FLAG = "training"


@contextmanager
def in_mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """Put a model into training or evaluation mode for the block. Afterwards every module has its own mode again."""
    flags = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


@dataclass
class Reads:
    """Tells what a block has read: `any` is True if it was the `training` flag of some module."""

    any: bool = False


@contextmanager
def watched_flags(model: torch.nn.Module) -> Iterator[Reads]:
    """Yield whether the block reads the `training` flag of a model's modules. A module with its own `train` counts as read.

    The flag lies in a module's own attributes. A property of the class comes before these, and so sees each read.
    """
    modules = set(model.modules())  # torch.fx reads the flags of modules of its own
    reads = Reads(any(type(module).train is not torch.nn.Module.train for module in modules))

    def read(module: torch.nn.Module) -> bool:
        reads.any |= module in modules
        if FLAG not in vars(module):
            raise AttributeError(FLAG)
        return bool(vars(module)[FLAG])

    def write(module: torch.nn.Module, value: bool) -> None:
        vars(module)[FLAG] = value

    torch.nn.Module.training = property(read, write)  # type: ignore[assignment]
    try:
        yield reads
    finally:
        del torch.nn.Module.training
