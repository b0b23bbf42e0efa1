"""Regimes of training: which vertices are the examples of a step of the optimizer, and which edges it sums over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral

from lotan.arguments import described, require_count, wrong
from lotan.errors import ConfigurationError
from planner.regime import MOST_FANOUTS, Fanout, batches_in_words

ALL: Fanout = "all"
SHUFFLED, FIXED = "shuffled", "fixed until the elbow"
ORDERS = (SHUFFLED, FIXED)
BATCHES_AHEAD = 2
"""The batches that are prepared before they are needed. More would take memory, and one thread prepares them in turn."""


@dataclass(frozen=True)
class FullBatch:
    """Train on the whole graph: an epoch is one exact pass over all training vertices, and one step of the optimizer.

    It is the default.

    >>> FullBatch()
    FullBatch()
    """


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

    Args:
        batch_size: The number of targets of a batch. The last batch of an epoch may have fewer.
        fanouts: For each layer the most in-edges that are drawn for a vertex, or "all" for every in-edge. The first number
            is for the targets, the last for the vertices that are farthest from them. () is for a model that reads no
            neighbours.
        seed: The seed of the order of targets and of the draws. It is not the Trainer's seed, which is that of dropout,
            so that models with other seeds share the batches.
        order: "shuffled", for other batches in each epoch, or "fixed until the elbow". The latter keeps the drawn edges of
            an epoch in memory, and follows the validation of one model: grids and link tasks do not have it.

    Raises:
        ConfigurationError: If `batch_size` is no whole number of at least 1, a fanout is neither one nor "all", or there is no
            such order.

    >>> MiniBatch(batch_size=1024, fanouts=(10, "all"))
    MiniBatch(batch_size=1024, fanouts=(10, 'all'), seed=0)
    """

    batch_size: int = 1024
    fanouts: Sequence[Fanout] = field(default=(10, 10))
    seed: int = 0
    order: str = SHUFFLED

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise wrong("MiniBatch", "order", self.order, " or ".join(map(repr, ORDERS)))
        object.__setattr__(self, "batch_size", require_count("MiniBatch", "batch_size", self.batch_size))
        object.__setattr__(self, "seed", require_count("MiniBatch", "seed", self.seed, 0))
        object.__setattr__(self, "fanouts", _fanouts(self.fanouts))

    def __repr__(self) -> str:
        """Return the call that makes it. The order is left out if it is the default, as earlier versions had no other."""
        names = [item.name for item in fields(self) if item.name != "order" or self.is_fixed]
        return f"MiniBatch({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def is_fixed(self) -> bool:
        """True if the batches stay the same until the elbow."""
        return self.order == FIXED

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
