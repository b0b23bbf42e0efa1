"""An imported model costs what the same model of `lotan.nn` costs: their plans have the same steps and operators."""

from __future__ import annotations

import re
from collections import Counter
from types import ModuleType

import pytest
import torch_geometric.nn

import lotan.nn


def steps_and_operators(library: ModuleType, name: str, engine: str) -> tuple[list[str], Counter[str]]:
    """The steps of the plan, each with its rows, bytes and seconds, and how often each operator stands in its stages."""
    graph = lotan.datasets.generate(2_000, 20_000, 16, 5)
    model = getattr(library, name)(16, 8, 2, 5, dropout=0.5)
    lines = lotan.Trainer(model, graph, engine=engine, epochs=3).explain(stage="physical").splitlines()
    steps = [f"{line.split()[1].split('(')[0]} {line.split(')')[-1]}" for line in lines if re.match(r" ?\d+ ", line)]
    return steps, Counter(found[1] for line in lines if (found := re.match(r" +[\w.]+ = ([\w.]+)\(", line)))


@pytest.mark.parametrize("engine", ["local", "blocks"])
@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT"])
def test_the_plan_is_that_of_the_own_model(name: str, engine: str) -> None:
    steps, operators = steps_and_operators(torch_geometric.nn, name, engine)
    own_steps, own_operators = steps_and_operators(lotan.nn, name, engine)
    assert len(steps) > 4
    assert sum(operators.values()) > 8
    assert (sorted(steps), operators) == (sorted(own_steps), own_operators)
