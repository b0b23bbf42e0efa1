"""The errors for graphs that cannot be trained on, in memory or in Spark. Each fault has one function."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lotan.errors import GraphError
from lotan.graph.faults import example_row, fault, plain, shown
from lotan.validation.demands import Demands
from planner.edge_columns import EdgeData
from planner.spec import SPLITS, Bound

MOST_TYPES = 2**24  # a float32, in which blocks keep types, has every integer below this


def check_width(width: int, demands: Demands) -> None:
    """Raise a GraphError if the features' width is not the model's."""
    if width == 0 and demands.in_channels == 0:
        return  # the model reads no features
    if width == 0:
        mend = "Give every vertex at least one feature, or learn a row for each with lotan.nn.LearnedFeatures."
        raise fault("vertices", "features", "rows hold no numbers", mend)
    if demands.in_channels not in (None, width):
        raise fault(
            "vertices",
            "features",
            f"rows of {width:,} numbers, but the model was made with in_channels={demands.in_channels}",
            "Name the feature columns that it was trained on."
            if demands.outputs is None
            else f"Make the model with in_channels={width}, or name other feature columns.",
        )


def check_label_kind(classes: bool, demands: Demands) -> None:
    """Raise a GraphError unless labels are integers for classification, and floats or arrays for the other tasks."""
    if demands.task is None or classes == (demands.task == "classification"):
        return
    given, wanted, cast = (
        ("integers", "floats or arrays of numbers", "float, or array<float>")
        if classes
        else ("floats or arrays", "integers 0, 1, ... (-1 or null for none)", "int")
    )
    raise fault(
        "vertices",
        "label",
        f"holds {given}, but the task {demands.task} needs {wanted}",
        f"Cast the column to {cast}, or choose another task.",
    )


def check_label_width(width: int, demands: Demands) -> None:
    """Raise a GraphError if the width of label arrays is not that of the model's output."""
    if demands.task is not None and width and demands.outputs not in (None, width):
        raise fault(
            "vertices",
            "label",
            (f"holds one number for each vertex ({demands.task})" if width == 1 else f"arrays of {width:,} numbers")
            + f", but the model gives {demands.outputs} outputs",
            "Cast the column to int, if its numbers are classes; else make the model with 1 output."
            if width == 1
            else f"Make the model with {width} outputs, or repair the labels.",
        )


def empty_training_set() -> GraphError:
    """Build the error for a graph without a vertex in 'train'."""
    return fault(
        "vertices",
        "split",
        "no vertex is in 'train'",
        f"Set split to one of {', '.join(map(repr, SPLITS))}, or null, and name the column where the graph is made.",
    )


def not_finite(count: int, identifier: object, features: Sequence[float]) -> GraphError:
    """Build the error for features that are NaN or infinite."""
    at, value = next((at, value) for at, value in enumerate(features) if not math.isfinite(value))
    example = example_row(identifier, f"{value} at position {at}")
    mend = "Replace them by numbers, or drop the vertices."
    return fault("vertices", "features", "rows that hold NaN or an infinite number", mend, count, example)


def missing_labels(count: int, identifier: object, split: str, signs: bool = False) -> GraphError:
    """Build the error for vertices of a split that have no label.

    Args:
        count: the number of vertices.
        identifier: the id of one of them.
        split: its split.
        signs: if True, all labels are -1 and 1, which may be meant as two classes (default: False).
    """
    mend = "Label them, give them no split (null), or name the column of labels where the graph is made."
    if signs:
        mend = "-1 stands for no label, and no other class than 1 is there: map -1 to 0 if they are classes, (label + 1) / 2."
    problem = "vertices of a split that have no label"
    return fault("vertices", "label", problem, mend, count, example_row(identifier, f"in {split!r}"))


def labels_out_of_range(count: int, identifier: object, label: object, outputs: int) -> GraphError:
    """Build the error for classes without an output of the model."""
    problem = f"labels that are not among the model's {outputs} classes 0 to {outputs - 1} (-1 or null for none)"
    mend = "Number the classes from 0, or make the model with more outputs."
    if outputs == 1:
        mend = "Make the model with an output for each class, or train one output with task='multilabel'."
    elif plain(label) == outputs:
        mend = f"Number the classes from 0 (label - 1, if they begin with 1), or make the model with {outputs + 1} outputs."
    return fault("vertices", "label", problem, mend, count, example_row(identifier, plain(label)))


def labels_not_binary(count: int, identifier: object, label: object) -> GraphError:
    """Build the error for multi-label targets other than 0 and 1."""
    mend = "Use 0 and 1, or the task regression."
    return fault(
        "vertices", "label", "rows that hold other numbers than 0 and 1", mend, count, example_row(identifier, label)
    )


def labels_not_finite(count: int, identifier: object, label: object) -> GraphError:
    """Build the error for targets that are infinite, or of which only some are NaN."""
    mend = "Replace them by numbers, or give null for no label."
    return fault(
        "vertices", "label", "rows that hold NaN or an infinite number", mend, count, example_row(identifier, label)
    )


def bad_weights(count: int, src: object, dst: object, weight: object, negative: bool) -> GraphError:
    """Build the error for weights that are NaN or infinite, or negative and therefore unfit for GCN's normalisation."""
    if negative:
        problem = "weights that are negative, which GCN's normalisation takes the root of"
        mend = "Replace them by numbers of at least 0, or make the layer with normalize=False."
    else:
        problem, mend = "weights that are NaN or infinite", "Replace them by numbers, or drop the edges."
    return fault("edges", "weight", problem, mend, count, f"{shown(src)} -> {shown(dst)}: {plain(weight)}")


def bad_vertex_weights(count: int, identifier: object, weight: object) -> GraphError:
    """Build the error for weights of vertices that are NaN, infinite or negative."""
    problem, mend = "weights that are negative, NaN or infinite", "Replace them by numbers of at least 0."
    return fault("vertices", "vertex_weight", problem, mend, count, example_row(identifier, plain(weight)))


def check_edge_data(given: EdgeData, demands: Demands) -> None:
    """Raise a GraphError if the model reads a column of edges that the graph lacks, or attributes of another width."""
    wanted = demands.reads
    if wanted.width is not None and given.width is None:
        raise _missing_data("edge_attr", "attributes", "edge_features")
    if wanted.typed and not given.typed:
        raise _missing_data("edge_type", "types", "edge_type")
    if wanted.width not in (None, given.width):
        problem = f"rows of {given.width} numbers, but the model reads attributes of {wanted.width}"
        raise fault("edges", "edge_attr", problem, "Name other columns as edge_features, or make another model.")


def _missing_data(column: str, what: str, argument: str) -> GraphError:
    problem = f"the model reads {column}, but the edges have no {what}"
    return fault("edges", "", problem, f"Name their columns: Graph(..., {argument}=...).")


def attributes_not_finite(count: int, src: object, dst: object, attributes: Sequence[float]) -> GraphError:
    """Build the error for attributes that are NaN or infinite."""
    at, value = next((at, value) for at, value in enumerate(attributes) if not math.isfinite(value))
    example = f"{shown(src)} -> {shown(dst)}: {value} at position {at}"
    mend = "Replace them by numbers, or drop the edges."
    return fault("edges", "edge_attr", "rows that hold NaN or an infinite number", mend, count, example)


def too_many_in_edges(vertex: object, count: int, demands: Demands) -> GraphError:
    """Build the error for a vertex whose neighbours do not fit into memory side by side."""
    assert demands.in_edges is not None
    most, layer = demands.in_edges
    problem = f"vertex {shown(vertex)} has {count:,} in-edges; layer {layer!r} puts at most {most:,} of one vertex side by side"
    mend = "Make the layer narrower, aggregate by softmax or quantiles, or draw neighbours with lotan.MiniBatch."
    return fault("edges", "dst", problem, mend)


def numbers_out_of_range(bound: Bound, count: int, example: str) -> GraphError:
    """Build the error for numbers of a column that a layer takes as types, and of which it has fewer."""
    table = "vertices" if bound.column == "features" else "edges"
    place = f"layer {bound.layer!r}" if bound.layer else "the model"
    problem = (
        f"numbers at position {bound.place} that are not among the {bound.limit} of {place}, 0 to {bound.limit - 1}"
    )
    mend = "Number them from 0, or make the layer for more types."
    return fault(table, bound.column, problem, mend, count, example)


def type_limit(demands: Demands) -> int:
    """Return the number of types that a job accepts."""
    return MOST_TYPES if demands.types is None else demands.types[0]


def types_out_of_range(count: int, src: object, dst: object, given: object, demands: Demands) -> GraphError:
    """Build the error for types of edges that are negative, or that a layer has no parameters for."""
    example = f"{shown(src)} -> {shown(dst)}: {plain(given)}"
    if demands.types is None:
        problem = "types that are not among 0, 1, ..., 2**24 - 1"
        return fault("edges", "edge_type", problem, "Number the types from 0.", count, example)
    limit, layer = demands.types
    place = f"layer {layer!r}" if layer else "the model"
    problem = f"types that are not among the {limit} of {place}, 0 to {limit - 1}"
    mend = "Number the types from 0, or make the layer with more relations."
    return fault("edges", "edge_type", problem, mend, count, example)
