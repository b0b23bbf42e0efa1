"""Checks of a graph in memory. Tables that make no arrays are refused earlier, by `lotan.graph.columns`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lotan.graph.arrays import GraphArrays, counted
from lotan.graph.faults import example_row, shown
from lotan.graph.given_types import GivenTypes
from lotan.memory.mapped import give_back, parts
from lotan.validation import complaints
from lotan.validation.demands import Demands, GraphReport
from lotan.validation.names import Names
from planner.spec import SPLITS, Bound

Rows = npt.NDArray[np.bool_]


def check_arrays(graph: GraphArrays, demands: Demands, types: GivenTypes | None = None) -> GraphReport:
    """Check a graph in memory, as `lotan.validation.check.check_graph` describes it.

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
        counts = counted(graph.dst, len(graph.ids))
        if counts.max() > demands.in_edges[0]:
            raise complaints.too_many_in_edges(names.vertex(int(counts.argmax())), int(counts.max()), demands)
    found = _report(graph)
    give_back(graph.features)
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
            bad, edge = _found(graph.edge_attr, partial(_outside, bound=bound))
            if bad:
                src, dst = names.ends(edge)
                example = f"{shown(src)} -> {shown(dst)}: {graph.edge_attr[edge, bound.place]}"
                raise complaints.numbers_out_of_range(bound, bad, example)


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
    kinds: tuple[tuple[Callable[[Any], Rows], bool], ...] = (
        (lambda weight: ~np.isfinite(weight), False),
        (lambda weight: weight < 0, True),
    )
    for is_bad, negative in kinds[: 2 if demands.normalised_weights else 1]:
        bad, edge = _found(graph.weight, is_bad)
        if bad:
            raise complaints.bad_weights(bad, *names.ends(edge), graph.weight[edge], negative)


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
    bad, edge = _found(graph.edge_attr, lambda rows: ~np.isfinite(rows).all(axis=1))
    if bad:
        raise complaints.attributes_not_finite(bad, *names.ends(edge), graph.edge_attr[edge].tolist())


def _check_types(names: Names, demands: Demands) -> None:
    graph = names.graph
    if graph.edge_type is None:
        return
    limit = complaints.type_limit(demands)
    bad, edge = _found(graph.edge_type, lambda types: (types < 0) | (types >= limit))
    if bad:
        raise complaints.types_out_of_range(bad, *names.ends(edge), graph.edge_type[edge], demands)


def _report(graph: GraphArrays) -> GraphReport:
    return GraphReport(
        vertices=len(graph.ids),
        edges=len(graph.src),
        width=graph.features.shape[1],
        self_loops=graph.statistics.self_loops,
        parallel_edges=_parallel(graph),
        without_in_edges=_count(counted(graph.dst, len(graph.ids)) == 0),
    )


def _parallel(graph: GraphArrays) -> int:
    """Return how many edges have the ends of the one before. Edges are sorted, so that parallel ones are neighbours."""
    found, last = 0, (-1, -1)  # the ends of the last edge of the part before
    for part in graph.edges.parts():
        src, dst = part.src, part.dst
        found += _count((src[1:] == src[:-1]) & (dst[1:] == dst[:-1]))
        if len(src):
            found += last == (src[0], dst[0])
            last = int(src[-1]), int(dst[-1])
    return found


def _found(column: npt.NDArray[Any], is_bad: Callable[[Any], Rows]) -> tuple[int, int]:
    """Return how many rows are bad, and the first of them. A column that lies in a file is read part by part."""
    count, first = 0, -1
    for some in parts(column):
        bad = is_bad(column[some])
        here = _count(bad)
        first = some.start + _first(bad) if here and not count else first
        count += here
    return count, first


def _first(rows: Rows) -> int:
    return int(np.argmax(rows))


def _count(rows: Rows) -> int:
    return int(np.count_nonzero(rows))
