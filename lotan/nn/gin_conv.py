"""GIN: a network applied to the sum of a vertex's own row and its neighbours' rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor

from lotan.arguments import require_flag, require_kind, require_number
from lotan.nn.edge_index import Graph
from lotan.nn.message_passing import MessagePassing, refuse_arguments


class GINConv(MessagePassing):
    """The graph isomorphism layer of Xu, Hu, Leskovec and Jegelka.

        x'_i = nn((1 + eps) x_i + sum over in-edges (j, i) of x_j)

    The paper is "How Powerful are Graph Neural Networks?" (2019), https://arxiv.org/abs/1810.00826.

    The arguments, defaults and parameter names are those of `torch_geometric.nn.GINConv`. Edge weights are ignored.

    Args:
        nn: a module that maps rows to rows, such as `lotan.nn.MLP`. Its parameters are drawn anew.
        eps: initial value of eps (default: 0).
        train_eps: if True, eps is learned; if False, it keeps its initial value (default: False).
        **kwargs: only `aggr` is accepted, with the values that `MessagePassing` takes (default: "add").

    Shapes:
        x: vertex rows [num_vertices, in_channels].
        graph: int64 [2, num_edges], sources above destinations, or an `EdgeIndex`.
        output: vertex rows [num_vertices, out_channels], where out_channels is the width of the rows that `nn` returns.

    Raises:
        ConfigurationError: an argument has a wrong value or is not supported.

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> GINConv(torch.nn.Linear(8, 4))(torch.ones(3, 8), ring).shape
        torch.Size([3, 4])
    """

    def __init__(self, nn: torch.nn.Module, eps: float = 0.0, train_eps: bool = False, **kwargs: Any) -> None:
        super().__init__(kwargs.pop("aggr", "add"))
        refuse_arguments("GINConv", kwargs)
        require_kind("GINConv", "nn", nn, torch.nn.Module, "a module that maps rows to rows, such as lotan.nn.MLP(...)")
        require_number("GINConv", "eps", eps)
        require_flag("GINConv", "train_eps", train_eps)
        self.nn = nn
        self.initial_eps = eps
        if train_eps:
            self.eps = torch.nn.Parameter(torch.empty(1))
        else:
            self.register_buffer("eps", torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters for `nn` and set eps to its initial value."""
        _reset([self.nn])
        self.eps.data.fill_(self.initial_eps)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Map rows [num_vertices, in_channels] to [num_vertices, out_channels]."""
        return cast(Tensor, self.nn(self.propagate(graph, x) + (1 + self.eps) * x))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(nn={self.nn})"


def _reset(modules: Iterable[torch.nn.Module]) -> None:
    """Call `reset_parameters` of every outermost module that has it."""
    for module in modules:
        reset = getattr(module, "reset_parameters", None)
        if reset is None:
            _reset(module.children())
        else:
            reset()
