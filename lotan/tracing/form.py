"""The form of a model, which determines its trace. Only models made of torch.nn's and lotan.nn's modules have one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch

KNOWN = ("torch.nn.modules.", "lotan.nn.")
"""Packages whose modules' behaviour depends on their types and fields alone."""

_BY_NAME = ("_parameters", "_buffers", "_modules", "training")


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
    fields = {key: value for key, value in vars(module).items() if key not in _BY_NAME}
    fields = {key: value for key, value in fields.items() if key not in getattr(type(module), "UNTRACED", ())}
    plain = {key: _plain(value) for key, value in fields.items()}
    return None if None in plain.values() else (name, type(module), tuple(sorted(plain.items())))


def _plain(value: object) -> str | None:
    """Return a value as text, or None if it is more than numbers, names and empty containers."""
    if isinstance(value, Mapping | set) and not value:
        return "{}"
    if isinstance(value, tuple | list):
        parts = [_plain(part) for part in value]
        return None if None in parts else repr(parts)
    return repr(value) if value is None or type(value) in (bool, int, float, str) else None
