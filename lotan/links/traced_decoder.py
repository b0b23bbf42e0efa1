"""A decoder of the user's own as data for workers: it is traced as a model whose vertices are links."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lotan.errors import ModelError, StageError
from lotan.links.decoder_calls import DecoderOfCalls
from lotan.links.decoders import OwnDecoder
from lotan.tracing.trace import trace
from planner.spec import DISTRIBUTIONS, DROPOUT, Spec

MEND = (
    "Train on the full batch with regime=lotan.FullBatch(), where this process scores the links, take a decoder by its name, or "
    "leave engine out for 'local'"
)


class _OnLinks(torch.nn.Module):
    """A decoder on rows that are a source's and a destination's side by side."""

    def __init__(self, module: torch.nn.Module, width: int) -> None:
        super().__init__()
        self.module, self._width = module, width

    def scores(self, x: Tensor, relation: Tensor | None) -> Tensor:
        """Return the score of each link. [links, 2 width] -> [links, 1]."""
        found: Any = self.module(x[:, : self._width], relation, x[:, self._width : 2 * self._width])
        return found if found.dim() == 2 else found.unsqueeze(1)  # type: ignore[no-any-return]  # of the user's module


class _WithoutRelations(_OnLinks):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the score of each link. [links, 2 width] -> [links, 1]."""
        return self.scores(x, None)


class _WithRelations(_OnLinks):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Return the score of each link. [links, 2 width] -> [links, 1]."""
        return self.scores(x, batch)


def decoder_spec(decoder: OwnDecoder, width: int, relations: int | None) -> Spec:
    """Return a decoder of the user's own as a traced model, whose parameters have the names that the decoder gives them.

    Args:
        decoder: The decoder.
        width: The number of outputs of the model.
        relations: The number of relations; None: links have none.

    Raises:
        ModelError: If it cannot be traced, draws random numbers, or compares links with one another.
    """
    module, name = decoder.module, type(decoder.module).__name__
    links = _WithoutRelations(module, width) if relations is None else _WithRelations(module, width)
    try:
        spec = trace(links, 2 * width + (relations is not None), training=True, groups=relations)
        if drawn := next((call for call in spec.calls if call.op in (DROPOUT, *DISTRIBUTIONS)), None):
            raise ModelError(f"it draws random numbers in {drawn.where or drawn.op}")
        DecoderOfCalls(spec)
    except (ModelError, StageError) as error:
        raise ModelError(
            f"workers of engine 'blocks' are sent data alone, and the decoder {name} cannot be written down as operators on the "
            f"rows of one link: {error}. {MEND}"
        ) from error
    return spec
