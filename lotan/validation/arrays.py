"""Checks of a graph in memory. Tables that make no arrays are refused earlier, by `lotan.graph.columns`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lotan.graph.arrays import GraphArrays
from lotan.graph.faults import example_row, shown
from lotan.graph.given_types import GivenTypes
from lotan.memory.mapped import give_back, parts
from lotan.validation import complaints
from lotan.validation.demands import Demands, GraphReport
from lotan.validation.names import Names
from planner.spec import SPLITS, Bound

Rows = npt.NDArray[np.bool_]


def check_arrays(graph: GraphArrays, demands: Demands, types: GivenTypes | None = None) -> GraphReport:
    """Check a graph in memory, as `lotan.validation.check_graph` describes it.

    Args:
        graph: the graph.
        demands: what the job demands of it.
        types: the types of vertices, if there are several (default: None).
    """
    names = Names(graph, types)
    complaints.check_width(graph.features.shape[1], demands)
    _check_features(names)
    _check_numbers(names, demands)
    if demands.task is not None:
        complaints.check_label_kind(graph.label.ndim == 1, demands)
        _check_splits(graph)
        (_check_classes if graph.label.ndim == 1 else _check_targets)(names, demands)
        _check_vertex_weights(names)
    _check_weights(names, demands)
    complaints.check_edge_data(graph.edge_data, demands)
    _check_attributes(names)
    _check_numbers_of_edges(names, demands)
    _check_types(names, demands)
    if demands.in_edges is not None and len(graph.dst):
        counts = np.bincount(graph.dst)
        if counts.max() > demands.in_edges[0]:
            raise complaints.too_many_in_edges(names.vertex(int(counts.argmax())), int(counts.max()), demands)
    found = _report(graph)
    for array in (graph.features, graph.src, graph.dst):
        give_back(array)
    return found


def _check_features(names: Names) -> None:
    graph = names.graph
    bad = np.zeros(len(graph.ids), dtype=np.bool_)
    for some in parts(graph.features):
        bad[some] = ~np.isfinite(graph.features[some]).all(axis=1)
    if bad.any():
        row = _first(bad)
        raise complaints.not_finite(_count(bad), names.vertex(row), graph.features[row].tolist())


def _check_numbers(names: Names, demands: Demands) -> None:
    """Check the features that layers take as types."""
    graph = names.graph
    for bound in demands.bounds:
        if bound.column == "features" and (bad := _outside(graph.features, bound)).any():
            row = _first(bad)
            example = example_row(names.vertex(row), graph.features[row, bound.place].item())
            raise complaints.numbers_out_of_range(bound, _count(bad), example)


def _check_numbers_of_edges(names: Names, demands: Demands) -> None:
    """Check the attributes of edges that layers take as types."""
    graph = names.graph
    for bound in demands.bounds:
        if bound.column == "edge_attr" and graph.edge_attr is not None:
            bad = _outside(graph.edge_attr, bound)
            if bad.any():
                src, dst = names.ends(edge := _first(bad))
                example = f"{shown(src)} -> {shown(dst)}: {graph.edge_attr[edge, bound.place]}"
                raise complaints.numbers_out_of_range(bound, _count(bad), example)


def _outside(rows: npt.NDArray[np.float32], bound: Bound) -> Rows:
    """Return True for each row whose number is not taken. Fractions do not count, so 0.5 and -0.5 count as 0."""
    numbers = rows[:, bound.place]
    return np.asarray((numbers <= -1) | (numbers >= bound.limit))


def _check_splits(graph: GraphArrays) -> None:
    if len(graph.rows_of("train")) == 0:
        raise complaints.empty_training_set()


def _check_classes(names: Names, demands: Demands) -> None:
    graph = names.graph
    if demands.outputs is not None:
        bad = (graph.label < -1) | (graph.label >= demands.outputs)
        if bad.any():
            row = _first(bad)
            raise complaints.labels_out_of_range(_count(bad), names.vertex(row), graph.label[row], demands.outputs)
    _check_missing(names, graph.label < 0)


def _check_targets(names: Names, demands: Demands) -> None:
    graph = names.graph
    complaints.check_label_width(graph.label.shape[1], demands)
    absent = np.isnan(graph.label)
    missing = np.asarray(absent.all(axis=1))
    several = demands.task == "multilabel"
    finite = np.isfinite(graph.label) | (absent if several else missing[:, np.newaxis])
    if not finite.all():
        bad = ~np.asarray(finite.all(axis=1))
        raise complaints.labels_not_finite(_count(bad), names.vertex(_first(bad)), graph.label[_first(bad)].tolist())
    if several and not (known := np.isin(graph.label, (0, 1)) | absent).all():
        bad = ~np.asarray(known.all(axis=1))
        raise complaints.labels_not_binary(_count(bad), names.vertex(_first(bad)), graph.label[_first(bad)].tolist())
    _check_missing(names, missing)


def _check_missing(names: Names, missing: Rows) -> None:
    graph = names.graph
    needed = missing & (graph.split >= 0)
    if needed.any():
        row = _first(needed)
        signs = graph.label.ndim == 1 and set(np.unique(graph.label).tolist()) == {-1, 1}
        raise complaints.missing_labels(_count(needed), names.vertex(row), SPLITS[graph.split[row]], signs)


def _check_weights(names: Names, demands: Demands) -> None:
    graph = names.graph
    if graph.weight is None:
        return
    for bad, negative in ((~np.isfinite(graph.weight), False), (graph.weight < 0, True)):
        if bad.any() and (demands.normalised_weights or not negative):
            edge = _first(bad)
            raise complaints.bad_weights(_count(bad), *names.ends(edge), graph.weight[edge], negative)


def _check_vertex_weights(names: Names) -> None:
    graph = names.graph
    if graph.vertex_weight is None:
        return
    bad = ~(np.isfinite(graph.vertex_weight) & (graph.vertex_weight >= 0))
    if bad.any():
        row = _first(bad)
        raise complaints.bad_vertex_weights(_count(bad), names.vertex(row), graph.vertex_weight[row])


def _check_attributes(names: Names) -> None:
    graph = names.graph
    if graph.edge_attr is None:
        return
    bad = ~np.asarray(np.isfinite(graph.edge_attr).all(axis=1))
    if bad.any():
        edge = _first(bad)
        raise complaints.attributes_not_finite(_count(bad), *names.ends(edge), graph.edge_attr[edge].tolist())


def _check_types(names: Names, demands: Demands) -> None:
    graph = names.graph
    if graph.edge_type is None:
        return
    limit = complaints.type_limit(demands)
    bad = np.asarray((graph.edge_type < 0) | (graph.edge_type >= limit))
    if bad.any():
        edge = _first(bad)
        raise complaints.types_out_of_range(_count(bad), *names.ends(edge), graph.edge_type[edge], demands)


def _report(graph: GraphArrays) -> GraphReport:
    # Edges are sorted by destination, then source, so parallel edges are neighbours.
    parallel = (graph.src[1:] == graph.src[:-1]) & (graph.dst[1:] == graph.dst[:-1])
    return GraphReport(
        vertices=len(graph.ids),
        edges=len(graph.src),
        width=graph.features.shape[1],
        self_loops=graph.statistics.self_loops,
        parallel_edges=_count(parallel),
        without_in_edges=_count(np.bincount(graph.dst, minlength=len(graph.ids)) == 0),
    )


def _first(rows: Rows) -> int:
    return int(np.argmax(rows))


def _count(rows: Rows) -> int:
    return int(np.count_nonzero(rows))
