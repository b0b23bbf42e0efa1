"""What a trace depends on, of models that consist of well-known modules alone: those of torch.nn and lotan.nn."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch

KNOWN = ("torch.nn.modules.", "lotan.nn.")
"""Packages whose modules do what their types and fields say, and nothing else."""

_BY_NAME = ("_parameters", "_buffers", "_modules", "training")


def form_of(model: torch.nn.Module) -> Hashable | None:
    """Equal for two models of which the traces are equal; None where that cannot be told.

    >>> form_of(torch.nn.Dropout(0.5)) == form_of(torch.nn.Dropout(0.5)) != form_of(torch.nn.Dropout(0.6))
    True
    """
    modules = tuple(_module(name, module) for name, module in model.named_modules(remove_duplicate=False))
    if None in modules:
        return None
    named = [*model.named_parameters(), *model.named_buffers()]  # a shared one appears once
    return modules, tuple((name, tuple(t.shape), t.requires_grad, t.dtype) for name, t in named)


def _module(name: str, module: torch.nn.Module) -> Hashable | None:
    if not type(module).__module__.startswith(KNOWN) or torch.nn.utils.parametrize.is_parametrized(module):
        return None
    fields = {key: value for key, value in vars(module).items() if key not in _BY_NAME}
    plain = {key: _plain(value) for key, value in fields.items()}
    return None if None in plain.values() else (name, type(module), tuple(sorted(plain.items())))


def _plain(value: object) -> str | None:
    """A value in words, if it is one of numbers, names and empty containers."""
    if isinstance(value, Mapping | set) and not value:
        return "{}"
    if isinstance(value, tuple | list):
        parts = [_plain(part) for part in value]
        return None if None in parts else repr(parts)
    return repr(value) if value is None or type(value) in (bool, int, float, str) else None
