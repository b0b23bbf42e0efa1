"""Specs of small models, written by hand: what `lotan.tracing` would yield, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from planner import Options, Planned, compile_plan
from planner.loss import LossSpec
from planner.rates import DEFAULT_RATES, Rates
from planner.spec import Argument, Call, EdgeSet, ParameterSpec, Ref, Spec, ValueType
from planner.statistics import Statistics

STATISTICS = Statistics(vertices=100, edges=500, width=8, weighted=True)
RATES = Rates(
    passes=0.00055,
    steps=1e-06,
    pipes=9.9e-07,
    calls=4e-05,
    driver_bytes=1e-08,
    edges=6.6e-09,
    summed_numbers=1e-11,
    far_numbers=2.1e-10,
    edge_values=2.7e-09,
    scaled_numbers=3.3e-10,
    extreme_numbers=2.5e-09,
    collected_numbers=1.7e-09,
    shuffled_bytes=2e-09,
    filed_bytes=5e-10,
    piped_bytes=1.1e-11,
    multiply_adds=2.2e-11,
    product_numbers=7.1e-10,
    numbers=4.8e-10,
    draws=7e-10,
    autograd_numbers=1.4e-09,
    parameter_numbers=1.2e-09,
    spilled_bytes=1.7e-09,
)
"""Rates of "local" that never change, so that golden plans stay as they are when the shipped rates are fitted anew."""


@dataclass
class SpecWriter:
    """Writes calls one after the other; every method returns a reference to what it made."""

    width: int = 8
    calls: list[Call] = field(default_factory=list)
    parameters: list[ParameterSpec] = field(default_factory=list)
    layer: str = ""

    def call(self, op: str, *arguments: Argument, type: ValueType) -> Ref:
        output = f"v{len(self.calls)}"
        self.calls.append(Call(output, op, arguments, type, layer=self.layer))
        return Ref(output)

    def parameter(self, name: str, *shape: int, trainable: bool = True) -> Ref:
        self.parameters.append(ParameterSpec(name, shape, trainable))
        return Ref(name)

    def vertex(self, op: str, *arguments: Argument, width: int) -> Ref:
        return self.call(f"aten.{op}", *arguments, type=ValueType("vertex", (width,)))

    def edge(self, op: str, *arguments: Argument, width: int, edges: EdgeSet = "graph") -> Ref:
        return self.call(f"aten.{op}", *arguments, type=ValueType("edge", (width,), edges=edges))

    def scatter(self, x: Ref, end: str, width: int, edges: EdgeSet = "graph") -> Ref:
        return self.call("lotan.scatter", x, end, edges, type=ValueType("edge", (width,), edges=edges))

    def aggregate(self, message: Ref, width: int, kind: str = "sum", edges: EdgeSet = "graph") -> Ref:
        return self.call("lotan.aggregate", message, kind, edges, type=ValueType("vertex", (width,)))

    def linear(self, x: Ref, name: str, given: int, width: int) -> Ref:
        return self.vertex("linear.default", x, self.parameter(name, width, given), width=width)

    def spec(self, output: Ref) -> Spec:
        return Spec(self.width, tuple(self.parameters), tuple(self.calls), output.name)


FEATURES = Ref("features")


def gcn(training: bool = True, layers: int = 2, hidden: int = 16, classes: int = 3, features: int = 8) -> Spec:
    w, x, given = SpecWriter(features), FEATURES, features
    for index in range(layers):
        last = index == layers - 1
        width = classes if last else hidden
        w.layer = f"convs.{index}"
        scale = w.call("lotan.vertex_input", "gcn_scale@self_loops", type=ValueType("vertex", ()))
        scale = w.vertex("unsqueeze.default", scale, -1, width=1)
        x = w.linear(x, f"convs.{index}.lin.weight", given, width)
        x = w.vertex("mul.Tensor", x, scale, width=width)
        x = w.aggregate(w.scatter(x, "source", width, "self_loops"), width, "sum", "self_loops")
        x = w.vertex("mul.Tensor", x, scale, width=width)
        x = w.vertex("add.Tensor", x, w.parameter(f"convs.{index}.bias", width), width=width)
        w.layer = ""
        if not last:
            x = w.vertex("relu.default", x, width=width)
            x = w.vertex("dropout.default", x, 0.5, True, width=width) if training else x
        given = width
    return w.spec(x)


def attention(classes: int = 3, dropout: bool = False) -> Spec:
    """One layer with a score per edge: softmax(leaky_relu(a.Wx_j + b.Wx_i)) Wx_j."""
    w = SpecWriter(layer="conv")
    weight, a, b = w.parameter("weight", classes, 8), w.parameter("a", 1, classes), w.parameter("b", 1, classes)
    h_j = w.edge("linear.default", w.scatter(FEATURES, "source", 8), weight, width=classes)
    h_i = w.edge("linear.default", w.scatter(FEATURES, "destination", 8), weight, width=classes)
    score_j = w.edge("linear.default", h_j, a, width=1)
    score_i = w.edge("linear.default", h_i, b, width=1)
    score = w.edge("leaky_relu.default", w.edge("add.Tensor", score_j, score_i, width=1), 0.2, width=1)
    alpha = w.call("lotan.edge_softmax", score, "graph", type=ValueType("edge", (1,), edges="graph"))
    alpha = w.edge("dropout.default", alpha, 0.5, True, width=1) if dropout else alpha
    return w.spec(w.aggregate(w.edge("mul.Tensor", alpha, h_j, width=classes), classes))


def jumping(classes: int = 3) -> Spec:
    """Two propagates whose outputs are concatenated with the transformed input: branches and a skip."""
    w = SpecWriter()
    h0 = w.linear(FEATURES, "lin0", 8, 4)
    h1 = w.vertex("relu.default", w.aggregate(w.scatter(h0, "source", 4), 4, "mean"), width=4)
    h2 = w.vertex("relu.default", w.aggregate(w.scatter(h1, "source", 4), 4), width=4)
    joined = w.vertex("cat.default", (h0, h1, h2), -1, width=12)
    return w.spec(w.linear(joined, "lin1", 12, classes))


IN_PLACE = ("commute_linear", "hoist_invariant")
"""Rules to leave out where a test is about what they would take away."""


def planned(
    spec: Spec,
    evaluate: Spec | None = None,
    options: Options | None = None,
    outputs: int = 3,
    statistics: Statistics = STATISTICS,
) -> Planned:
    """A plan of a spec, at `RATES` unless the options have rates of their own."""
    loss, options = LossSpec("classification", outputs, 10.0), options or Options()
    if options.pricing.rates is DEFAULT_RATES["local"]:
        fixed = replace(options.pricing.traits, rates=RATES)
        options = replace(options, pricing=replace(options.pricing, traits=fixed))
    return compile_plan(spec, evaluate or spec, loss, statistics, options)


def hops(count: int, width: int = 8, outputs: int = 3) -> Spec:
    """SGC: a linear map of the features after so many sums."""
    w = SpecWriter(width=width)
    h = FEATURES
    for _ in range(count):
        h = w.aggregate(w.scatter(h, "source", width), width)
    return w.spec(w.linear(h, "lin", width, outputs))
