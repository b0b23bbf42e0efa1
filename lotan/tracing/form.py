"""The form of a model, which determines its trace. Models made of torch.nn's, lotan.nn's and PyG's modules have one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import BuiltinFunctionType, FunctionType

import torch
from torch import Tensor

KNOWN = ("torch.nn.modules.", "lotan.nn.", "torch_geometric.nn.", "torch_geometric.utils.")
"""Packages whose modules' behaviour depends on their types and fields alone."""

LARGEST_CONSTANT = 1024
"""The number of elements of the largest buffer that is compared by value."""

_PYG = "torch_geometric."
_BY_NAME = ("_parameters", "_buffers", "_modules", "training")
_DERIVED = ("inspector", "_flat_weights", "_flat_weight_refs")
"""Fields that follow from a module's type and parameters: those of PyG's layers, and of torch's recurrent ones."""


def form_of(model: torch.nn.Module) -> Hashable | None:
    """Return a model's form, or None if it has none. Models of equal form have equal traces.

    >>> form_of(torch.nn.Dropout(0.5)) == form_of(torch.nn.Dropout(0.5)) != form_of(torch.nn.Dropout(0.6))
    True
    """
    modules = tuple(_module(name, module) for name, module in model.named_modules(remove_duplicate=False))
    if None in modules:
        return None
    named = [*model.named_parameters(), *model.named_buffers()]  # a parameter that is shared appears once
    return modules, tuple((name, tuple(t.shape), t.requires_grad, t.dtype) for name, t in named)


def _module(name: str, module: torch.nn.Module) -> Hashable | None:
    if not type(module).__module__.startswith(KNOWN) or torch.nn.utils.parametrize.is_parametrized(module):
        return None
    fields = {key: value for key, value in vars(module).items() if key not in (*_BY_NAME, *_DERIVED)}
    fields = {key: value for key, value in fields.items() if key not in getattr(type(module), "UNTRACED", ())}
    plain = {key: _plain(value) for key, value in fields.items()}
    if type(module).__module__.startswith(_PYG):  # whose layers may keep constants in buffers
        plain |= {key: _constant(value) for key, value in module._buffers.items() if value is not None}
    return None if None in plain.values() else (name, type(module), tuple(sorted(plain.items())))


def _constant(value: Tensor) -> str | None:
    return repr(value.tolist()) if value.numel() <= LARGEST_CONSTANT else None


def _plain(value: object) -> Hashable | None:
    """Return a value as a key, or None if it is more than numbers, names and known functions in lists and dictionaries."""
    if isinstance(value, Mapping):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, tuple | list) or (isinstance(value, set) and not value):
        parts = tuple(_plain(part) for part in value)
        return None if None in parts else parts
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return value if str(value.__module__).startswith(("torch", *KNOWN)) else None
    return repr(value) if value is None or type(value) in (bool, int, float, str) else None
