"""Edge sets whose edges lie in files are those in memory, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lotan.engines.local import topology
from lotan.engines.local.topology import Edges
from lotan.memory.mapped import MappedMemory


@pytest.mark.parametrize("beside", ["nothing", "weights", "weights and attributes"])
def test_self_loops_in_files_are_those_in_memory(monkeypatch, beside):
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 30, (2, 400))  # parallel edges, and several self-loops at one vertex
    order = np.lexsort((src, dst))
    src, dst = src[order], dst[order]
    weight = None if beside == "nothing" else random.normal(size=400).astype(np.float32) ** 2
    data = {"edge_attr": torch.rand(400, 2)} if "attributes" in beside else {}
    whole = Edges(40, src, dst, weight, data=data).with_self_loops()
    monkeypatch.setattr(topology, "EDGES_READ", 32)
    mapped = MappedMemory()
    found = Edges(40, src, dst, weight, data=data, mapped=mapped).with_self_loops()
    assert all(mapped.holds(torch.from_numpy(ends)) for ends in (found.src, found.dst))
    assert np.array_equal(found.src, whole.src)
    assert np.array_equal(found.dst, whole.dst)
    found.mapped = mapped
    assert torch.equal(found.gcn_scale(), whole.gcn_scale())
    for reverse in (False, True):
        ours, theirs = found.matrix(True, reverse), whole.matrix(True, reverse)
        assert torch.equal(ours.values(), theirs.values())
        assert torch.equal(ours.col_indices(), theirs.col_indices())
    if weight is not None:
        assert mapped.holds(torch.from_numpy(found.weight))
        assert np.array_equal(found.weight, whole.weight)
    if data:
        assert torch.equal(found.column("edge_attr[mean]"), whole.column("edge_attr[mean]"))
