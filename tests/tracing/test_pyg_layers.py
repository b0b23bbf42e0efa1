"""Each layer of PyG that works: three epochs of training equal PyG's own, and the page in the docs lists it."""

from __future__ import annotations

import copy
import re
import warnings

import numpy as np
import pytest
import torch

import lotan
from lotan.errors import ModelError
from lotan.results.run import Run
from lotan.tracing.graph_columns import GraphColumns
from lotan.tracing.signature import wanted
from lotan.tracing.trace import trace
from tests.night import at_night
from tools.pyg_layers import EDGES, EXAMPLES, FOREIGN, PAGE, TYPES, WIDTH, make

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn.conv

pytestmark = pytest.mark.thorough

EPOCHS = 3
LOSS, WEIGHTS = 2e-5, 5e-4

WORKS = tuple(name for name, example in EXAMPLES.items() if f"| `{example.constructor}` |" in PAGE.read_text())
FLAT = ("TransformerConv", "PointTransformerConv", "GENConv", "HGTConv", "HANConv", "CGConv")
"""The layers with a bias whose true gradient is 0. Adam would make steps of its rounding errors."""

ON_BLOCKS = ("PNAConv",)

BY_DAY = ("APPNP", "ARMAConv", "CGConv", "ChebConv", "DNAConv", "DirGNNConv", "EdgeConv", "FastRGCNConv", "GATConv", "GATv2Conv",
          "GCN2Conv", "GCNConv", "GENConv", "GINEConv", "GMMConv", "GatedGraphConv", "HANConv", "HGTConv", "HypergraphConv",
          "PDNConv", "PNAConv", "PointTransformerConv", "RGCNConv", "SAGEConv", "TransformerConv")  # fmt: skip
"""The layers that are tried on `local` by day: one of each mechanism. The others are tried at night, as all are on Spark."""

SINGLE_LOOPS = ("PDNConv",)
"""The layers that compute values of self-loops. PyG gives all self-loops of a vertex the gradient of the one it keeps."""


def messy_graph(
    seed: int = 0, vertices: int = 40, edges: int = 160, doubled_loops: bool = True, types: int = TYPES
) -> lotan.Graph:
    """Weights, attributes, types, self-loops, doubled self-loops, parallel edges, a hub, and vertices without edges."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, vertices - 3, (2, edges))
    dst[:20] = 0
    src[-6:], dst[-6:] = (1, 1, 2, 3, 4, 4), (1, 1, 2, 3, 5, 5)
    if not doubled_loops:
        loops = np.flatnonzero(src == dst)
        others = np.setdiff1d(loops, loops[np.unique(src[loops], return_index=True)[1]])
        dst[others] = (src[others] + 1) % (vertices - 3)
    return lotan.Graph.from_arrays(
        random.standard_normal((vertices, WIDTH)).astype(np.float32),
        src,
        dst,
        label=random.integers(0, 3, vertices),
        split=random.choice([0, 0, -1], vertices).astype(np.int8),
        weight=random.uniform(0.5, 1.5, edges).astype(np.float32),
        edge_attr=random.standard_normal((edges, EDGES.width)).astype(np.float32),
        edge_type=random.integers(0, types, edges),
    )


def made(name: str) -> torch.nn.Module:
    torch.manual_seed(3)
    model = make(EXAMPLES[name])
    with torch.no_grad():
        for parameter in model.parameters():  # fresh biases are zero and would hide mistakes
            # RGATConv leaves l2 as memory was: NaN, or any number
            parameter.copy_(torch.where(parameter.abs() < 10, parameter, 0))
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def trained_by_pyg(
    model: torch.nn.Module,
    graph: lotan.Graph,
    optimizer: type[torch.optim.Optimizer],
    lr: float = 0.01,
    epochs: int = EPOCHS,
) -> list[float]:
    """Train with plain torch and PyG, and return the losses."""
    data = graph.to_pyg()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    steps = optimizer(trainable, lr=lr) if trainable else None
    losses = []
    asked = wanted(model, GraphColumns(WIDTH, EDGES, weighted=True))
    assert asked is not None
    names = (*asked.index, *asked.of_edges)
    given = {asked.features: data.x} | {n: data.edge_index if n in asked.index else data[n] for n in names}
    for _ in range(epochs):
        model.train()
        out = model(**given)
        loss = torch.nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        losses.append(loss.item())
        if steps is not None:
            steps.zero_grad()
            loss.backward()
            steps.step()
    return losses


def assert_same_training(run: Run, losses: list[float], ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    """Compare losses, and then parameters and buffers, with those of a model that PyG has trained."""
    assert [epoch["loss"] for epoch in run.history] == pytest.approx(losses, abs=LOSS)
    for key, value in theirs.state_dict().items():
        found = ours.state_dict()[key]
        torch.testing.assert_close(found, value, rtol=0, atol=WEIGHTS, msg=lambda m, key=key: f"{key}: {m}")


def assert_trains_as_pyg(name: str, epochs: int = EPOCHS, **options: object) -> None:
    graph, ours = messy_graph(doubled_loops=name not in SINGLE_LOOPS), made(name)
    theirs = copy.deepcopy(ours)
    before = {key: value for module in ours.modules() for key, value in vars(module).items() if key == "cached"}
    kind = "SGD" if name in FLAT else "Adam"
    settings = {"optimizer": getattr(lotan, kind)(lr=0.01), "progress": False, **options}
    run = lotan.Trainer(ours, graph, epochs=epochs, **settings).fit()
    losses = trained_by_pyg(theirs, graph, getattr(torch.optim, kind), epochs=epochs)
    assert_same_training(run, losses, ours, theirs)
    assert {key: v for module in ours.modules() for key, v in vars(module).items() if key == "cached"} == before


def others_than(usual: tuple[str, ...]) -> list[object]:
    """The other layers that work, for the nightly run."""
    return [pytest.param(name, marks=pytest.mark.nightly) for name in WORKS if name not in usual]


@pytest.mark.parametrize("name", at_night([(name,) for name in WORKS], unless=[(name,) for name in BY_DAY]))
def test_trains_as_in_pyg(name: str) -> None:
    assert_trains_as_pyg(name, engine="local")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", [*ON_BLOCKS, *others_than(ON_BLOCKS)])
def test_trains_as_in_pyg_on_blocks(name: str, spark: object) -> None:
    assert_trains_as_pyg(name, engine="blocks", partitions=3)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly  # by day, `tests/exactness` has sums, extremes and attention on rows
@pytest.mark.parametrize("name", WORKS)
def test_trains_as_in_pyg_on_rows(name: str, spark: object) -> None:
    assert_trains_as_pyg(name, engine="rows", epochs=2)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in WORKS])
def test_a_layer_that_does_not_work_says_why(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    try:
        model = make(EXAMPLES[name])
    except ImportError:
        pytest.skip("needs a library that is not installed")
    with pytest.raises(ModelError) as refusal:
        trace(model, WIDTH, training=True, data=EDGES, weighted=True)
    assert row[1] in str(refusal.value)
    assert f"torch_geometric {name}" in str(refusal.value)


def test_each_convolution_has_an_example() -> None:
    classes = set(torch_geometric.nn.conv.classes) - {"MessagePassing", *FOREIGN}
    assert classes == set(EXAMPLES)
    assert len(WORKS) >= 54


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT"])
def test_an_imported_model_has_the_plan_of_our_own(name: str) -> None:
    graph, settings = messy_graph(), {"engine": "local", "epochs": 1, "progress": False}
    plans = [
        lotan.Trainer(getattr(library, name)(WIDTH, 8, 2, 3), graph, **settings).job.plan
        for library in (torch_geometric.nn, lotan.nn)
    ]
    steps, calls = ([], []), ([], [])
    for number, plan in enumerate(plans):
        steps[number].extend((type(step).__name__, step.within) for step in plan.train)
        calls[number].extend(sorted(call.op for call in stage.calls) for stage in plan.stages)
    assert steps[0] == steps[1]
    assert calls[0] == calls[1]


def test_splitting_ends_changes_no_result() -> None:
    assert_trains_as_pyg("GCNConv", engine="local", disable=["split_ends"])
