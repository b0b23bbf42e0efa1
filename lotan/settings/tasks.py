"""Tasks beyond the prediction of labels, as `Trainer(task=...)` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from lotan.arguments import described, require_count, require_flag, require_number, wrong
from lotan.errors import ConfigurationError
from planner.loss import Task

if TYPE_CHECKING:
    import torch

DECODERS = ("dot", "distmult", "complex", "transe")
LINK_LOSSES = ("softmax", "bce")
NEGATIVE_SAMPLINGS = ("uniform", "degree")
ALL: Literal["all"] = "all"


@dataclass(frozen=True)
class LinkPrediction:
    """Predict links: score pairs of vertices, so that true links score higher than drawn ones.

    The model is the encoder: it makes a row for each vertex. A decoder scores two rows and a relation. For each training
    link, other destinations and other sources are drawn, and the link is to score higher than these negatives.

    The edges of the graph are the links. Their column `split` says which are for training, validation and test, and their
    column `relation`, integers or strings, what each link means, if there are several kinds. A graph of arrays takes
    `edge_split` and `relation`. Messages pass along links of training alone.

    Args:
        decoder: "dot" (s · d), "distmult" (Yang et al. 2015), "complex" (Trouillon et al. 2016) or "transe" (Bordes et al.
            2013), as in `torch_geometric.nn.kge`. Or a `torch.nn.Module` that returns scores [links]. It is called with the
            rows of sources [links, width], the numbers of relations [links] or None, and the rows of destinations.
        negatives: The number of destinations, and of sources, that are drawn for a mini-batch, or in full batch for each
            1,024 links. All these links share them. "all" takes every vertex.
        loss: "softmax": cross-entropy of the link among its negatives. "bce": binary cross-entropy, in which a link weighs
            as much as all its negatives together.
        negative_sampling: "uniform": every vertex is drawn with the same probability. "degree": in proportion to the
            training links that end, or begin, there. Vertices may be drawn several times.
        filtered: True to leave out the negatives of a link that make another training link of it.
        exclude_targets: True if no message passes along the links of the batch itself, nor along their reverses that
            `undirected` adds. None: True in mini-batches and False in full batch, where all links are in the one batch.
        fractions: The shares of the links that become validation and test, if the edges have no column `split`. A hash of
            a pair's ids and of the seed decides, so all links between two vertices are in one split. None: edges need the
            column.
        seed: The seed of negatives and fractions.

    Raises:
        ConfigurationError: If an argument is none of these.

    >>> LinkPrediction(decoder="distmult", negatives=100)
    LinkPrediction(decoder='distmult', negatives=100)
    """

    decoder: str | torch.nn.Module = "dot"
    negatives: int | Literal["all"] = 500
    loss: str = "softmax"
    negative_sampling: str = "uniform"
    filtered: bool = False
    exclude_targets: bool | None = None
    fractions: Sequence[float] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        owner = type(self).__name__
        _check_decoder(self.decoder)
        if self.negatives != ALL:
            object.__setattr__(self, "negatives", require_count(owner, "negatives", self.negatives))
        for name, choices in (("loss", LINK_LOSSES), ("negative_sampling", NEGATIVE_SAMPLINGS)):
            if getattr(self, name) not in choices:
                raise wrong(owner, name, getattr(self, name), " or ".join(map(repr, choices)))
        require_flag(owner, "filtered", self.filtered)
        if self.exclude_targets is not None:
            require_flag(owner, "exclude_targets", self.exclude_targets)
        object.__setattr__(self, "seed", require_count(owner, "seed", self.seed, 0))
        object.__setattr__(self, "fractions", _fractions(self.fractions))

    def __repr__(self) -> str:
        """Return the call that makes it, without defaults."""
        shown = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if not (type(value) is type(item.default) and value == item.default):
                shown[item.name] = (
                    repr(value) if item.name != "decoder" or isinstance(value, str) else self.decoder_name
                )
        return f"LinkPrediction({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @property
    def shares(self) -> tuple[float, float] | None:
        """The fractions of validation and test, or None."""
        return None if self.fractions is None else (self.fractions[0], self.fractions[1])

    @property
    def decoder_name(self) -> str:
        """The name of the decoder, or of the class of the user's own."""
        return self.decoder if isinstance(self.decoder, str) else type(self.decoder).__name__


def _check_decoder(given: object) -> None:
    if isinstance(given, str):
        if given not in DECODERS:
            raise wrong("LinkPrediction", "decoder", given, f"{', '.join(map(repr, DECODERS))} or a torch.nn.Module")
        return
    import torch  # here, because `import lotan` and the command line's help need none

    if not isinstance(given, torch.nn.Module):
        raise wrong("LinkPrediction", "decoder", given, f"{', '.join(map(repr, DECODERS))} or a torch.nn.Module")


def _fractions(given: object) -> tuple[float, float] | None:
    if given is None:
        return None
    expected = "two shares of at least 0 that add up to less than 1, of validation and test, such as (0.05, 0.1)"
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise wrong("LinkPrediction", "fractions", given, expected)
    for share in given:
        require_number("LinkPrediction", "fractions", share, 0.0, 1.0)
    if sum(given) >= 1:
        raise wrong("LinkPrediction", "fractions", given, expected)
    return float(given[0]), float(given[1])


def excludes_targets(task: LinkPrediction) -> bool:
    """Return True if the links of a mini-batch are left out of its messages."""
    return task.exclude_targets is not False


def label_task(task: Task | LinkPrediction | None) -> Task | None:
    """Return a task that predicts labels, for models that train together.

    Raises:
        ConfigurationError: If it is a link task.
    """
    if isinstance(task, LinkPrediction):
        raise ConfigurationError(
            "task is LinkPrediction, and models train together on labels of vertices alone; use a Trainer"
        )
    return task


def as_link_task(task: object) -> LinkPrediction | None:
    """Return the task of a Trainer as a link task, or None if it is another task. "link" stands for the defaults.

    Raises:
        ConfigurationError: If it is the class, and not an object of it.
    """
    if task is LinkPrediction:
        raise ConfigurationError(f"task is {described(task)}; call it: lotan.LinkPrediction()")
    if task == "link":
        return LinkPrediction()
    return task if isinstance(task, LinkPrediction) else None
