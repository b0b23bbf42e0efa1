"""Models that take `edge_index` are traced as they are, and what cannot be followed is refused by its line."""

from __future__ import annotations

import importlib
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import torch_geometric.nn
import torch_geometric.nn.conv.gcn_conv
import torch_geometric.utils
from torch import Tensor

from lotan.errors import ModelError
from lotan.graph.edge_sets import SelfLoops, self_loops
from lotan.tracing import check
from lotan.tracing.graph_columns import GraphColumns
from lotan.tracing.pyg import leaves, loops
from lotan.tracing.pyg.edge_tensors import EdgeTensors, running
from lotan.tracing.pyg.leaves import LEAVES
from lotan.tracing.signature import takes_tensors, wanted
from lotan.tracing.trace import trace
from planner.edge_columns import EdgeData, number_of_types
from planner.spec import Spec
from tests.nn.graphs import random_graph
from tests.nn.parity import assert_close
from tests.reference import run_spec
from tests.tracing import imported_models
from tests.tracing.imported_models import REFUSED, TRACED, Example

pytestmark = pytest.mark.thorough


def made(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    model = TRACED[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


EDGES = EdgeData(width=2, typed=True)
WEIGHTED = (
    "PlainTorch",
    "Chosen",
    "ChosenLoops",
    "ChosenWeights",
    "WithoutLoops",
    "Fills",
    "Improved",
    "Against",
    "TurnedRound",
    "Chebyshevs",
)
"""The models that ask for weights."""


def run(
    spec: Spec, model: torch.nn.Module, x: Tensor, edge_index: Tensor, weight: Tensor | None, **columns: Tensor
) -> Tensor:
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    parameters = {one.name: held[one.name] for one in spec.parameters}
    return run_spec(spec, parameters, x, edge_index, weight, columns=columns)


@pytest.mark.parametrize("name", TRACED)
def test_calls_equal_the_model_itself(name: str) -> None:
    """With weights of edges, and without them if the model reads them and does not ask for them."""
    check_calls(name, weighted=True)
    if name not in WEIGHTED and "edge_weight" in wanted(made(name), GraphColumns(6, EDGES, True)).of_edges:
        check_calls(name, weighted=False)


def check_calls(name: str, weighted: bool) -> None:
    """Compare the outputs and the gradients of the traced calls with those of the model."""
    model = made(name).eval()
    spec = trace(model, 6, training=False, data=EDGES, weighted=weighted)
    x, edge_index = torch.randn(12, 6), one_loop_a_vertex(random_graph(1))
    columns = {
        "edge_attr": torch.randn(edge_index.shape[1], 2),
        "edge_type": torch.randint(0, 3, (edge_index.shape[1],)),
    }
    weight = torch.rand(edge_index.shape[1]) + 0.5 if weighted else None
    if name == "OwnAndTheirs":
        weight = None  # layers of lotan.nn read the graph's weights, and know none of a plain edge_index
    given = run(spec, model, x, edge_index, weight, **columns)
    asked = wanted(model, GraphColumns(6, EDGES, weighted))
    there = {"edge_weight": weight, **columns}
    arguments = [x] if name == "MLP" else [x, edge_index]
    expected = model(*arguments, **{column: there[column] for column in asked.of_edges})
    assert_close(given, expected)
    cotangent = torch.randn(expected.shape)
    held = list(model.parameters())
    truth = torch.autograd.grad(expected, held, cotangent, materialize_grads=True)
    scale = max(one.abs().max().item() for one in truth)
    for mine, other in zip(torch.autograd.grad(given, held, cotangent, materialize_grads=True), truth, strict=True):
        assert_close(mine, other, scale)


def one_loop_a_vertex(edge_index: Tensor) -> Tensor:
    """Leave out doubled self-loops: whose weight is kept is not defined in PyG."""
    kept: list[tuple[int, int]] = []
    for edge in map(tuple, edge_index.t().tolist()):
        if edge[0] != edge[1] or edge not in kept:
            kept.append(edge)
    return torch.tensor(kept).t()


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_is_refused_by_its_line(kind: type[torch.nn.Module]) -> None:
    with pytest.raises(ModelError) as refusal:
        trace(kind(), 6, training=True, data=EDGES, weighted=True)
    lines, first = inspect.getsourcelines(kind)
    position, text = next((n, line.split("# ")[1].strip()) for n, line in enumerate(lines) if "# " in line)
    message = str(refusal.value)
    assert f"imported_models.py:{first + position}" in message
    for words in text.split(" | "):
        assert words in message


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_a_function_that_is_replaced_is_there(leaf: leaves.Leaf) -> None:
    """Else its original would run, and the error would be in words of PyG or torch."""
    function = getattr(importlib.import_module(leaf.module), leaf.name)
    assert not leaf.argument or leaf.argument in inspect.signature(function).parameters


class Asks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(6, 3)


def asking(**names: object) -> torch.nn.Module:
    """A model whose forward has these arguments; a value of ... means that there is no default."""
    words = ", ".join(name if default is ... else f"{name}={default!r}" for name, default in names.items())
    scope: dict[str, object] = {}
    exec(f"def forward(self, {words}): return self.lin(x)", scope)
    return type("Asks", (Asks,), {"forward": scope["forward"]})()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            {"x": ..., "edge_index": ..., "edge_attr": ...},
            "asks for 'edge_attr' .attributes of edges.*only x, edge_index.*edge_features=",
        ),
        ({"x": ..., "edge_index": ..., "edge_type": ...}, "asks for 'edge_type' .types of edges.*edge_type="),
        ({"x": ..., "edge_index": ..., "batch": ...}, "asks for 'batch' .several graphs"),
        ({"x": ..., "edge_index": ..., "edge_weight": ...}, r"asks for 'edge_weight'.*Graph\(..., weight=...\)"),
        ({"x": ..., "edge_index": ..., "depth": ...}, "asks for 'depth'"),
        ({"x": ..., "y": ..., "edge_index": ...}, "asks for 'y' .labels as input.*together with a mask"),
    ],
)
def test_a_column_that_the_graph_lacks_is_named(names: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=f"Asks.forward {words}"):
        trace(asking(**names), 6, training=True)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"x": ..., "graph": ...}, False),
        ({"x": ..., "edge_index": ...}, True),
        ({"x": ..., "adj_t": ...}, True),
        ({"x": ..., "edge_weight": ..., "edge_index": ...}, True),
        ({"x": ...}, True),
        ({"input": ...}, False),
        ({"x": ..., "edges": ...}, False),
        ({"x": ..., "edge_index": ..., "edge_attr": None, "batch": None}, True),
    ],
)
def test_the_signature_decides(names: dict[str, object], expected: bool) -> None:
    assert takes_tensors(asking(**names)) == expected


def test_a_model_is_as_before() -> None:
    model = Example()
    x, edge_index = torch.randn(12, 6), random_graph(1)
    model.eval()(x, edge_index)
    kept = model.conv1._cached_edge_index
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    trace(model, 6, training=True)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    assert model.conv1.cached
    assert model.conv1._cached_edge_index is kept


@pytest.mark.parametrize(
    ("found", "words"), [((1, 2), "a tuple of 2"), ({"out": 1}, "a dict of 1"), (None, "NoneType; expected one tensor")]
)
def test_a_second_output_is_refused_with_where_it_belongs(found: object, words: str) -> None:
    class Several(imported_models.OwnLayer):
        def forward(self, x: Tensor, edge_index: Tensor) -> object:
            rows = super().forward(x, edge_index)
            return found if found is None else type(found)((rows, rows) if isinstance(found, tuple) else {"out": rows})

    with pytest.raises(ModelError, match=words) as refusal:
        trace(Several(), 6, training=True)
    assert ("give loss= a function" in str(refusal.value)) == (found is not None)


def test_functions_are_put_back_even_after_a_refusal() -> None:
    functions = [torch_geometric.utils.softmax, torch_geometric.nn.conv.gcn_conv.gcn_norm, imported_models.scatter]
    codes = [function.__code__ for function in functions]
    forward = torch_geometric.nn.ARMAConv.forward
    with pytest.raises(ModelError):
        trace(imported_models.Sorted(), 6, training=True)
    assert [function.__code__ for function in functions] == codes
    assert torch_geometric.nn.ARMAConv.forward is forward
    assert running() is None


def test_other_threads_are_not_affected_while_one_traces() -> None:
    inside, checked = threading.Event(), threading.Event()

    class Waits(imported_models.OwnLayer):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            inside.set()
            checked.wait(60)
            return super().forward(x, edge_index)

    code = imported_models.scatter.__code__
    thread = threading.Thread(target=trace, args=(Waits(), 6, True))
    thread.start()
    try:
        assert inside.wait(60)
        x, edge_index = torch.randn(12, 6), random_graph(1)
        found = imported_models.scatter(x[edge_index[0]], edge_index[1], 0, 12)
        assert imported_models.scatter.__code__ is not code
        assert_close(found, torch.zeros(12, 6).index_add(0, edge_index[1], x[edge_index[0]]))
    finally:
        checked.set()
        thread.join()
    assert imported_models.scatter.__code__ is code


def test_several_threads_may_trace() -> None:
    with ThreadPoolExecutor(4) as pool:
        specs = list(pool.map(lambda _: trace(made("Example"), 6, training=True), range(8)))
    assert len({tuple(call.op for call in spec.calls) for spec in specs}) == 1


def swap_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    scatter = EdgeTensors.scatter
    other = {"source": "destination", "destination": "source"}
    monkeypatch.setattr(EdgeTensors, "scatter", lambda self, x, end: scatter(self, x, replace(end, end=other[end.end])))


def forget_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "added_where_missing", lambda tensors, index, weight, fill: (index, weight))


def drop_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    normalised = leaves._normalised
    monkeypatch.setattr(
        leaves, "_normalised", lambda tensors, index, weight, end: normalised(tensors, index, None, end)
    )


def keep_the_first_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(index: Tensor, vertices: int) -> SelfLoops:
        found, none = self_loops(index, vertices), index.shape[1]
        loops = (index[0] == index[1]).nonzero().view(-1)
        chosen = torch.full((vertices,), none).scatter_reduce(0, index[0, loops], loops, "amin")
        return replace(found, chosen=chosen.where(chosen < none, -1))

    monkeypatch.setattr("lotan.nn.edge_index.self_loops", first)


@pytest.mark.parametrize(
    "fault", [swap_ends, forget_loops, drop_weights, keep_the_first_loop], ids=lambda one: one.__name__
)
def test_a_wrong_replacement_is_found_before_training(fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace is compared with the model itself, with nothing replaced."""
    fault(monkeypatch)
    with pytest.raises(ModelError, match="the traced model differs from the model itself in its output"):
        trace(made("Example").eval(), 6, training=False, weighted=True)


def test_the_check_has_doubled_loops_with_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    compare = check._compare_with_model

    def look(model, parameters, spec, sample, importer, gradients):  # type: ignore[no-untyped-def]
        seen.extend((sample.index, sample.weight))
        compare(model, parameters, spec, sample, importer, gradients)

    monkeypatch.setattr(check, "_compare_with_model", look)
    trace(made("Example"), 6, training=False, weighted=True)
    edge_index, weight = seen
    loops = edge_index[0][edge_index[0] == edge_index[1]]
    assert len(loops) > len(loops.unique())
    assert len(weight.unique()) == len(weight)


def test_layers_say_how_many_types_they_tell_apart() -> None:
    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch_geometric.nn.RGCNConv(6, 4, num_relations=5)
            self.second = torch_geometric.nn.FiLMConv(4, 3, num_relations=3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index, edge_type), edge_index, edge_type=edge_type)

    spec = trace(Several(), 6, training=True, data=EDGES)
    assert number_of_types(spec) == (3, "second")


@pytest.mark.parametrize(("edge_dim", "given"), [(None, ()), (2, ("edge_attr",))])
def test_attributes_are_left_out_where_no_layer_was_made_for_them(edge_dim: int | None, given: tuple[str, ...]) -> None:
    model = torch_geometric.nn.GAT(6, 8, 2, 3, v2=True, edge_dim=edge_dim)
    assert wanted(model, GraphColumns(6, EDGES)).of_edges == given
    trace(model, 6, training=True, data=EDGES)


def forget_the_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_of_loops", lambda tensors, index, attributes, fill: 1.0)


def keep_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = loops._joined
    monkeypatch.setattr(loops, "_joined", lambda *given, all_loops: joined(*given, all_loops=False))


def count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_one_more", lambda tensors, edges: None)


@pytest.mark.parametrize(
    ("fault", "name"),
    [(forget_the_fill, "Fills"), (keep_loops, "Attributes"), (count_once, "Tutorial")],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_wrong_value_of_a_self_loop_is_found(fault, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises(ModelError, match="the traced model differs from the model itself in its output"):
        trace(made(name).eval(), 6, training=False, data=EDGES, weighted=True)
