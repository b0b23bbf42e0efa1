"""A decoder of the user's own in a worker: the calls that it was traced into, which are data, on two rows and a relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from lotan.errors import StageError
from lotan.links.decoders import PairDecoder
from lotan.stages.chunk import Chunk
from lotan.stages.operators import Frame, compile_call
from lotan.stages.randomness import Randomness
from lotan.stages.row_wise import DTYPES
from planner.spec import GROUP_ROWS, Spec

RELATION = "batch"
"""The name under which a traced decoder reads the relations: they are groups of links."""


class DecoderOfCalls(PairDecoder):
    """A traced decoder. A link is a row of the traced model: the row of its source, and then that of its destination.

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
        self._inputs: dict[str, str] = {}
        self._calls = []
        for call in spec.calls:
            if call.op == "lotan.vertex_input":
                self._inputs[call.output] = str(call.arguments[0])
            elif call.op.startswith("lotan.") and call.op != GROUP_ROWS:
                raise StageError(f"decoder: {call.output} = {call.op} is not a call on the rows of one link")
            else:
                self._calls.append((call.output, compile_call(call, {})))
        if unknown := set(self._inputs.values()) - {"features", RELATION}:
            raise StageError(
                f"decoder: it reads {', '.join(sorted(unknown))}, expected the rows of links and their relations"
            )

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
        given: Mapping[str, Tensor | None] = {"features": torch.cat([src, dst], dim=1), RELATION: relation}
        values: dict[str, Tensor] = dict(self._own)
        for output, name in self._inputs.items():
            value = given[name]
            if value is None:
                raise StageError("decoder: it reads relations, and the links of a batch came without them")
            values[output] = value
        frame = Frame(values, _NO_CHUNK, Randomness(0, 0), len(src), without_rows=self._without_rows)
        try:
            for output, evaluate in self._calls:
                values[output] = evaluate(frame)
            return values[self._spec.output].reshape(len(src))
        except (RuntimeError, IndexError, KeyError) as error:
            raise StageError(f"decoder: {error}") from error


_NO_CHUNK = Chunk(keys=torch.zeros(0, dtype=torch.int64), values={})
"""A decoder reads no chunk of vertices: its calls are on links."""
