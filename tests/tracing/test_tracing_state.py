"""Models whose forward keeps something, branches on few rows, or has hooks on gradients: refused, and never trained otherwise."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from tests.night import at_night

pytestmark = pytest.mark.thorough


def graph(vertices: int = 12, edges: int = 30) -> lotan.Graph:
    generator = np.random.default_rng(0)
    return lotan.Graph.from_arrays(
        generator.standard_normal((vertices, 4)),
        *generator.integers(0, vertices, (2, edges)),
        label=np.arange(vertices) % 2,
        split=np.zeros(vertices, dtype=int),
    )


class Based(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.alone = pyg.SAGEConv(4, 2), torch.nn.Linear(4, 2)
        self.register_buffer("factor", torch.ones(2))
        self.calls = 0

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * self.factor


class Assigning(Based):
    def forward(self, x, edge_index):
        self.factor = self.factor * 0.5
        return super().forward(x, edge_index)


class Counting(Based):
    def forward(self, x, edge_index):
        self.calls += 1
        return super().forward(x, edge_index)


class Listing(Based):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x, edge_index):
        self.seen.append(1)
        return super().forward(x, edge_index) * (2 if len(self.seen) > 50 else 1)


class OwnGenerator(Based):
    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(0)

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) * (2 if self.random.random() < 1e-6 else 1)


class Drawing(Based):
    """Draws numbers that hardly ever change the result, so that comparing results would not find them."""

    def __init__(self, draw) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) * (2 if self.draw() < 1e-6 else 1)


class Caching(Based):
    def __init__(self) -> None:
        super().__init__()
        self.cache = None

    def forward(self, x, edge_index):
        if self.cache is None:
            self.cache = x[:, :1] * 2
        return super().forward(x, edge_index) + self.cache


class OnNoEdges(Based):
    def forward(self, x, edge_index):
        return self.alone(x) if edge_index.numel() == 0 else self.conv(x, edge_index)


class OnOneVertex(Based):
    def forward(self, x, edge_index):
        return self.alone(x) if x.size(0) == 1 else self.conv(x, edge_index)


class OnTwoVertices(Based):
    def forward(self, x, edge_index):
        return self.alone(x) if x.size(0) <= 2 else self.conv(x, edge_index)


def fit(model: torch.nn.Module, on: lotan.Graph) -> None:
    lotan.Trainer(model, on, epochs=1, engine="local", progress=False).fit()


@pytest.mark.parametrize(
    ("kind", "named"), [(Assigning, "factor"), (Counting, "calls"), (Listing, "seen"), (OwnGenerator, "random")]
)
def test_what_forward_keeps_is_named(kind: type[torch.nn.Module], named: str) -> None:
    with pytest.raises(lotan.ModelError, match=f"forward assigns to {named}"):
        fit(kind(), graph())


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_of_other_libraries_are_refused(draw) -> None:
    with pytest.raises(lotan.ModelError, match=r"draws random numbers from Python's `random` or from NumPy"):
        fit(Drawing(draw), graph())


def test_a_tensor_that_is_kept_for_the_next_call_is_refused() -> None:
    with pytest.raises(lotan.ModelError, match="keeps a tensor of one call"):
        fit(Caching(), graph())


BRANCHES = [(OnNoEdges, 12, 0), (OnOneVertex, 1, 4), (OnTwoVertices, 2, 4), (OnTwoVertices, 1, 0)]


@pytest.mark.parametrize(("kind", "vertices", "edges"), BRANCHES)
def test_a_branch_for_few_rows_is_refused_where_it_would_be_taken(
    kind: type[torch.nn.Module], vertices: int, edges: int
) -> None:
    with pytest.raises(lotan.ModelError, match="differs from the model itself"):
        fit(kind(), graph(vertices, edges))
    fit(kind(), graph())


@pytest.mark.parametrize(
    ("vertices", "edges"), at_night([(1, 0), (1, 3), (2, 1), (12, 0), (12, 2)], unless=[(1, 3), (12, 0)])
)
def test_models_without_branches_train_on_few(vertices: int, edges: int) -> None:
    for model in (Based(), lotan.nn.GCN(4, 3, 2, 2), lotan.nn.GAT(4, 3, 2, 2)):
        fit(model, graph(vertices, edges))


def test_hooks_on_gradients_are_refused() -> None:
    model = Based()
    model.conv.lin_l.weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(lotan.ModelError, match=r"parameter 'conv.lin_l.weight' has a hook"):
        fit(model, graph())
    model = Based()
    model.conv.register_full_backward_hook(lambda *_: None)
    with pytest.raises(lotan.ModelError, match="module 'conv' has a hook"):
        fit(model, graph())


def test_forward_hooks_are_followed_and_a_note_says_that_no_epoch_calls_them() -> None:
    plain, hooked, collected = Based(), Based(), []
    hooked.load_state_dict(plain.state_dict())
    hooked.conv.register_forward_hook(lambda module, given, out: 2 * out)
    hooked.alone.register_forward_pre_hook(lambda module, given: collected.append(given))
    trainers = [
        lotan.Trainer(model, graph(), epochs=1, engine="local", progress=False, eval_every=0)
        for model in (plain, hooked)
    ]
    notes = [[note for note in trainer.job.warnings if "forward hooks" in note] for trainer in trainers]
    assert [len(found) for found in notes] == [0, 1]
    assert notes[1][0].startswith("forward hooks of conv, alone: what they return is trained")
    losses = [trainer.fit().history[0]["loss"] for trainer in trainers]
    assert losses[0] != losses[1]


def test_a_hook_after_a_gradient_is_refused() -> None:
    model = Based()
    model.conv.lin_l.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(lotan.ModelError, match=r"parameter 'conv.lin_l.weight' has a hook"):
        fit(model, graph())
