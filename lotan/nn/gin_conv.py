"""GIN: Xu, Hu, Leskovec and Jegelka, "How Powerful are Graph Neural Networks?" (2019), https://arxiv.org/abs/1810.00826.

    x'_i = nn((1 + eps) x_i + sum over in-edges (j, i) of x_j)

`nn` maps rows [num_vertices, in_channels] to [num_vertices, out_channels].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from lotan.arguments import require_kind, require_number
from lotan.nn.edge_index import Graph
from lotan.nn.message_passing import MessagePassing, refuse_arguments


class GINConv(MessagePassing):
    """A graph isomorphism layer; arguments, defaults and parameters of `torch_geometric.nn.GINConv`. Edge weights play no part.

    Args:
        nn: a module that maps rows to rows, such as `lotan.nn.MLP`; its parameters are drawn anew.
        eps: initial weight of the vertex's own row, beside 1.
        train_eps: whether eps is a parameter.
        **kwargs: `aggr`, as in `MessagePassing`; by default "add".

    Raises:
        ConfigurationError: an argument that is not supported.
    """

    def __init__(self, nn: torch.nn.Module, eps: float = 0.0, train_eps: bool = False, **kwargs: Any) -> None:
        super().__init__(kwargs.pop("aggr", "add"))
        refuse_arguments("GINConv", kwargs)
        require_kind("GINConv", "nn", nn, torch.nn.Module, "a module that maps rows to rows, such as lotan.nn.MLP(...)")
        require_number("GINConv", "eps", eps)
        self.nn = nn
        self.initial_eps = eps
        if train_eps:
            self.eps = torch.nn.Parameter(torch.empty(1))
        else:
            self.register_buffer("eps", torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters."""
        _reset([self.nn])
        self.eps.data.fill_(self.initial_eps)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """[num_vertices, in_channels] -> [num_vertices, out_channels]"""
        return self.nn(self.propagate(graph, x) + (1 + self.eps) * x)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(nn={self.nn})"


def _reset(modules: Iterable[torch.nn.Module]) -> None:
    """Draw new parameters in every outermost module that can."""
    for module in modules:
        reset = getattr(module, "reset_parameters", None)
        if reset is None:
            _reset(module.children())
        else:
            reset()
