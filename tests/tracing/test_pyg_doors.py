"""What models of PyG are given, and what is refused before training: types beyond a layer's, widths, wrapped models."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import lotan
from lotan.errors import GraphError, ModelError
from lotan.nn.unwrapping import unwrapped
from lotan.tracing.trace import trace
from planner.edge_columns import EdgeData
from planner.spec import Bound
from tests.tracing.test_pyg_layers import WIDTH, assert_same_training, messy_graph, trained_by_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg
    from torch_geometric.utils import scatter

pytestmark = pytest.mark.thorough

QUICK = {"engine": "local", "epochs": 2, "progress": False}


class Kinds(torch.nn.Module):
    """Types of vertices in a column of x, of edges in a column of edge_attr, and in edge_type."""

    def __init__(self, kinds: int = 3) -> None:
        super().__init__()
        self.kinds = kinds
        self.typed = pyg.HeteroLinear(WIDTH, 3, num_types=kinds)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_type: Tensor) -> Tensor:
        out = self.typed(x, x[:, 1].long())
        of_edges = F.one_hot(edge_attr[:, 0].long(), 3).float() + F.one_hot(edge_type, num_classes=3)
        return out + scatter(of_edges, edge_index[1], 0, x.size(0))


def graph_of_kinds(feature: float = 2.0, attribute: float = 2.0, kind: int = 2) -> lotan.Graph:
    graph = messy_graph().arrays()
    features, attributes, types = graph.features.copy(), graph.edge_attr.copy(), graph.edge_type.copy()
    features[:, 1] = np.arange(len(features)) % 2
    attributes[:, 0] = 0.5
    features[5, 1], attributes[7, 0], types[9] = feature, attribute, kind
    return lotan.Graph.from_arrays(
        features, graph.src, graph.dst, graph.label, graph.split, edge_attr=attributes, edge_type=types
    )


def test_the_columns_that_hold_types_are_known() -> None:
    spec = trace(Kinds(), WIDTH, training=True, data=EdgeData(2, typed=True))
    layers = {(bound.column, bound.place, bound.limit): bound.layer for bound in spec.bounds}
    assert layers == {("features", 1, 3): "typed", ("edge_attr", 0, 3): "", ("edge_type", 0, 3): ""}


class OfBonds(torch.nn.Module):
    """Looks up a row for a column of edge_attr, as OGB's encoder of bonds does."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.conv = torch.nn.Embedding(3, 4), pyg.GINEConv(torch.nn.Linear(WIDTH, 3), edge_dim=4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.conv(x, edge_index, self.rows(edge_attr[:, 0].long()))


@pytest.mark.parametrize("kind", [Kinds, OfBonds])
def test_types_within_the_bounds_train_as_in_pyg(kind: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    graph, ours = graph_of_kinds(), kind()
    theirs = copy.deepcopy(ours)
    run = lotan.Trainer(ours, graph, **QUICK | {"epochs": 3, "optimizer": lotan.Adam(lr=0.01)}).fit()
    assert_same_training(run, trained_by_pyg(theirs, graph, torch.optim.Adam), ours, theirs)


def test_attributes_beyond_the_rows_of_an_embedding_are_refused() -> None:
    with pytest.raises(GraphError, match=r"edge_attr.*not among the 3 of layer 'rows', 0 to 2.*: 3.0"):
        lotan.Trainer(OfBonds(), graph_of_kinds(attribute=3.0), **QUICK).fit()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"feature": 3.0}, r"vertices.*features.*position 1 .*not among the 3 of layer 'typed', 0 to 2.*5: 3.0"),
        ({"feature": -1.0}, r"position 1 .*layer 'typed'.*-1.0"),
        ({"attribute": 3.5}, r"edges.*edge_attr.*position 0 .*not among the 3 of the model, 0 to 2.*3.5"),
        ({"kind": 3}, r"edges.*edge_type.*not among the 3 of the model, 0 to 2.*3"),
    ],
)
def test_a_type_beyond_the_number_is_refused(given: dict[str, float], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        lotan.Trainer(Kinds(), graph_of_kinds(**given), **QUICK).fit()


def test_a_saved_model_refuses_them_too(tmp_path) -> None:
    lotan.Trainer(Kinds(), graph_of_kinds(), **QUICK).fit().save(tmp_path)
    model = lotan.load(tmp_path)
    assert Bound("features", 1, 3, "typed") in model.spec.bounds
    with pytest.raises(GraphError, match="position 1"):
        model.predict(graph_of_kinds(feature=4.0), engine="local")


@pytest.mark.spark
def test_a_type_beyond_the_number_is_refused_in_spark(spark) -> None:
    from lotan.validation.check import check_graph

    bounds = (Bound("features", 1, 3, "typed"), Bound("edge_attr", 0, 3, ""))
    for given, words in (({"feature": 7.0}, "position 1 .*'typed'.*5: 7.0"), ({"attribute": 7.0}, "position 0 .*7.0")):
        vertices, edges = graph_of_kinds(**given).frames(spark)
        graph = lotan.Graph(vertices.drop("label", "split"), edges, edge_features="edge_attr", edge_type="edge_type")
        with pytest.raises(GraphError, match=words):
            check_graph(graph, None, None, WIDTH, bounds=bounds)


class Computed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = pyg.HeteroLinear(WIDTH, 3, num_types=3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x, (x.sum(-1) * 2).long())


def test_types_that_are_computed_are_refused() -> None:
    with pytest.raises(ModelError, match=r"layer 'lin' .*integers from 0 to 2.*are computed.*clamp them"):
        lotan.Trainer(Computed(), messy_graph(), **QUICK).fit()


class Flat(torch.nn.Module):
    """Reads attributes as PyG has them, one number for each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return (
            scatter(self.lin(x)[edge_index[0]] * edge_attr.view(-1, 1) ** 2, edge_index[1], 0, x.size(0))
            * edge_attr.dim()
        )


@pytest.mark.parametrize("flat", [True, False])
def test_attributes_arrive_in_the_shape_that_they_were_given_in(flat: bool) -> None:
    torch.manual_seed(0)
    data = messy_graph().to_pyg()
    data.edge_attr = data.edge_attr[:, 0] if flat else data.edge_attr[:, :1]
    graph, ours = lotan.Graph.from_pyg(data), Flat()
    assert graph.to_pyg().edge_attr.shape == data.edge_attr.shape
    theirs = copy.deepcopy(ours)
    run = lotan.Trainer(ours, graph, **QUICK | {"epochs": 3, "optimizer": lotan.Adam(lr=0.01)}).fit()
    assert_same_training(run, trained_by_pyg(theirs, graph, torch.optim.Adam), ours, theirs)


class Cancels(torch.nn.Module):
    """A bias before a normalisation. Its gradient is what rounding leaves of large numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(WIDTH, 3), torch.nn.BatchNorm1d(3)
        with torch.no_grad():
            self.lin.weight.mul_(1e-3)
            self.lin.bias.add_(1.0)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.norm(scatter(self.lin(x)[edge_index[0]], edge_index[1], 0, x.size(0), "mean") * 3e3) * 3e3


def test_a_gradient_that_is_rounding_alone_is_no_difference() -> None:
    torch.manual_seed(0)
    assert trace(Cancels(), WIDTH, training=True).calls


def test_compiled_models_are_trained_and_scripted_ones_refused() -> None:
    model = pyg.GCN(WIDTH, 4, 2, 3)
    compiled = torch.compile(torch.nn.DataParallel(model))
    trainer = lotan.Trainer(compiled, messy_graph(), **QUICK)
    before = model.convs[0].lin.weight.clone()
    assert trainer.model is model
    assert len(trainer.fit().history) == 2
    assert not torch.equal(model.convs[0].lin.weight, before)
    part = Wrong(torch.compile(pyg.GCN(WIDTH, 4, 2, 3)))
    assert lotan.Trainer(part, messy_graph(), **QUICK).fit().history
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(torch.nn.Linear(2, 3))
    with pytest.raises(ModelError, match=r"layer '0' is compiled by torch.jit.*pass the module that torch.jit.script"):
        unwrapped(torch.nn.Sequential(script))


class Wrong(torch.nn.Module):
    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.conv(x, edge_index, edge_type) if hasattr(self.conv, "num_relations") else self.conv(x, edge_index)


class Product(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8, 3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x @ self.weight


@pytest.mark.parametrize(
    "conv", [pyg.GCNConv(8, 3), pyg.RGCNConv(8, 3, 3), pyg.GCN(8, 4, 2, 3)], ids=lambda one: type(one).__name__
)
def test_a_layer_for_other_features_is_named(conv: torch.nn.Module) -> None:
    words = rf"layer 'conv' .*{type(conv).__name__} got rows of width {WIDTH}, as the graph's features, but its in_channels is 8"
    with pytest.raises(ModelError, match=words):
        lotan.Trainer(Wrong(conv), messy_graph(), **QUICK).fit()


def test_a_product_for_other_features_is_explained() -> None:
    words = rf"layer 'conv'.*rows of width {WIDTH} by a parameter for rows of width 8 \(the graph's features have width {WIDTH}\)"
    with pytest.raises(ModelError, match=words):
        lotan.Trainer(Wrong(Product()), messy_graph(), **QUICK).fit()


class OfData(torch.nn.Module):
    """Takes all tensors as one object, as many examples of PyG do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(WIDTH, 5), pyg.SAGEConv(5, 3)

    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        assert data.num_nodes == x.size(0)
        assert data.batch is None
        x = self.first(x, edge_index, data.edge_weight).relu()
        return self.second(x, edge_index) + scatter(data.edge_attr[:, :1], edge_index[1], 0, data.num_nodes)


class OfTensors(OfData):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.first(x, edge_index, edge_weight).relu()
        return self.second(x, edge_index) + scatter(edge_attr[:, :1], edge_index[1], 0, x.size(0))


def test_a_forward_of_data_is_that_of_its_tensors() -> None:
    torch.manual_seed(0)
    graph, ours = messy_graph(), OfData()
    theirs = OfTensors()
    theirs.load_state_dict(ours.state_dict())
    runs = [lotan.Trainer(model, graph, **QUICK).fit() for model in (ours, theirs)]
    assert runs[0].history[-1]["loss"] == runs[1].history[-1]["loss"]
    with pytest.raises(ModelError, match="'NoneType' object is not subscriptable"):
        lotan.Trainer(
            OfData(), lotan.Graph.from_arrays(np.zeros((3, WIDTH)), [0], [1], [0, 1, 2], [0, 0, 0]), **QUICK
        ).fit()


class ByKeys(OfData):
    def forward(self, batch):
        assert "edge_weight" in batch
        assert "pos" not in batch
        assert batch.num_features == batch.num_node_features == WIDTH
        assert batch.num_edges == batch["edge_index"].size(1)
        return super().forward(batch)


class AsGraph(OfData):
    def forward(self, graph):
        return super().forward(graph)


@pytest.mark.parametrize("kind", [ByKeys, AsGraph])
def test_a_whole_graph_may_have_other_names(kind: type[torch.nn.Module]) -> None:
    ours, theirs = kind(), OfTensors()
    specs = [trace(model, WIDTH, training=True, data=EdgeData(2), weighted=True) for model in (ours, theirs)]
    assert [call.op for call in specs[0].calls] == [call.op for call in specs[1].calls]


class OtherNames(OfData):
    def forward(self, features, edges):
        return self.first(features, edges)


class AnyNames(OfData):
    def forward(self, *given):
        return self.first(*given)


@pytest.mark.parametrize("kind", [OtherNames, AnyNames])
def test_arguments_whose_names_say_nothing_are_explained(kind: type[torch.nn.Module]) -> None:
    with pytest.raises(ModelError, match=r"none of its arguments is called edge_index; .* name them x and edge_index"):
        trace(kind(), WIDTH, training=True)


class Refused(torch.nn.Module):
    def __init__(self, forward) -> None:
        super().__init__()
        self.conv, self.linear = pyg.GCNConv(WIDTH, 3), torch.nn.Linear(3, 3)
        self._forward = forward

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self._forward(self, x, edge_index)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda self, x, e: self.conv(x.to("cuda"), e), "leave devices out of forward"),
        (lambda self, x, e: self.conv(x, e).detach(), r"so conv.bias, conv.lin.weight would never change"),
        (lambda self, x, e: self.conv(x, e)[:, 0], r"for one output, return x\[:, None\]"),
        (lambda self, x, e: self.conv(x, e) + float(x.numpy().sum()), r"leaves torch by \.numpy\(\)"),
        (lambda self, x, e: F.gumbel_softmax(self.conv(x, e)), r"exponential_ draws random numbers .* torch.rand_like"),
        (
            torch.autocast("cpu", dtype=torch.bfloat16)(lambda self, x, e: self.conv(x, e)),
            "computes under torch.autocast",
        ),
        (torch.inference_mode()(lambda self, x, e: self.conv(x, e)), "computes under torch.inference_mode"),
        (lambda self, x, e: self.conv(x, e) * F.one_hot(x[:, 0].long()), "pass num_classes to one_hot"),
        (lambda self, x, e: self.conv(x, e) + self.linear.weight[x[:, 0].long()], r"one_hot\(number, num_classes\)"),
    ],
)
def test_what_a_forward_does_is_refused_in_its_own_words(forward, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        trace(Refused(forward), WIDTH, training=True)


def test_gradients_that_are_on_may_be_switched_on() -> None:
    trace(Refused(torch.enable_grad()(lambda self, x, e: self.conv(x, e))), WIDTH, training=True)


def test_a_module_without_the_first_line_is_named() -> None:
    class Bare(torch.nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(ModelError, match=r"Bare is no complete torch module.*super\(\).__init__\(\)"):
        lotan.Trainer(Bare(), messy_graph(), **QUICK)


class MaskOfData(OfData):
    def forward(self, data):
        return super().forward(data)[data.train_mask]


def test_masks_of_data_are_read_by_the_loss() -> None:
    with pytest.raises(ModelError, match=r"no 'train_mask' .*the loss reads labels and splits itself"):
        trace(MaskOfData(), WIDTH, training=True, data=EdgeData(2))


@pytest.mark.parametrize(
    "norm",
    [
        torch.nn.utils.weight_norm,
        torch.nn.utils.spectral_norm,
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.parametrizations.spectral_norm,
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_weight_that_is_computed_anew_is_refused_with_the_line_that_helps(norm) -> None:
    model = Refused(lambda self, x, e: self.linear(self.conv(x, e)))
    norm(model.linear)
    with pytest.raises(ModelError, match="layer 'linear': its weight is computed anew") as found:
        trace(model, WIDTH, training=True)
    exec(str(found.value).rpartition(": ")[2], {"torch": torch, "model": model})  # the line that the error gives
    trace(model, WIDTH, training=True)


def test_another_default_dtype_is_named() -> None:
    model = OfTensors()
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ModelError, match=r"default dtype is torch\.float64.*set_default_dtype\(torch\.float32\)"):
            trace(model, WIDTH, training=True)
    finally:
        torch.set_default_dtype(torch.float32)


def test_numbers_of_numpy_are_numbers() -> None:
    graph = messy_graph()
    run = lotan.Trainer(OfData(), graph, **QUICK | {"epochs": np.int64(2), "seed": np.int32(3)}).fit()
    assert len(run.history) == 2
