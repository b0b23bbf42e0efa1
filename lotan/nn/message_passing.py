"""The base class of all layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lotan.errors import ConfigurationError, ModelError
from lotan.nn.edge_index import GIVE, EdgeIndex, Edges, Graph, aggregate, as_edge_index, edge_softmax
from planner.edge_columns import REDUCTIONS
from planner.edge_sets import has_added_loops
from planner.spec import AGGREGATES, EdgeSet

_MESSAGE_ARGUMENTS = ("x_j", "x_i", "edge_weight", "edge_attr", "edge_type")
_UPDATE_ARGUMENTS = ("aggregated", "x")


def _with_a_choice_of_arguments(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the method itself, with a type that lets a layer override it with other arguments."""
    return method


class MessagePassing(torch.nn.Module):
    """The base class of message-passing layers.

        x'_i = update(aggregate over in-edges (j, i) of message(x_j, x_i, edge_weight, edge_attr, edge_type), x_i)

    This is the scheme of Gilmer et al., "Neural Message Passing for Quantum Chemistry" (2017),
    https://arxiv.org/abs/1704.01212. A layer overrides `message` and, where the defaults do not fit, `update` and
    `aggregate`. Its `forward` calls `propagate`. An argument is passed to `message` or `update` only if the method
    names it:

        message(self, x_j[, x_i][, edge_weight][, edge_attr][, edge_type])
                                                   maps rows of the edges' sources and destinations [num_edges, *shape],
                                                   weights [num_edges], attributes [num_edges, width] and types, int64
                                                   [num_edges], to messages [num_edges, *shape]
        aggregate(self, messages, graph)           maps messages to [num_vertices, *shape]; it is composed of
                                                   `lotan.nn.aggregate` and `lotan.nn.edge_softmax`, which take `graph`
        update(self, aggregated[, x])              maps aggregates and rows to new rows [num_vertices, *shape]

    Args:
        aggr: "sum" (or "add"), "mean", "max" or "min" (default: "sum"). A vertex without in-edges gets zero.

    Raises:
        ConfigurationError: `aggr` has another value.
        ModelError: `message` or `update` names an argument that does not exist.

    Example:
        >>> class Difference(MessagePassing):
        ...     def forward(self, x, graph):
        ...         return self.propagate(graph, x)
        ...     def message(self, x_j, x_i):
        ...         return x_j - x_i
        >>> Difference("max")(torch.tensor([[1.0], [5.0]]), torch.tensor([[0, 1], [1, 1]]))
        tensor([[0.],
                [0.]])
    """

    def __init__(self, aggr: str = "sum") -> None:
        super().__init__()
        kind = "sum" if aggr == "add" else aggr
        if kind not in AGGREGATES:
            raise ConfigurationError(
                f"{type(self).__name__} got aggr={aggr!r}; expected sum (or add), mean, max or min; for another, write an "
                "`aggregate` of your own"
            )
        self.aggr = aggr
        self._kind = kind
        self._message_arguments = self._arguments("message", _MESSAGE_ARGUMENTS, required="x_j")
        self._update_arguments = self._arguments("update", _UPDATE_ARGUMENTS, required="aggregated")
        self._edges: Edges | None = None  # the edges of the propagate that is running, for `softmax`

    def propagate(
        self,
        graph: Graph,
        x: Tensor,
        edges: EdgeSet = "graph",
        fill_value: float | str = 1.0,
        loop_type: int | None = None,
    ) -> Tensor:
        """Call `message`, `aggregate` and `update`.

        Args:
            graph: the graph that `forward` was given.
            x: vertex rows [num_vertices, *shape].
            edges: "graph" for the graph's edges (default), or "self_loops" to replace all self-loops by one for each
                vertex. "reversed" and "reversed_self_loops" are these with both ends exchanged: `x_j` is then the row
                where the edge ends, and messages are aggregated where it begins.
            fill_value: the attributes of the loops that "self_loops" adds, as PyG's argument of this name: a number, or
                "mean", "add", "max" or "min" of those of the vertex's in-edges (default: 1).
            loop_type: the type of the loops that "self_loops" adds. It must be given if `message` names edge_type
                (default: None).

        Returns:
            The rows that `update` returns, [num_vertices, *shape].

        Raises:
            ModelError: `message` names a column that the graph lacks.
            ConfigurationError: `fill_value` or `loop_type` is none of these.
        """
        index = as_edge_index(graph, x)
        chosen = index.edges(edges)
        self._check_columns(index, edges, fill_value, loop_type)
        self._edges = chosen
        try:
            given: dict[str, Callable[[], Tensor]] = {
                "x_j": lambda: torch.ops.lotan.scatter(x, chosen.index, "source", chosen.name),
                "x_i": lambda: torch.ops.lotan.scatter(x, chosen.index, "destination", chosen.name),
                "edge_weight": lambda: torch.ops.lotan.edge_weight(chosen.weight, chosen.name),
                "edge_attr": lambda: index.edge_column("edge_attr", edges, fill_value),
                "edge_type": lambda: index.edge_column("edge_type", edges, 0 if loop_type is None else loop_type),
            }
            messages = self.message(**{name: given[name]() for name in self._message_arguments})
            aggregated = self.aggregate(messages, chosen)
        finally:
            self._edges = None
        return self.update(aggregated, **({"x": x} if "x" in self._update_arguments else {}))

    def softmax(self, scores: Tensor) -> Tensor:
        """Return the softmax of scores over the in-edges of each destination. It works inside `message` only.

        Args:
            scores: edge rows [num_edges, *shape].

        Returns:
            Edge rows [num_edges, *shape].

        Raises:
            ModelError: it was called outside `message` and `aggregate`.
        """
        if self._edges is None:
            raise ModelError(
                f"{type(self).__name__}.softmax works inside message and aggregate only, where the edges are known"
            )
        return edge_softmax(scores, self._edges)

    @_with_a_choice_of_arguments
    def message(self, x_j: Tensor) -> Tensor:
        """Return the message of each edge, by default the row of its source."""
        return x_j

    def aggregate(self, messages: Tensor, graph: Edges) -> Tensor:
        """Return the aggregate of each vertex's messages, by default the one that `aggr` names."""
        return aggregate(messages, graph, self._kind)

    @_with_a_choice_of_arguments
    def update(self, aggregated: Tensor) -> Tensor:
        """Return the new row of each vertex, by default its aggregate."""
        return aggregated

    def __repr__(self) -> str:
        channels = ""
        if hasattr(self, "in_channels") and hasattr(self, "out_channels"):
            channels = f"{self.in_channels}, {self.out_channels}"
        return f"{type(self).__name__}({channels})"

    def _check_columns(self, graph: EdgeIndex, edges: EdgeSet, fill_value: object, loop_type: object) -> None:
        """Raise an error if `message` names a column of edges that is not there, or whose added loops have no value."""
        layer = type(self).__name__
        for name in ("edge_attr", "edge_type"):
            if name in self._message_arguments and not graph.has_edge_column(name):
                raise ModelError(f"{layer}.message names {name}, but the graph's edges have none: {GIVE[name]}")
        if not has_added_loops(edges):
            return
        number = isinstance(fill_value, int | float) and not isinstance(fill_value, bool)
        if not number and fill_value not in REDUCTIONS:
            raise ConfigurationError(
                f"{layer} got fill_value={fill_value!r}; expected a number, or one of {', '.join(REDUCTIONS)}"
            )
        whole = isinstance(loop_type, int) and not isinstance(loop_type, bool) and loop_type >= 0
        if "edge_type" in self._message_arguments and not whole:
            raise ConfigurationError(
                f"{layer} got loop_type={loop_type!r}; expected the type of the self-loops that are added, an integer from "
                "0, because message names edge_type"
            )

    def _arguments(self, method: str, known: tuple[str, ...], required: str) -> tuple[str, ...]:
        names = tuple(inspect.signature(getattr(self, method)).parameters)
        unknown = [name for name in names if name not in known]
        if unknown or (method == "update" and required != (names or ("",))[0]):
            raise ModelError(
                f"{type(self).__name__}.{method} has the arguments ({', '.join(names)}); "
                f"expected a choice of ({', '.join(known)}) by these names"
            )
        return names


def refuse_arguments(layer: str, arguments: Mapping[str, Any], reasons: Mapping[str, str] | None = None) -> None:
    """Raise ConfigurationError if there are any arguments, because none of them is supported.

    Args:
        layer: name of the layer, for the error's text.
        arguments: the arguments that the layer does not support, by name.
        reasons: by name of an argument, why it is not supported and what to do instead.
    """
    for name, value in arguments.items():
        advice = (reasons or {}).get(name, "leave it out")
        raise ConfigurationError(f"{layer} got {name}={value!r}, which is not supported: {advice}")
