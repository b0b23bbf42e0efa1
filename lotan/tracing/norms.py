"""Layers that normalise by statistics of all vertices, in a form that can be traced.

While a model is traced, such a layer runs the function for its class here in place of its own `forward`. The function
calls `lotan.total`, which stands for a reduction over all vertices. `lotan.tracing.check` compares the trace with the
layer's own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from lotan.tracing.pyg.edge_tensors import running
from lotan.tracing.replaced import Table, replaced, replacement
from planner.spec import Tracked

Refuse = Callable[[str], Exception]
"""A function that returns the error for the line that is running, given a reason."""

MOMENTUM = "has running statistics but no momentum, which torch refuses as well; give it one"
USED_TWICE = "runs twice in one forward, which would change its running statistics twice in a step; give each place its own layer"
OTHER_GROUPS = (
    "got a `batch` that is not the one that forward takes, which the graph has: Graph(..., batch=...); for one graph leave "
    "it out"
)
RUNNING_OF_GROUPS = (
    "has running statistics of groups of vertices, which are not kept; make it with track_running_stats=False"
)
NO_TYPES = "HeteroLayerNorm got no type_vec; pass it a type for each row, as type_ptr names positions of rows"
FLAT_ROWS = "needs rows of one dimension, [num_vertices, channels], but got {}; reshape them before"


class Norms:
    """The normalising layers of a model while it is traced, and the running statistics that they have.

    Args:
        model: the model.
        refuse: a function that returns the error for the line that is running.
    """

    def __init__(self, model: torch.nn.Module, refuse: Refuse) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._buffers = {id(buffer): name for name, buffer in model.named_buffers()}
        self._refuse = refuse
        self.tracked: dict[str, Tracked] = {}  # by the layer's name
        self._own = {module: dict(module.named_buffers(recurse=False)) for module in self._names}

    def replaces(self, module: torch.nn.Module) -> bool:
        """Return True if another function runs in place of the module's forward."""
        return replacement(module, REPLACED) is not None

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Let the functions run in place of the layers' own forwards."""
        with replaced(self._names, REPLACED, self):
            yield

    # The functions, each in place of the forward of a class

    def batch_norm(self, module: Any, x: Tensor) -> Tensor:
        """Normalise rows [num_vertices, channels] as torch.nn.BatchNorm1d does."""
        return self._normalised(module, x, self._buffer(module, "num_batches_tracked"))

    def instance_norm(self, module: Any, x: Tensor, batch: Any = None, batch_size: Any = None) -> Tensor:
        """Normalise rows [num_vertices, channels] as PyG's InstanceNorm does."""
        if batch is not None:
            return self._by_group(module, x, batch, batch_size)
        if module.training and module.track_running_stats and module.momentum is None:
            raise self._refuse(MOMENTUM)
        return self._normalised(module, x, None)

    def graph_norm(self, module: Any, x: Tensor, batch: Any = None, batch_size: Any = None) -> Tensor:
        """Normalise rows [num_vertices, channels] as PyG's GraphNorm does."""
        if batch is not None:
            return self._by_group(module, x, batch, batch_size)
        out = x - torch.ops.lotan.total(x, "mean") * module.mean_scale
        variance = torch.ops.lotan.total(out.pow(2), "mean")
        return cast(Tensor, module.weight * out / (variance + module.eps).sqrt() + module.bias)

    def graph_size_norm(self, module: Any, x: Tensor, batch: Any = None, batch_size: Any = None) -> Tensor:
        """Divide rows [num_vertices, channels] by the square root of num_vertices, as PyG's GraphSizeNorm does."""
        if batch is not None:
            return self._by_group(module, x, batch, batch_size)
        return cast(Tensor, x * torch.ops.lotan.total(torch.ones_like(x), "sum").rsqrt())

    def hetero_layer_norm(self, module: Any, x: Tensor, type_vec: Any = None, type_ptr: Any = None) -> Tensor:
        """Normalise rows [num_vertices, channels] as PyG's HeteroLayerNorm does, with the weights of each row's type."""
        if type_vec is None:
            raise self._refuse(NO_TYPES)
        out: Tensor = F.layer_norm(x, (module.in_channels,), None, None, module.eps)
        if not module.affine:
            return out
        # [num_vertices, types] with a 1 at each row's type, times [types, channels]
        one_hot = torch.stack([type_vec == number for number in range(module.num_types)], dim=-1).to(x.dtype)
        return cast(Tensor, out * (one_hot @ module.weight) + one_hot @ module.bias)

    def _normalised(self, module: Any, x: Tensor, counter: str | None) -> Tensor:
        """Normalise rows by their mean and variance over all vertices, or by the layer's running statistics.

        Args:
            module: a batch norm or an instance norm.
            x: the rows, [num_vertices, channels].
            counter: the name of the buffer that counts steps, or None if the layer has none.
        """
        if x.dim() != 2:
            raise self._refuse(f"{type(module).__name__} {FLAT_ROWS.format(list(x.shape[1:]))}")
        width = module.num_features
        if x.shape[1] != width:
            raise self._refuse(
                f"{type(module).__name__} got rows of width {x.shape[1]}, but was made for {width}; make it for {x.shape[1]}"
            )
        if module.training or module.running_mean is None:
            moments = torch.ops.lotan.total(x, "moments")  # [num_vertices, channels, 2]
            mean, variance = moments.select(2, 0), moments.select(2, 1)
            if module.training and module.running_mean is not None:
                self._track(module, counter)
                mean = torch.ops.lotan.track(mean, module.running_mean)
                variance = torch.ops.lotan.track(variance, module.running_var)
        else:
            mean, variance = module.running_mean, module.running_var
        out: Tensor = (x - mean) * torch.rsqrt(variance + module.eps)
        if module.weight is not None:
            out = out * module.weight
        return out if module.bias is None else out + module.bias

    def _track(self, module: torch.nn.Module, counter: str | None) -> None:
        """Note the layer's running statistics, which a step updates."""
        layer = self._names[module]
        mean, variance = self._buffer(module, "running_mean"), self._buffer(module, "running_var")
        assert mean is not None
        assert variance is not None  # a layer has both or none
        if any(mean == other.mean for other in self.tracked.values()):
            raise self._refuse(USED_TWICE)
        momentum: float | None = getattr(module, "momentum", None)
        self.tracked[layer] = Tracked(layer, mean, variance, momentum, counter)

    def _buffer(self, module: torch.nn.Module, name: str) -> str | None:
        """Return the name in the model of one of the layer's own buffers, or None if the layer lacks it."""
        found = self._own[module].get(name)
        return None if found is None else self._buffers[id(found)]

    def _by_group(self, module: Any, x: Tensor, batch: Any, batch_size: Any) -> Tensor:
        """Run the layer's own forward, which reduces rows by the column `batch`."""
        tensors = running()
        if tensors is None or tensors.groups.get(batch) is None:
            raise self._refuse(OTHER_GROUPS)
        if module.training and getattr(module, "running_mean", None) is not None:
            raise self._refuse(RUNNING_OF_GROUPS)
        return cast(Tensor, type(module).forward(module, x, batch, batch_size))


REPLACED: Table = {
    "torch.nn.modules.batchnorm.BatchNorm1d": Norms.batch_norm,
    "torch_geometric.nn.norm.instance_norm.InstanceNorm": Norms.instance_norm,
    "torch_geometric.nn.norm.graph_norm.GraphNorm": Norms.graph_norm,
    "torch_geometric.nn.norm.graph_size_norm.GraphSizeNorm": Norms.graph_size_norm,
    "torch_geometric.nn.norm.layer_norm.HeteroLayerNorm": Norms.hetero_layer_norm,
}
"""The functions that run in place of forwards."""
