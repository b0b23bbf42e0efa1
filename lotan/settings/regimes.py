"""Regimes of training: which vertices are the examples of a step of the optimizer, and which edges it sums over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import ClassVar

from lotan.arguments import described, require_count, wrong
from lotan.errors import ConfigurationError
from lotan.settings.named_calls import read_call
from planner.orders.division import Division, OrderName
from planner.orders.vertex_division import VertexOrderName
from planner.regime import MOST_FANOUTS, Fanout, batches_in_words

ALL: Fanout = "all"
SHUFFLED, FIXED = "shuffled", "fixed until the elbow"
ORDERS = (SHUFFLED, FIXED)
STORED: dict[str, tuple[str, ...]] = {
    "comet": ("partitions", "buffer", "groups"),
    "beta": ("partitions", "buffer"),
    "cached_nodes": ("partitions", "buffer"),
    "each_once": ("partitions", "buffer"),
}
"""The orders that train from partitions on a disk, with their arguments."""

OF_VERTICES = ("cached_nodes", "each_once")
"""Those whose examples are vertices. The examples of the others are links."""

BATCHES_AHEAD = 2
"""The batches that are prepared before they are needed. More would take memory, and one thread prepares them in turn."""


@dataclass(frozen=True)
class FullBatch:
    """Train on the whole graph: an epoch is one exact pass over all training vertices, and one step of the optimizer.

    It is the default.

    >>> FullBatch()
    FullBatch()
    """

    is_stored: ClassVar[bool] = False  # it reads nothing from partitions on a disk


@dataclass(frozen=True)
class MiniBatch:
    """Train on sampled batches: an epoch takes one step of the optimizer for each batch of training vertices.

    A batch has some training vertices, its targets, and the vertices that were drawn around them. At most `fanouts[0]`
    in-edges are drawn for each target, at most `fanouts[1]` for each vertex that is met by these edges, and so on. They
    are drawn without replacement, once a batch, and all layers use the same ones. Evaluation and prediction run on the
    whole graph, and are exact.

    The draws depend on the seed, the epoch, the batch and the vertex alone. So a repeated run has the same batches, and
    all models of a grid share them.

    With order "fixed until the elbow" the batches of the first epoch are used in each epoch, until three evaluations in a
    row have not bettered the monitored metric. From then on each epoch draws its own. Source: DAHA's adaptive shuffling.

    With order "comet" or "beta" a link task trains from a disk: the graph and its learned rows lie there in partitions, and
    only some are in memory at one time. The links of a batch, and its negatives, have their ends there. "comet" puts the
    partitions into groups anew in each epoch and mixes batches better; "beta" swaps single partitions. The memory limit
    decides how many there are, or the order says so: "comet(partitions=16, buffer=4, groups=8)". Sources: Waleffe et al.,
    MariusGNN (EuroSys 2023); Mohoney et al., Marius (OSDI 2021).

    With order "cached_nodes" or "each_once" a vertex task trains from a disk, where features and edges lie. Neighbours are
    drawn among the partitions in memory. With "cached_nodes" those of the training vertices stay there, beside others that
    each epoch draws anew, and nothing is read within an epoch. With "each_once" training vertices are everywhere, and an
    epoch reads each partition once: "each_once(partitions=16, buffer=4)".

    Args:
        batch_size: The number of targets of a batch. The last batch of an epoch may have fewer.
        fanouts: For each layer the most in-edges that are drawn for a vertex, or "all" for every in-edge. The first number
            is for the targets, the last for the vertices that are farthest from them. () is for a model that reads no
            neighbours. In a graph of several types of vertices a number holds for the in-edges of each relation.
        seed: The seed of the order of targets and of the draws. It is not the Trainer's seed, which is that of dropout,
            so that models with other seeds share the batches.
        order: "shuffled", for other batches in each epoch, or "fixed until the elbow". The latter keeps the drawn edges of
            an epoch in memory, and follows the validation of one model: grids and link tasks do not have it. Or one of those
            that train from a disk.

    Raises:
        ConfigurationError: If `batch_size` is no whole number of at least 1, a fanout is neither such a number nor "all", or
            there is no such order.

    >>> MiniBatch(batch_size=1024, fanouts=(10, "all"))
    MiniBatch(batch_size=1024, fanouts=(10, 'all'), seed=0)
    """

    batch_size: int = 1024
    fanouts: Sequence[Fanout] = field(default=(10, 10))
    seed: int = 0
    order: str = SHUFFLED

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            _check_stored(self.order)
        object.__setattr__(self, "batch_size", require_count("MiniBatch", "batch_size", self.batch_size))
        object.__setattr__(self, "seed", require_count("MiniBatch", "seed", self.seed, 0))
        object.__setattr__(self, "fanouts", _fanouts(self.fanouts))

    def __repr__(self) -> str:
        """Return the call that makes it. The order is left out if it is the default, as earlier versions had no other."""
        names = [item.name for item in fields(self) if item.name != "order" or self.order != SHUFFLED]
        return f"MiniBatch({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def is_fixed(self) -> bool:
        """True if the batches stay the same until the elbow."""
        return self.order == FIXED

    @property
    def is_stored(self) -> bool:
        """True if batches come from partitions on a disk."""
        return self.order not in ORDERS

    @property
    def trains_vertices(self) -> bool:
        """True if batches come from partitions on a disk, and their examples are vertices."""
        return self.is_stored and read_call("order", self.order, "each_once").name in OF_VERTICES

    @property
    def stored_order(self) -> OrderName:
        """The name of an order of links on a disk."""
        name = read_call("order", self.order, "comet").name
        assert name in ("comet", "beta")  # it was checked
        return "comet" if name == "comet" else "beta"

    @property
    def vertex_order(self) -> VertexOrderName:
        """The name of an order of vertices on a disk."""
        assert self.trains_vertices  # it was checked
        return "each_once" if read_call("order", self.order, "each_once").name == "each_once" else "cached_nodes"

    @property
    def stored_sizes(self) -> tuple[int, int] | None:
        """The partitions, and those in memory, that the order says; None: the memory limit decides."""
        given = read_call("order", self.order, "comet").keywords
        return (given["partitions"], given["buffer"]) if given else None

    @property
    def division(self) -> Division | None:
        """The division of links into partitions that the order says; None: the memory limit decides."""
        if self.stored_sizes is None:
            return None
        groups = read_call("order", self.order, "comet").keywords.get("groups", self.stored_sizes[0])
        return Division(self.stored_order, *self.stored_sizes, groups)

    def __str__(self) -> str:
        return batches_in_words(self.batch_size, self.fanouts)


Regime = FullBatch | MiniBatch
"""A regime, as `Trainer(regime=...)` takes it."""


def check_regime(value: object) -> None:
    """Check that a setting is a regime.

    Raises:
        ConfigurationError: If it is none.
    """
    if not isinstance(value, FullBatch | MiniBatch):
        raise ConfigurationError(
            f"regime is {described(value)}; expected lotan.FullBatch(), or one such as "
            "lotan.MiniBatch(batch_size=1024, fanouts=(10, 10))"
        )


def _check_stored(order: object) -> None:
    """Check an order that trains from a disk.

    Raises:
        ConfigurationError: If there is no such order, or its sizes do not go together.
    """
    expected = f"one of {', '.join(map(repr, (*ORDERS, *STORED)))}"
    if not isinstance(order, str):
        raise wrong("MiniBatch", "order", order, expected)
    call = read_call("order", order, "comet(partitions=16, buffer=4, groups=8)")
    if call.name not in STORED:
        raise wrong("MiniBatch", "order", order, expected)
    names, given = STORED[call.name], call.keywords
    if given and set(given) != set(names):
        raise ConfigurationError(f"MiniBatch got order={order!r}; give all of {', '.join(names)}, or none of them")
    sizes = [require_count("MiniBatch", f"order: {name}", given[name]) for name in names if name in given]
    if not given:
        return
    partitions, buffer, groups = (*sizes, sizes[0])[:3]
    if call.name == "cached_nodes":  # a single partition may have all training vertices
        if buffer > partitions:
            raise ConfigurationError(
                f"MiniBatch got order={order!r}; expected room in the buffer for at most all partitions, as in "
                "'cached_nodes(partitions=16, buffer=4)'"
            )
        return
    even = partitions % groups == 0 and buffer % (partitions // groups) == 0
    least = 2 if groups > 1 else 1
    if not even or not least <= buffer // max(1, partitions // groups) <= groups:
        if call.name != "comet":  # each partition is a group
            raise ConfigurationError(
                f"MiniBatch got order={order!r}; expected room in the buffer for at least two partitions and at most all, as in "
                f"'{call.name}(partitions=16, buffer=4)'"
            )
        raise ConfigurationError(
            f"MiniBatch got order={order!r}; expected groups of the same size, and room in the buffer for whole groups, at "
            "least two of them and at most all, as in 'comet(partitions=16, buffer=4, groups=8)'"
        )


def read_fanouts(text: str) -> tuple[Fanout, ...]:
    """Return the fanouts that a text describes, such as "10,all". "none" stands for no fanouts.

    What is no fanout stays a text, which `MiniBatch` refuses.

    >>> read_fanouts("10,all"), read_fanouts("none")
    ((10, 'all'), ())
    """
    if text == "none":
        return ()
    return tuple(int(one) if one.strip().isdecimal() else one.strip() for one in text.split(","))  # type: ignore[misc]


def _fanouts(given: object) -> tuple[Fanout, ...]:
    """Return fanouts as a tuple of Python's own numbers and "all"."""
    expected = f'at most {MOST_FANOUTS} whole numbers of at least 1, or "all", one for each layer, such as (10, 10)'
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) > MOST_FANOUTS:
        raise wrong("MiniBatch", "fanouts", given, expected)
    for one in given:
        counts = isinstance(one, Integral) and not isinstance(one, bool) and int(one) >= 1
        if not counts and one != ALL:
            raise wrong("MiniBatch", "fanouts", given, expected)
    return tuple(ALL if one == ALL else int(one) for one in given)
