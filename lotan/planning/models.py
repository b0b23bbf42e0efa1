"""The model of a run: its trace, the width of its rows, and the columns of the graph that it reads."""

from __future__ import annotations

from typing import Any

import torch

from lotan.errors import ConfigurationError, ModelError
from lotan.graph.graph import Graph
from lotan.graph.seen_labels import require_one_kind, sees_labels
from lotan.planning.learned import vertices_of
from lotan.settings.config import TrainerConfig
from lotan.settings.losses import further_of
from lotan.tracing.learned import unfitting_tables
from lotan.tracing.refusals import MIXED_ROWS, VERTEX_NUMBERS
from lotan.tracing.signature import takes_labels, takes_tensors
from lotan.tracing.trace import few_of, trace_modes
from planner.edge_columns import EdgeData, data_read, number_of_types
from planner.neighbours import orders_neighbours
from planner.spec import Spec, width_of

GUESSED_OUTPUTS = 64  # the assumed number of outputs, while the labels in a file are not read yet


def model_width(model: torch.nn.Module, graph: Graph) -> int:
    """Return the width of the features that the model was made for, if it says so, as stock models do; else the graph's."""
    if graph.vertex_types is not None:
        return graph.vertex_types.width  # the model knows the width of each type
    if graph.groups is not None:
        return (
            graph.estimate().width or graph.statistics.width
        )  # the number of the group is one of the features, of which the model does not know
    if takes_labels(model):
        return graph.estimate().width or graph.statistics.width
    width = getattr(model, "in_channels", None)
    return width if isinstance(width, int) and width > 0 else graph.estimate().width or graph.statistics.width


def edge_data(graph: Graph) -> EdgeData:
    """Return the attributes and types that the graph's edges have.

    Rows of files are read only if their footers do not tell the number of attributes.
    """
    found = graph.estimate().edge_data
    return graph.statistics.edge_data if found.width == 0 else found


def hook_notes(model: torch.nn.Module) -> tuple[str, ...]:
    """Return a note on the forward hooks of a model, which run while it is traced and never again."""
    hooked = [
        name or "the model" for name, one in model.named_modules() if one._forward_hooks or one._forward_pre_hooks
    ]
    if not hooked:
        return ()
    return (
        f"forward hooks of {', '.join(hooked)}: what they return is trained, but they are called only while the model is "
        "traced; what else they do, such as collecting outputs, happens in no epoch",
    )


def edge_demands(spec: Spec) -> tuple[EdgeData, tuple[int, str] | None]:
    """Return the columns of edges that a model reads, and how many types it distinguishes, with the layer that does."""
    return data_read(spec), number_of_types(spec)


def traced(
    model: torch.nn.Module,
    width: int,
    graph: Graph,
    config: TrainerConfig | None = None,
    order: int | None = None,
) -> tuple[Spec, Spec]:
    """Return a model traced for a graph, in training and in evaluation mode.

    With settings, a model may take labels as input, and return what their loss reads beside the output.

    Args:
        model: The model.
        width: The width of the graph's features.
        graph: The graph.
        config: The settings of a task of labels, or None.
        order: The attribute of edges by which neighbours are in order, if there are no settings.

    Raises:
        ModelError: If the model cannot be traced, or if its forward asks for a column that the graph lacks.
        ConfigurationError: If settings ask for what the graph or the model does not have.
    """
    sizes, data = graph.estimate(), edge_data(graph)
    weighted = takes_tensors(model) and sizes.weighted
    given: dict[str, Any] = {"data": data, "weighted": weighted, "few": few_of(sizes.vertices, sizes.edges)}
    given |= {"types": graph.vertex_types, "vertices": vertices_of(model, graph), "groups": graph.groups}
    if config is not None and takes_labels(model):
        require_one_kind(graph)
        width += not sees_labels(graph)
        given["label_rate"] = config.label_rate
    elif config is not None and config.label_rate not in (0.0, TrainerConfig.label_rate):  # 0 shows none
        raise ConfigurationError(
            f"label_rate is {config.label_rate}, but the model takes no labels as input, as "
            "forward(x, y, edge_index, label_mask) does; leave it out"
        )
    if config is not None and (further := further_of(config.loss)):
        if graph.vertex_types is not None:
            raise ConfigurationError(
                f"loss asks for {', '.join(further)} beside the output, which a model of several types of vertices cannot return"
            )
        given["further"] = further
    if (order := order if config is None else config.neighbour_order) is not None:
        _check_order(order, graph, data)
        given["order"] = order
    try:
        found = trace_modes(model, width, **given)
    except ModelError as error:
        of_rows = any(text in str(error) for text in (MIXED_ROWS, VERTEX_NUMBERS))
        if not (of_rows and (tables := unfitting_tables(model, given["vertices"]))):
            raise
        raise type(error)(f"{error}{tables}") from error
    if order is not None and not orders_neighbours(found[0]):
        raise ConfigurationError(
            f"neighbour_order is {order}, but the model takes neighbours in no order, as an aggregation such as LSTMAggregation "
            "of PyG does; leave it out"
        )
    return found


def _check_order(order: int, graph: Graph, data: EdgeData) -> None:
    """Check that edges have the attribute by which neighbours are to be in order."""
    if graph.vertex_types is not None:
        raise ConfigurationError("neighbour_order is for graphs of one type of vertices; leave it out")
    if order >= (data.width or 0):
        there = f"have {data.width} attributes, numbered from 0" if data.width else "have no attributes"
        raise ConfigurationError(
            f"neighbour_order is {order}, but the graph's edges {there}; name the column of the order among them: "
            'Graph(..., edge_features=["time"]), neighbour_order=0'
        )


def takes_roots(spec: Spec) -> bool:
    """Return True if a layer normalises by roots of summed edge weights."""
    reads = [call.arguments[0] for call in spec.calls if call.op == "lotan.vertex_input"]
    return any(str(name).startswith("gcn_scale") for name in reads)


def check_statistics(train: Spec, vertices: int) -> None:
    """Check that there are enough vertices for the variances that the model takes over all of them.

    Raises:
        ModelError: If there is one vertex, whose variance torch's layers refuse in training as well. It names the layer.
    """
    layers = {call.layer: None for call in train.totals if call.arguments[1] in ("moments", "sample")}
    if layers and vertices < 2:
        names = ", ".join(f"layer {layer!r}" if layer else "the model itself" for layer in layers)
        raise ModelError(
            f"{names}: normalises by the variance of all vertices, but the graph has {vertices}; training needs at least 2"
        )


def check_variances_of_types(train: Spec, graph: Graph) -> None:
    """Check that there are enough vertices of each type for the variances that the model takes over them.

    Raises:
        ModelError: If a type has one vertex. It names the layer and the type.
    """
    types = graph.vertex_types
    for number, layer in train.varied:
        if types is not None and graph.vertices_of_type(number) < 2:
            raise ModelError(
                f"layer {layer!r}: normalises by the variance of the vertices of type {types.names[number]!r}, of which the "
                "graph has 1; training needs at least 2"
            )


def model_outputs(spec: Spec) -> int:
    """Return the width of the model's output rows.

    Raises:
        ModelError: If the output is not one vector per vertex.
    """
    types = {call.output: call.type for call in spec.calls}
    output = types.get(spec.output)
    if output is None or output.rows != "vertex" or len(output.shape) != 1:
        found = "its input" if output is None else f"{output.rows} rows of shape {output.shape}"
        raise ModelError(f"the model returns {found}; expected one vector per vertex, of shape [num_vertices, outputs]")
    return output.shape[0] - width_of(spec.further)
