"""Models for the tests of engines: written as a traced `Spec` by hand, and again in plain torch over an edge list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from planner.spec import Argument, Call, EdgeSet, ParameterSpec, Ref, RowCount, Rows, Spec, ValueType


@dataclass
class Writer:
    """Writes a spec call by call."""

    width: int
    parameters: list[ParameterSpec] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def parameter(self, name: str, *shape: int) -> Ref:
        self.parameters.append(ParameterSpec(name, shape))
        return Ref(name)

    def call(
        self, op: str, *arguments: Argument, rows: Rows = "vertex", shape: tuple[int, ...], edges: EdgeSet | None = None
    ) -> Ref:
        name = f"value{len(self.calls)}"
        self.calls.append(Call(name, op, arguments, ValueType(rows, shape, edges=edges)))
        return Ref(name)

    def spec(self, output: Ref) -> Spec:
        return Spec(self.width, tuple(self.parameters), tuple(self.calls), output.name)


@dataclass
class PlainGraph:
    """What the torch forms read."""

    x: Tensor
    src: Tensor
    dst: Tensor
    weight: Tensor | None = None

    def with_self_loops(self) -> PlainGraph:
        vertices = torch.arange(self.x.shape[0])
        loops = self.src == self.dst
        weight = self.weight
        if weight is not None:
            of_loops = torch.ones(self.x.shape[0])
            of_loops[self.src[loops]] = weight[loops]
            weight = torch.cat([weight[~loops], of_loops])
        return PlainGraph(
            self.x, torch.cat([self.src[~loops], vertices]), torch.cat([self.dst[~loops], vertices]), weight
        )

    def sum(self, rows: Tensor) -> Tensor:
        """Edge rows summed per destination."""
        return torch.zeros(self.x.shape[0], *rows.shape[1:]).index_add(0, self.dst, rows)


@dataclass(frozen=True)
class Model:
    """One model in both forms; `forward(graph, parameters)` in plain torch."""

    name: str
    spec: Callable[[bool], Spec]  # of whether it is in training mode
    forward: Callable[[PlainGraph, dict[str, Tensor]], Tensor]


WIDTH, HIDDEN, OUT = 5, 4, 3


def gcn_spec(training: bool, p: float = 0.0, layers: tuple[int, ...] = (WIDTH, HIDDEN, OUT)) -> Spec:
    w = Writer(layers[0])
    x: Ref = Ref("features")
    for layer, out in enumerate(layers[1:]):
        x = w.call("aten.linear.default", x, w.parameter(f"w{layer}", out, layers[layer]), shape=(out,))
        scale = w.call("lotan.vertex_input", "gcn_scale@self_loops", shape=())
        scale = w.call("aten.unsqueeze.default", scale, 1, shape=(1,))
        x = w.call("aten.mul.Tensor", x, scale, shape=(out,))
        x = w.call("lotan.scatter", x, "source", "self_loops", rows="edge", shape=(out,), edges="self_loops")
        one = w.call("lotan.edge_weight", "self_loops", rows="edge", shape=(), edges="self_loops")
        one = w.call("aten.view.default", one, (RowCount(), 1), rows="edge", shape=(1,), edges="self_loops")
        x = w.call("aten.mul.Tensor", x, one, rows="edge", shape=(out,), edges="self_loops")
        x = w.call("lotan.aggregate", x, "sum", "self_loops", shape=(out,))
        x = w.call("aten.mul.Tensor", x, scale, shape=(out,))
        x = w.call("aten.add.Tensor", x, w.parameter(f"b{layer}", out), shape=(out,))
        if layer < len(layers) - 2:
            x = w.call("aten.relu.default", x, shape=(out,))
            x = w.call("aten.dropout.default", x, p, training, shape=(out,))
    return w.spec(x)


def gcn_forward(graph: PlainGraph, parameters: dict[str, Tensor]) -> Tensor:
    from torch_geometric.nn import GCNConv

    edge_index = torch.stack([graph.src, graph.dst])
    x = graph.x
    for layer in range(2):
        conv = GCNConv(x.shape[1], parameters[f"b{layer}"].numel())
        named = {"lin.weight": parameters[f"w{layer}"], "bias": parameters[f"b{layer}"]}
        x = torch.func.functional_call(conv, named, (x, edge_index, graph.weight))
        x = x.relu() if layer == 0 else x
    return x


def residual_max_spec(training: bool) -> Spec:
    """Three layers x + relu(W max_j(x_j) + V x), then concatenation of all (jumping knowledge); W is shared by the layers."""
    w = Writer(WIDTH)
    shared = w.parameter("w", HIDDEN, HIDDEN)
    x = w.call("aten.linear.default", Ref("features"), w.parameter("in", HIDDEN, WIDTH), shape=(HIDDEN,))
    all_x = [x]
    for layer in range(2):
        j = w.call("lotan.scatter", x, "source", "graph", rows="edge", shape=(HIDDEN,), edges="graph")
        most = w.call("lotan.aggregate", j, "max", "graph", shape=(HIDDEN,))
        a = w.call("aten.linear.default", most, shared, shape=(HIDDEN,))
        b = w.call("aten.linear.default", x, w.parameter(f"v{layer}", HIDDEN, HIDDEN), shape=(HIDDEN,))
        y = w.call("aten.relu.default", w.call("aten.add.Tensor", a, b, shape=(HIDDEN,)), shape=(HIDDEN,))
        x = w.call("aten.add.Tensor", x, y, shape=(HIDDEN,))
        all_x.append(x)
    joined = w.call("aten.cat.default", tuple(all_x), 1, shape=(3 * HIDDEN,))
    return w.spec(w.call("aten.linear.default", joined, w.parameter("out", OUT, 3 * HIDDEN), shape=(OUT,)))


def residual_max_forward(graph: PlainGraph, parameters: dict[str, Tensor]) -> Tensor:
    x = graph.x @ parameters["in"].T
    all_x = [x]
    for layer in range(2):
        index = graph.dst[:, None].expand(-1, HIDDEN)
        most = torch.zeros_like(x).scatter_reduce(0, index, x[graph.src], "amax", include_self=False)
        x = x + torch.relu(most @ parameters["w"].T + x @ parameters[f"v{layer}"].T)
        all_x.append(x)
    return torch.cat(all_x, 1) @ parameters["out"].T


def attention_spec(training: bool) -> Spec:
    """GAT with two heads, concatenated, on the edges with self-loops; then a mean over neighbours and a linear layer."""
    heads, size = 2, 3
    w = Writer(WIDTH)
    flat = w.call("aten.linear.default", Ref("features"), w.parameter("w", heads * size, WIDTH), shape=(heads * size,))
    x = w.call("aten.view.default", flat, (RowCount(), heads, size), shape=(heads, size))
    ends = []
    for end in ("source", "destination"):
        product = w.call("aten.mul.Tensor", x, w.parameter(f"a_{end}", 1, heads, size), shape=(heads, size))
        score = w.call("aten.sum.dim_IntList", product, (-1,), shape=(heads,))
        ends.append(w.call("lotan.scatter", score, end, "self_loops", rows="edge", shape=(heads,), edges="self_loops"))
    edge = {"rows": "edge", "edges": "self_loops"}
    score = w.call("aten.add.Tensor", *ends, shape=(heads,), **edge)
    score = w.call("aten.leaky_relu.default", score, 0.2, shape=(heads,), **edge)
    share = w.call("lotan.edge_softmax", score, "self_loops", shape=(heads,), **edge)
    share = w.call("aten.unsqueeze.default", share, -1, shape=(heads, 1), **edge)
    j = w.call("lotan.scatter", x, "source", "self_loops", shape=(heads, size), **edge)
    message = w.call("aten.mul.Tensor", j, share, shape=(heads, size), **edge)
    y = w.call("lotan.aggregate", message, "sum", "self_loops", shape=(heads, size))
    y = w.call("aten.view.default", y, (RowCount(), heads * size), shape=(heads * size,))
    y = w.call(
        "aten.tanh.default", w.call("aten.add.Tensor", y, w.parameter("b", heads * size), shape=(6,)), shape=(6,)
    )
    y = w.call("lotan.scatter", y, "source", "graph", rows="edge", shape=(6,), edges="graph")
    y = w.call("lotan.aggregate", y, "mean", "graph", shape=(6,))
    return w.spec(w.call("aten.linear.default", y, w.parameter("out", OUT, 6), shape=(OUT,)))


def attention_forward(graph: PlainGraph, parameters: dict[str, Tensor]) -> Tensor:
    from torch_geometric.utils import softmax

    loops = graph.with_self_loops()
    x = (graph.x @ parameters["w"].T).view(-1, 2, 3)
    score = (x * parameters["a_source"]).sum(-1)[loops.src] + (x * parameters["a_destination"]).sum(-1)[loops.dst]
    share = softmax(functional.leaky_relu(score, 0.2), loops.dst, num_nodes=graph.x.shape[0])
    y = loops.sum(x[loops.src] * share[:, :, None]).view(-1, 6)
    y = torch.tanh(y + parameters["b"])
    degree = torch.bincount(graph.dst, minlength=graph.x.shape[0]).clamp(min=1)
    return (graph.sum(y[graph.src]) / degree[:, None]) @ parameters["out"].T


MODELS = [
    Model("gcn", gcn_spec, gcn_forward),
    Model("residual_max", residual_max_spec, residual_max_forward),
    Model("attention", attention_spec, attention_forward),
]
