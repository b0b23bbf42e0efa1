"""A decoder of the user's own in a worker: the calls that it was traced into, which are data, on two rows and a relation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lotan.errors import StageError
from lotan.links.decoders import PairDecoder
from lotan.stages.chunk import Chunk
from lotan.stages.operators import Frame, compile_call
from lotan.stages.randomness import Randomness
from lotan.stages.row_wise import DTYPES
from planner.spec import GROUP_ROWS, Spec


class DecoderOfCalls(PairDecoder):
    """A traced decoder. A link is a row of the traced model: the row of its source, that of its destination, and the relation.

    Args:
        spec: The traced decoder, of `lotan.links.traced_decoder`.

    Raises:
        StageError: If a call is not one that a decoder may do.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self._spec = spec
        self._own = {
            one.name: nn.Parameter(torch.zeros(one.shape, dtype=DTYPES[f"torch.{one.dtype}"]), one.trainable)
            for one in spec.parameters
        }
        self._without_rows = frozenset({*self._own, *(call.output for call in spec.calls if call.type.rows == "none")})
        self._inputs: list[str] = []
        self._calls = []
        for call in spec.calls:
            if call.op == "lotan.vertex_input" and call.arguments == ("features",):
                self._inputs.append(call.output)
            elif call.op.startswith("lotan.") and call.op != GROUP_ROWS:
                raise StageError(f"decoder: {call.output} = {call.op} is not a call on the rows of one link")
            else:
                self._calls.append((call.output, compile_call(call, {})))

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters by the names that they have in the user's decoder."""
        for name, parameter in self._own.items():
            yield (f"{prefix}.{name}" if prefix else name), parameter

    def forward(self, src: Tensor, relation: Tensor | None, dst: Tensor) -> Tensor:
        """Return the score of each link. [links].

        Raises:
            StageError: If the relations are missing, or a call fails.
        """
        if (relation is None) != (self._spec.groups is None):
            raise StageError("decoder: it was traced with relations, and links come without, or the reverse")
        numbers = [] if relation is None else [relation.to(src).unsqueeze(1)]
        links = torch.cat([src, dst, *numbers], dim=1)
        values: dict[str, Tensor] = {**self._own, **dict.fromkeys(self._inputs, links)}
        frame = Frame(values, _NO_CHUNK, Randomness(0, 0), len(src), without_rows=self._without_rows)
        try:
            for output, evaluate in self._calls:
                values[output] = evaluate(frame)
            return values[self._spec.output].reshape(len(src))
        except (RuntimeError, IndexError, KeyError) as error:
            raise StageError(f"decoder: {error}") from error


_NO_CHUNK = Chunk(keys=torch.zeros(0, dtype=torch.int64), values={})
"""A decoder reads no chunk of vertices: its calls are on links."""
