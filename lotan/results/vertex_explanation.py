"""Explanations of a model's output for one vertex: the influence of vertices, edges and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lotan.arguments import described, require_count
from lotan.errors import ConfigurationError, ModelError
from lotan.graph.arrays import Ids
from lotan.graph.given_types import GivenTypes
from lotan.graph.graph import Graph
from lotan.graph.id_files import ONE_TYPE
from lotan.nn.edge_index import EdgeIndex
from lotan.planning.learned import by_id, ids_by_type
from lotan.results.explanation_picture import picture
from lotan.results.neighbourhood import Neighbourhood, hops_of, neighbourhood
from lotan.tracing.running import run_calls
from planner.loss import LossSpec
from planner.spec import REDUCING, Spec

if TYPE_CHECKING:
    import pandas as pd

Numbers = npt.NDArray[np.floating]
Method = Literal["integrated_gradients", "gnn_explainer"]

RATE = 0.01
"""The learning rate of the masks."""
SHOWN = 5
"""The number of rows of each table that `repr` shows."""
EDGE_SIZE, EDGE_ENTROPY, FEATURE_SIZE, FEATURE_ENTROPY = 0.005, 1.0, 1.0, 0.1
"""The weights of the terms that keep masks small and near 0 or 1, as in the authors' code."""


@dataclass(frozen=True, repr=False)
class VertexExplanation:
    """The influence of a vertex's neighbourhood on one of its outputs. A notebook shows it as a drawing.

    With integrated gradients, influences have the unit of the output (of a logit, or of a target) and a sign. Those of
    all vertices together are the output less that with features of 0; those of all edges are the output less that
    without messages. With GNNExplainer, they are the masks, from 0 to 1.

    In a graph of several types, ids and features are those of a type. The tables of vertices and features then begin with
    a column `type`, and that of edges has `src_type`, `relation` and `dst_type`.
    """

    vertex: int | str  # the id
    output: int  # the number of the explained output: the class, the label or the target
    value: float  # that output: a logit, or a target
    method: Method
    vertices: pd.DataFrame  # id, hops (from the vertex), influence of its features; the greatest influence first
    edges: pd.DataFrame  # src, dst, influence of the messages along the edge, in all layers
    features: pd.DataFrame  # feature (its number; those of learned rows follow), influence (over all vertices)

    def __repr__(self) -> str:
        """Describe the explanation by the greatest influences."""
        _, named, vertex = self._named()
        edges = [f"{src} -> {dst} {value:+.3g}" for src, dst, value in _rows(named, "src", "dst")]
        numbers = [name for name in ("type", "feature") if name in self.features]
        features = [f"{' '.join(map(str, of))} {value:+.3g}" for *of, value in _rows(self.features, *numbers)]
        return "\n".join(
            [
                f"Output {self.output} of vertex {vertex} is {self.value:.4g} ({self.method})",
                f"  vertices {len(self.vertices):,}, edges {len(self.edges):,}",
                f"  edges     {', '.join(edges)}",
                f"  features  {', '.join(features)}",
            ]
        )

    def drawing(self, most_edges: int = 40) -> str:
        """Return a drawing as SVG: the vertex in the middle, and the ends of the edges with the greatest influence.

        Args:
            most_edges: The most edges that are drawn (default: 40).
        """
        vertices, edges, vertex = self._named()
        return picture(vertices, edges.head(most_edges), vertex)

    def _named(self) -> tuple[pd.DataFrame, pd.DataFrame, int | str]:
        """Return the tables of vertices and edges, and the vertex in the middle, with the type in ids if there are several."""
        if "type" not in self.vertices:
            return self.vertices, self.edges, self.vertex
        vertices, edges = (
            table.assign(**{end: table[kind] + " " + table[end].astype(str) for kind, end in ends.items()})
            for table, ends in ((self.vertices, {"type": "id"}), (self.edges, {"src_type": "src", "dst_type": "dst"}))
        )
        (vertex,) = vertices.loc[vertices["hops"] == 0, "id"]
        return vertices, edges, vertex

    def _repr_svg_(self) -> str:
        return self.drawing()


def _rows(table: pd.DataFrame, *names: str) -> Any:
    return table.head(SHOWN)[[*names, "influence"]].itertuples(index=False)


def explain_vertex(
    spec: Spec,
    loss: LossSpec,
    weights: Mapping[str, Tensor],
    graph: Graph,
    vertex: int | str,
    output: int | None = None,
    method: Method = "integrated_gradients",
    steps: int | None = None,
    most_edges: int = 100_000,
    seed: int = 0,
) -> VertexExplanation:
    """Explain an output of a vertex; see `TrainedModel.explain_vertex`.

    Args:
        spec: The traced model in evaluation mode.
        loss: The task.
        weights: Parameters and buffers, by name, with learned rows in the order of the graph's vertices.
        graph: The graph.
        vertex: The vertex's id; in a graph of several types, that of a vertex of the type that has labels.
        output: The number of the output; None for the predicted class, or the greatest output.
        method: The method.
        steps: The steps of the method; None for 64 of the integral, or 200 of GNNExplainer.
        most_edges: The most edges on which the output may depend.
        seed: The seed of GNNExplainer's first masks.

    Raises:
        GraphError: There is no such vertex, or its output depends on more edges than `most_edges`.
        ConfigurationError: An argument has a wrong value, or the model has no such output.
        ModelError: The model takes statistics of all vertices.
    """
    if method not in get_args(Method):
        raise ConfigurationError(f"method is {described(method)}; expected {' or '.join(get_args(Method))}")
    for name, number, least in (("most_edges", most_edges, 1), ("seed", seed, 0)):
        require_count("explain_vertex", name, number, least)
    steps = (64 if method == "integrated_gradients" else 200) if steps is None else steps
    require_count("explain_vertex", "steps", steps, 1)
    _require_edges_alone(spec)
    hops = hops_of(spec)
    part = neighbourhood(graph, vertex, hops, most_edges)
    if spec.learned:
        weights = by_id(weights, spec.types_of_rows, ids_by_type(graph, spec), _ids_by_type(part, graph.given_types))
    kinds = _Kinds.of(spec, part)
    run = _Output(spec, weights, part, kinds)
    values = run(run.features, run.ones)
    chosen = _chosen(values, output, loss)
    if method == "integrated_gradients":
        found = _integrated(run, chosen, steps)
    else:
        found = _masks(run, chosen, steps, seed, loss)
    vertices, edges, features = _tables(part, hops, found, kinds, graph.given_types)
    return VertexExplanation(vertex, chosen, float(values[chosen]), method, vertices, edges, features)


def _require_edges_alone(spec: Spec) -> None:
    """Refuse a model in which vertices meet other than along edges."""
    if spec.sees_labels:
        raise ModelError(
            "the model takes labels as input; explain_vertex explains models whose inputs are features and edges"
        )
    for call in spec.calls:
        if call.op in REDUCING:
            raise ModelError(
                f"{call.layer or 'the model'} takes statistics of all vertices, on which every output depends; "
                "explain_vertex explains models in which vertices meet along edges alone"
            )


def _ids_by_type(part: Neighbourhood, types: GivenTypes | None) -> dict[str, Ids]:
    """Return the ids of the vertices of each type as they were given, in the order of their rows; "" if there is one type."""
    joint = part.graph.arrays().ids
    if types is None:
        return {ONE_TYPE: joint}
    names, given = types.given_ids(joint)
    kinds = zip(types.types.names, types.id_types, strict=True)
    return {name: given[names == name].astype(object if kind == "string" else np.int64) for name, kind in kinds}


def _chosen(values: Tensor, output: int | None, loss: LossSpec) -> int:
    if output is None:
        return int(values.argmax())
    require_count("explain_vertex", "output", output, 0)
    if output >= len(values):
        raise ConfigurationError(f"output is {output}, but the model has {len(values)} outputs, numbered from 0")
    return output


@dataclass(frozen=True)
class _Kinds:
    """The types of the vertices of a part of a graph."""

    number: Tensor  # the number of the type of each vertex, int64 [vertices]; 0 in a graph of one type
    columns: tuple[list[int], ...]  # the places of the features of each type, and of its learned rows behind them
    column: int | None  # the feature that says the type, if there are several

    @staticmethod
    def of(spec: Spec, part: Neighbourhood) -> _Kinds:
        features, types = part.graph.arrays().features, spec.vertex_types
        width = features.shape[1]
        if types is None:
            every = list(range(width + sum(spec.learned.values())))
            return _Kinds(torch.zeros(len(features), dtype=torch.int64), (every,), None)
        columns = [list(range(own)) for own in types.widths]
        for name, learned in spec.learned.items():
            columns[types.names.index(spec.types_of_rows[name])] += range(width, width + learned)
            width += learned
        number = torch.from_numpy(features[:, types.type_column].astype(np.int64))
        return _Kinds(number, tuple(columns), types.type_column)

    def have_rows(self, spec: Spec, name: str) -> Tensor:
        """Return True for each vertex that has a row of a parameter, bool [vertices]."""
        types = spec.vertex_types
        return self.number == (0 if types is None else types.names.index(spec.types_of_rows[name]))


class _Output:
    """The outputs of the vertex in the middle, as a function of features and of a mask of the edges' messages."""

    def __init__(self, spec: Spec, weights: Mapping[str, Tensor], part: Neighbourhood, kinds: _Kinds) -> None:
        arrays = part.graph.arrays()
        self.kinds = kinds
        self._spec, self._weights, self._middle = spec, weights, part.middle
        self._have_rows = {name: kinds.have_rows(spec, name) for name in spec.learned}
        # learned rows are explained as further features, which are 0 for vertices of other types
        rows = [torch.zeros(len(arrays.ids), width) for width in spec.learned.values()]
        for table, (name, here) in zip(rows, self._have_rows.items(), strict=True):
            table[here] = weights[name].flatten(1).to(table.dtype)
        self.features = torch.cat([torch.from_numpy(arrays.features), *rows], dim=1)
        self._widths = [arrays.features.shape[1], *spec.learned.values()]
        self.ones = torch.ones(len(arrays.src))
        index = torch.from_numpy(np.stack([arrays.src, arrays.dst]).astype(np.int64))
        columns = arrays.weight, arrays.edge_attr, arrays.edge_type
        weight, attributes, types = (None if one is None else torch.from_numpy(one.copy()) for one in columns)
        self._graph = EdgeIndex(index, weight, len(arrays.ids), edge_attr=attributes, edge_type=types)

    def __call__(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the outputs [outputs]."""
        own, *learned = features.split(self._widths, dim=1)
        if (column := self.kinds.column) is not None:  # the type of a vertex is no feature that could be another one
            own = own.clone()
            own[:, column] = self.kinds.number.to(own.dtype)
        rows_of = {
            name: rows[here].reshape(-1, *self._weights[name].shape[1:])
            for (name, here), rows in zip(self._have_rows.items(), learned, strict=True)
        }
        rows = run_calls(self._spec, {**self._weights, **rows_of}, own, self._graph, drop=False, mask=mask)
        return rows[self._middle].reshape(-1)


@dataclass(frozen=True)
class _Influences:
    """The influences of features and edges."""

    features: Tensor  # [vertices, width], or [types, width] for masks of each feature of all vertices of a type
    edges: Tensor  # [edges]
    are_masks: bool


def _integrated(run: _Output, output: int, steps: int) -> _Influences:
    """Integrate gradients along the line from 0 to the features, and from 0 to the mask of 1 (Sundararajan et al. 2017).

    The integrals are sums at the middles of equal steps.
    """
    shares = (torch.arange(steps) + 0.5) / steps

    def integral(of: Tensor, outputs: Callable[[Tensor], Tensor]) -> Tensor:
        total = torch.zeros_like(of)
        for share in shares:
            at = (share * of).requires_grad_()
            value = outputs(at)[output]
            (gradient,) = (
                torch.autograd.grad(value, at, materialize_grads=True) if value.requires_grad else (total * 0,)
            )
            total += gradient
        return of * total / steps

    with torch.enable_grad():
        features = integral(run.features, lambda features: run(features, run.ones))
        edges = integral(run.ones, lambda mask: run(run.features, mask))
    return _Influences(features, edges, are_masks=False)


def _masks(run: _Output, output: int, steps: int, seed: int, loss: LossSpec) -> _Influences:
    """Learn masks of the edges and of the features that keep the output (GNNExplainer, Ying et al., NeurIPS 2019).

    Each type of vertices has a mask of its features. An edge or a feature without a gradient in the first step has no part
    in the output. Its mask is 0, as in PyG.
    """
    generator = torch.Generator().manual_seed(seed)
    spread = (1.0 / len(run.features)) ** 0.5
    masks = [
        (spread * torch.randn(len(run.ones), generator=generator)).requires_grad_(),
        (0.1 * torch.randn(len(run.kinds.columns), run.features.shape[1], generator=generator)).requires_grad_(),
    ]
    target = run(run.features, run.ones).detach()
    optimizer = torch.optim.Adam(masks, lr=RATE)
    taking_part = [torch.ones(mask.shape, dtype=torch.bool) for mask in masks]
    with torch.enable_grad():
        for step in range(steps):
            edges, features = (mask.sigmoid() for mask in masks)
            lost = _lost(run(run.features * features[run.kinds.number], edges), target, output, loss)
            if step == 0 and lost.requires_grad:  # else the output depends on no features
                found = torch.autograd.grad(lost, masks, retain_graph=True, materialize_grads=True)
                taking_part = [gradient != 0 for gradient in found]
            edges, features = edges[taking_part[0]], features[taking_part[1]]
            size = EDGE_SIZE * edges.sum() + FEATURE_SIZE * _mean(features)
            entropy = EDGE_ENTROPY * _mean(_entropy(edges)) + FEATURE_ENTROPY * _mean(_entropy(features))
            optimizer.zero_grad()
            (lost + size + entropy).backward()
            optimizer.step()
    edges, features = (mask.detach().sigmoid() * there for mask, there in zip(masks, taking_part, strict=True))
    return _Influences(features, edges, are_masks=True)


def _lost(values: Tensor, target: Tensor, output: int, loss: LossSpec) -> Tensor:
    """Return the loss between outputs [outputs] and the outputs without masks, for the explained output."""
    match loss.task:
        case "classification" if len(values) > 1:
            return -values.log_softmax(0)[output]
        case "regression":
            return (values[output] - target[output]).square()
    return torch.nn.functional.binary_cross_entropy_with_logits(values[output], target[output].sigmoid())


def _entropy(mask: Tensor) -> Tensor:
    safe = mask.clamp(1e-15, 1 - 1e-15)
    return -safe * safe.log() - (1 - safe) * (1 - safe).log()


def _mean(values: Tensor) -> Tensor:
    return values.sum() / max(1, len(values))


def _tables(
    part: Neighbourhood, hops: int, found: _Influences, kinds: _Kinds, types: GivenTypes | None
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the tables of an explanation: vertices, edges and features, each with the greatest influence first.

    The outermost vertices and edges of the part are left out: they only bring the degrees of other vertices.
    """
    import pandas as pd  # here, because training does not need it

    arrays = part.graph.arrays()
    of_features = [
        pd.DataFrame({"feature": np.arange(len(values)), "influence": values}) for values in _of_features(found, kinds)
    ]
    if types is None:
        of_vertices: dict[str, Any] = {"id": arrays.ids}
        of_edges: dict[str, Any] = {"src": arrays.ids[arrays.src], "dst": arrays.ids[arrays.dst]}
    else:
        assert arrays.edge_type is not None, "edges between several types have the numbers of their relations"
        names, ids = types.given_ids(arrays.ids)
        of_vertices = {"type": names, "id": ids}
        relations = [types.types.relations[number][1] for number in arrays.edge_type]
        src, dst = arrays.src, arrays.dst
        of_edges = {"src_type": names[src], "src": ids[src], "relation": relations}
        of_edges |= {"dst_type": names[dst], "dst": ids[dst]}
        for name, table in zip(types.types.names, of_features, strict=True):
            table.insert(0, "type", name)
    of_vertices |= {"hops": part.hops, "influence": _of_vertices(part, found)}
    vertices = pd.DataFrame(of_vertices)[part.hops <= hops]
    edges = pd.DataFrame({**of_edges, "influence": found.edges.numpy()})[part.hops[arrays.dst] < max(1, hops)]
    return _ranked(vertices), _ranked(edges), _ranked(pd.concat(of_features, ignore_index=True))


def _ranked(table: pd.DataFrame) -> pd.DataFrame:
    order = table.sort_values("influence", key=abs, ascending=False, kind="stable")
    return order.reset_index(drop=True)


def _of_features(found: _Influences, kinds: _Kinds) -> list[Numbers]:
    """Return the influences of the features of each type of vertices, [width of the type]."""
    influences = found.features
    if not found.are_masks:
        of_types = torch.zeros(len(kinds.columns), influences.shape[1], dtype=influences.dtype)
        influences = of_types.index_add(0, kinds.number, influences)
    return [values[columns].numpy() for values, columns in zip(influences, kinds.columns, strict=True)]


def _of_vertices(part: Neighbourhood, found: _Influences) -> Numbers:
    """Return the influence of each vertex [vertices]."""
    if not found.are_masks:
        influences: Numbers = found.features.sum(1).numpy()
        return influences
    # There is one mask for the features of all vertices. A vertex has the greatest mask among its edges.
    arrays = part.graph.arrays()
    of_vertices = np.zeros(len(part.hops))
    for ends in (arrays.src, arrays.dst):
        np.maximum.at(of_vertices, ends, found.edges.numpy())
    of_vertices[part.middle] = 1.0
    return of_vertices
