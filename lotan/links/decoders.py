"""Decoders, which score pairs of vertices by their rows and a relation."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lotan.errors import ModelError
from lotan.settings.tasks import LinkPrediction

PREFIX = "link_decoder."
"""The first part of the names of a decoder's parameters, among those of the model."""

PAIR_NUMBERS = 1 << 24
"""The numbers of rows that a decoder of the user's own is given at one time, at most: 64 MiB for each end."""


class Decoder(nn.Module, ABC):
    """Scores pairs of rows. The higher a score, the likelier is the link.

    A decoder also scores one end of each link against the same candidates at the other end, in one matrix.
    """

    @abstractmethod
    def forward(self, src: Tensor, relation: Tensor | None, dst: Tensor) -> Tensor:
        """Return the score of each link.

        Args:
            src: The rows of the sources. [links, width]
            relation: The numbers of the relations [links], or None.
            dst: The rows of the destinations. [links, width]

        Returns:
            Scores, [links].
        """

    @abstractmethod
    def destinations(self, src: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links to the same candidates. [links, width], [candidates, width] -> [links, candidates]."""

    @abstractmethod
    def sources(self, dst: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links from the same candidates. [links, width], [candidates, width] -> [links, candidates]."""


class Dot(Decoder):
    """score = s · d. Relations are not read."""

    def forward(self, src: Tensor, relation: Tensor | None, dst: Tensor) -> Tensor:
        """Return the score of each link. [links]."""
        return (src * dst).sum(1)

    def destinations(self, src: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links to the same candidates. [links, candidates]."""
        return src @ candidates.T

    def sources(self, dst: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links from the same candidates. [links, candidates]."""
        return dst @ candidates.T


class _OfRelations(Decoder):
    """A decoder with a row for each relation. A graph without relations has one row."""

    def __init__(self, width: int, relations: int, generator: torch.Generator) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.empty(relations, width))
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the rows as PyG does."""
        nn.init.xavier_uniform_(self.relation, generator=generator)

    def rows(self, relation: Tensor | None) -> Tensor:
        """Return the row of each link's relation, or the only row. [links, width] or [1, width]."""
        return self.relation[:1] if relation is None else functional.embedding(relation, self.relation)


class DistMult(_OfRelations):
    """score = sum of s * r * d (Yang et al., ICLR 2015)."""

    def forward(self, src: Tensor, relation: Tensor | None, dst: Tensor) -> Tensor:
        """Return the score of each link. [links]."""
        return (src * self.rows(relation) * dst).sum(1)

    def destinations(self, src: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links to the same candidates. [links, candidates]."""
        return (src * self.rows(relation)) @ candidates.T

    def sources(self, dst: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links from the same candidates. [links, candidates]."""
        return (dst * self.rows(relation)) @ candidates.T


class ComplEx(_OfRelations):
    """score = Re(sum of s * r * conj(d)), for complex numbers (Trouillon et al., ICML 2016).

    The first half of a row holds the real parts, and the second half the imaginary parts.
    """

    def __init__(self, width: int, relations: int, generator: torch.Generator) -> None:
        if width % 2:
            raise ModelError(
                f"decoder 'complex' halves each row into real and imaginary parts, and the model's rows have {width} numbers; "
                "give the model an even number of outputs"
            )
        super().__init__(width, relations, generator)

    def forward(self, src: Tensor, relation: Tensor | None, dst: Tensor) -> Tensor:
        """Return the score of each link. [links]."""
        return (self._to(src, relation) * dst).sum(1)

    def destinations(self, src: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links to the same candidates. [links, candidates]."""
        return self._to(src, relation) @ candidates.T

    def sources(self, dst: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links from the same candidates. [links, candidates]."""
        real, imaginary = self.rows(relation).chunk(2, dim=1)
        x, y = dst.chunk(2, dim=1)
        return torch.cat([x * real + y * imaginary, y * real - x * imaginary], dim=1) @ candidates.T

    def _to(self, src: Tensor, relation: Tensor | None) -> Tensor:
        """Return the product of sources and relations, halved as rows are. [links, width]."""
        real, imaginary = self.rows(relation).chunk(2, dim=1)
        x, y = src.chunk(2, dim=1)
        return torch.cat([x * real - y * imaginary, y * real + x * imaginary], dim=1)


class TransE(_OfRelations):
    """score = -|s + r - d|, in the 1-norm, for rows of norm 1 (Bordes et al., NeurIPS 2013), as in PyG."""

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the rows as PyG does: uniformly, and then scaled to norm 1."""
        bound = 6.0 / math.sqrt(self.relation.shape[1])
        nn.init.uniform_(self.relation, -bound, bound, generator=generator)
        with torch.no_grad():
            self.relation.copy_(functional.normalize(self.relation, p=1.0, dim=-1))

    def forward(self, src: Tensor, relation: Tensor | None, dst: Tensor) -> Tensor:
        """Return the score of each link. [links]."""
        distance: Tensor = torch.linalg.vector_norm(_unit(src) + self.rows(relation) - _unit(dst), ord=1, dim=1)
        return -distance

    def destinations(self, src: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links to the same candidates. [links, candidates]."""
        return -torch.cdist(_unit(src) + self.rows(relation), _unit(candidates), p=1.0)

    def sources(self, dst: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links from the same candidates. [links, candidates]."""
        return -torch.cdist(_unit(dst) - self.rows(relation), _unit(candidates), p=1.0)


def _unit(rows: Tensor) -> Tensor:
    return functional.normalize(rows, p=1.0, dim=-1)


class PairDecoder(Decoder):
    """A decoder that knows one function of two rows and a relation, and calls it for each link and candidate."""

    def destinations(self, src: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links to the same candidates. [links, candidates]."""
        return self._each(src, relation, candidates, to=True)

    def sources(self, dst: Tensor, relation: Tensor | None, candidates: Tensor) -> Tensor:
        """Return the scores of links from the same candidates. [links, candidates]."""
        return self._each(dst, relation, candidates, to=False)

    def _each(self, given: Tensor, relation: Tensor | None, candidates: Tensor, to: bool) -> Tensor:
        some = max(1, PAIR_NUMBERS // max(1, candidates.numel()))
        found = []
        for rows, numbers in zip(
            given.split(some), [None] * len(given) if relation is None else relation.split(some), strict=False
        ):
            many = rows.repeat_interleave(len(candidates), 0), candidates.repeat(len(rows), 1)
            src, dst = many if to else many[::-1]
            each = None if numbers is None else numbers.repeat_interleave(len(candidates))
            found.append(self(src, each, dst).view(len(rows), -1))
        return torch.cat(found) if found else given.new_zeros(0, len(candidates))


class OwnDecoder(PairDecoder):
    """A decoder of the user's own, which is called with a pair of rows for each link and candidate.

    Args:
        module: The module, see `lotan.LinkPrediction`.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, src: Tensor, relation: Tensor | None, dst: Tensor) -> Tensor:
        """Return the score of each link. [links].

        Raises:
            ModelError: If the module returns anything but one number for each link.
        """
        found: Any = self.module(src, relation, dst)
        if not isinstance(found, Tensor) or found.shape not in ((len(src),), (len(src), 1)):
            said = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ModelError(
                f"decoder {type(self.module).__name__} returned {said} for {len(src)} links; expected scores of shape "
                f"({len(src)},)"
            )
        scores: Tensor = found.view(-1)
        return scores


def check_own_decoder(decoder: OwnDecoder, width: int, relations: int | None) -> None:
    """Call a copy of a user's own decoder on two links of zeros, so that a mistake is an error before the first batch.

    Args:
        decoder: The decoder.
        width: The number of outputs of the model.
        relations: The number of relations; None: links have none.

    Raises:
        ModelError: If it fails, or does not return one number with a gradient for each link.
    """
    name, rows = type(decoder.module).__name__, torch.zeros(2, width, requires_grad=True)
    numbers = None if relations is None else torch.tensor([0, relations - 1])
    tried = copy.deepcopy(decoder).train()  # a copy, because a call may change running statistics
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            scores = tried(rows, numbers, rows)
    except ModelError:
        raise
    except Exception as error:  # it is the user's code
        known = (
            "None, as links have no relations" if relations is None else f"the numbers of relations below {relations:,}"
        )
        raise ModelError(
            f"decoder {name} fails on two links: {type(error).__name__}: {error}. It is called with the rows of sources "
            f"[links, {width}], {known}, and the rows of destinations [links, {width}], and returns scores [links]"
        ) from error
    if not scores.requires_grad:
        raise ModelError(
            f"decoder {name} returned scores of {scores.dtype} without a gradient, so that nothing can learn from them; leave "
            "out what cuts it off, such as detach, torch.no_grad and whole numbers"
        )


_NAMED: dict[str, type[_OfRelations]] = {"distmult": DistMult, "complex": ComplEx, "transe": TransE}


def make_decoder(task: LinkPrediction, width: int, relations: int, seed: int) -> Decoder:
    """Return the decoder of a task, with rows of relations drawn by a seed.

    Args:
        task: The task.
        width: The number of outputs of the model.
        relations: The number of relations; 1 if there are none.
        seed: The seed of the Trainer.

    Raises:
        ModelError: If the decoder cannot score rows of that width.
    """
    if not isinstance(task.decoder, str):
        return OwnDecoder(task.decoder)
    if task.decoder == "dot":
        return Dot()
    return _NAMED[task.decoder](width, relations, torch.Generator().manual_seed(seed))


def decoder_of(
    task: LinkPrediction, width: int, relations: int | None, seed: int, earlier: Decoder | None = None
) -> Decoder:
    """Return the decoder that a training begins with. One of the user's own is tried on two links.

    Args:
        task: The task.
        width: The number of outputs of the model.
        relations: The number of relations; None: links have none.
        seed: The seed of the Trainer.
        earlier: The decoder of an earlier training of the same model, which goes on; None: a new one.

    Raises:
        ModelError: If the decoder cannot score rows of that width, or it is the user's own and fails.
    """
    decoder = make_decoder(task, width, relations or 1, seed) if earlier is None else earlier
    if isinstance(decoder, OwnDecoder):
        check_own_decoder(decoder, width, relations)
    return decoder


class LinkedModel(nn.Module):
    """An encoder and a decoder, whose parameters are named as those of one model.

    Args:
        model: The encoder. Its parameters keep their names.
        decoder: The decoder. The names of its parameters begin with `PREFIX`.
    """

    def __init__(self, model: nn.Module, decoder: Decoder) -> None:
        super().__init__()
        self.model, self.decoder = model, decoder

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of both by name."""
        yield from self.model.named_parameters(prefix, recurse, remove_duplicate)
        yield from self.decoder.named_parameters(prefix + PREFIX.rstrip("."), recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers of both by name."""
        yield from self.model.named_buffers(prefix, recurse, remove_duplicate)
        yield from self.decoder.named_buffers(prefix + PREFIX.rstrip("."), recurse, remove_duplicate)
