"""Running statistics of normalising layers: the part of a training step that no optimizer takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from planner.spec import Tracked


def update_running(
    weights: Mapping[str, Tensor], tracked: Sequence[Tracked], sums: Mapping[str, Tensor], vertices: int
) -> None:
    """Change buffers as torch does after a forward in training: by the mean and the *unbiased* variance of all rows.

    Args:
        weights: The parameters and buffers by name. The buffers are changed in place.
        tracked: The layers with running statistics.
        sums: By the name of a buffer, the sum over all vertices of what it is updated with. The variances are biased.
        vertices: The number of vertices of the graph, or of the mini-batch. The variance of a single one is 0.
    """
    for layer in tracked:
        factor = layer.momentum
        if layer.counter is not None:
            counter = weights[layer.counter]
            counter.add_(1)
            factor = 1.0 / float(counter) if factor is None else factor
        assert factor is not None  # a layer without momentum counts its steps
        mean = sums[layer.mean].double() / vertices
        variance = sums[layer.variance].double() / max(1, vertices - 1)
        for name, new in ((layer.mean, mean), (layer.variance, variance)):
            buffer = weights[name]
            with torch.no_grad():
                buffer.copy_((1 - factor) * buffer.double() + factor * new.view_as(buffer))
