"""The model inside what torch wraps around models: compiled models, and models on several devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lotan.errors import ModelError

WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""The classes of torch that wrap a model, each with the attribute that holds it."""


@contextmanager
def uncompiled() -> Iterator[None]:
    """Let parts of a model that torch.compile has wrapped run as they were written, so that they can be followed."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is None:  # nothing was compiled
        yield
        return
    with torch.compiler.set_stance("force_eager"), dynamo.config.patch(error_on_nested_fx_trace=False):
        yield


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model inside torch.compile, DataParallel and DistributedDataParallel, or a model itself.

    A plan runs the operators of the model itself, so such a wrapper would change nothing. The weights are shared: the
    wrapper has what is trained.

    Raises:
        ModelError: The model, or a part of it, was made by torch.jit, which leaves no forward that can be followed.

    Example:
        >>> model = torch.nn.Linear(2, 3)
        >>> unwrapped(torch.nn.DataParallel(model)) is model
        True
    """
    if "_modules" not in vars(model):
        raise ModelError(
            f"{type(model).__name__} is no complete torch module, because its __init__ does not begin with "
            "super().__init__(); call it there"
        )
    while type(model).__module__.startswith("torch.") and type(model).__name__ in WRAPPERS:
        model = getattr(model, WRAPPERS[type(model).__name__])
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"layer {name!r}" if name else "the model"
            raise ModelError(
                f"{what} is compiled by torch.jit, and nothing can follow its forward; pass the module that torch.jit.script or "
                "torch.jit.trace was given, which a plan runs as fast"
            )
    return model
