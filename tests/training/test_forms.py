"""Models of one form, such as those of a grid, are traced once."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg

import lotan.tracing.trace
from lotan.tracing.trace import forget_traces, trace


def test_a_second_model_of_pyg_of_the_same_form_is_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[torch.nn.Module] = []
    record = lotan.tracing.trace.record
    monkeypatch.setattr(
        lotan.tracing.trace, "record", lambda model, *given: traced.append(model) or record(model, *given)
    )
    forget_traces()
    first, second, stirred = (pyg.GAT(6, 8, 2, 3, heads=2) for _ in range(3))
    other = pyg.GAT(6, 8, 2, 3, heads=4)
    stirred.convs[0].register_buffer("scale", torch.ones(1))
    specs = [trace(model, 6, training=True) for model in (first, second, other, stirred)]
    assert traced == [first, other, stirred]
    assert specs[0] is specs[1]
    stirred.convs[0].scale += 1
    trace(stirred, 6, training=True)
    assert traced[3:] == [stirred]
