"""Predictions of a model that was trained on links: scores of pairs, and the best destinations of queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lotan.errors import GraphError, ModelError
from lotan.graph.arrays import Ids, Positions, positions_of
from lotan.graph.faults import EXAMPLES
from lotan.graph.given_tables import arrow_table, form_of, names_of_columns, repeatable
from lotan.graph.graph import Graph
from lotan.links.decoders import PREFIX, Decoder, make_decoder
from lotan.links.examples import relation_numbers
from lotan.links.ranks import best_destinations, scores_of
from lotan.settings.tasks import DECODERS, LinkPrediction

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TrainedDecoder:
    """The decoder of a trained model, as data: it scores the rows that the model makes."""

    name: str  # one of `lotan.settings.tasks.DECODERS`, or the class of the user's own
    width: int  # the number of outputs of the model
    relations: tuple[int | str, ...] = ()  # by their numbers; empty if links had none
    fractions: tuple[float, float] | None = None  # the shares of validation and test that a hash drew; None: none did
    seed: int = 0  # the seed of that hash
    own: Decoder | None = None  # a decoder of the user's own, with its weights

    def decoder(self, weights: Mapping[str, torch.Tensor]) -> Decoder:
        """Return the decoder with the model's weights.

        Args:
            weights: The parameters of the model and the decoder, by name.
        """
        if self.own is not None:
            return self.own
        decoder = make_decoder(LinkPrediction(decoder=self.name), self.width, max(1, len(self.relations)), seed=0)
        given = {name.removeprefix(PREFIX): tensor for name, tensor in weights.items() if name.startswith(PREFIX)}
        decoder.load_state_dict(given)
        return decoder.requires_grad_(False)

    def plain(self) -> dict[str, Any]:
        """Return what a saved model holds of the decoder, as data for JSON.

        Raises:
            ModelError: If the decoder is the user's own, which is code.
        """
        if self.own is not None:
            raise ModelError(
                f"decoder {self.name} is a module of your own, which is code, and a saved model holds data alone; take one of "
                f"{', '.join(DECODERS)}, or keep the run and use run.predict_links"
            )
        found = {"decoder": self.name, "width": self.width, "relations": list(self.relations)}
        return found | ({} if self.fractions is None else {"fractions": list(self.fractions), "seed": self.seed})

    @classmethod
    def of_plain(cls, content: Any, weights: Mapping[str, torch.Tensor]) -> TrainedDecoder:
        """Return the decoder that a saved model describes: the inverse of `plain`.

        Raises:
            ValueError: If the content is none, or the weights do not fit.
        """
        name, width, relations = content["decoder"], content["width"], content["relations"]
        sound = all(isinstance(one, int | str) for one in relations) and isinstance(width, int)
        if name not in DECODERS or not sound:
            raise ValueError(
                f"its decoder is {name!r} of width {width!r}, and one of {', '.join(DECODERS)} was expected"
            )
        given = LinkPrediction(fractions=content.get("fractions"), seed=content.get("seed", 0))
        found = cls(name, width, tuple(relations), given.shares, given.seed)
        try:
            found.decoder(weights)
        except (RuntimeError, ModelError) as error:
            raise ValueError(f"the weights of its decoder do not fit: {error}") from error
        return found


@dataclass(frozen=True)
class Asked:
    """The ends and relations of given rows, as rows of a graph."""

    ends: tuple[Positions, ...]  # the sources, and the destinations if they were asked for. [rows]
    relation: Positions | None  # [rows]
    columns: Mapping[str, NDArray[Any]]  # as they were given, by name


def read_pairs(given: Any, wanted: tuple[str, ...], ids: Ids, relations: tuple[int | str, ...]) -> Asked:
    """Read pairs, or queries, of a table.

    Args:
        given: A DataFrame or Arrow table in memory, or a dict of arrays, with the wanted columns, and `relation` if the links
            had relations.
        wanted: The names of the columns of vertices.
        ids: The ids of the graph's vertices. [vertices]
        relations: The relations of training.

    Raises:
        GraphError: If a column is missing, or a vertex or relation is not known.
    """
    columns = (*wanted, "relation") if relations else wanted
    given = repeatable(given)
    form_of(given, "pairs")
    present = names_of_columns(given)
    for name in columns:
        if name not in present:
            raise GraphError(
                f"pairs: there is no column {name!r}; expected {', '.join(columns)}, given {', '.join(present)}."
            )
    table = arrow_table(given, "pairs", list(columns))
    for name in columns:
        if nulls := table.column(name).null_count:
            raise GraphError(f"pairs.{name}: {nulls:,} rows are null. Give each row a value, or drop it.")
    held = {name: _plain(table.column(name).to_numpy()) for name in columns}
    ends = tuple(_rows(name, held[name], ids) for name in wanted)
    relation = relation_numbers(relations, held["relation"]) if relations else None
    return Asked(ends, relation, held)


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(object) if column.dtype.kind in "UO" else column


def _rows(name: str, given: NDArray[Any], ids: Ids) -> Positions:
    if not len(given):
        return np.zeros(0, dtype=np.int64)  # a column without rows has any type
    if (given.dtype == object) != (ids.dtype == object) or given.dtype.kind not in "iuO":
        kinds = (
            ("texts" if given.dtype == object else str(given.dtype)),
            ("texts" if ids.dtype == object else "integers"),
        )
        raise GraphError(f"pairs.{name}: holds {kinds[0]}, and the ids of the graph are {kinds[1]}. Cast the column.")
    found = positions_of(ids, given if given.dtype == object else given.astype(np.int64))
    unknown = given[found < 0]
    if len(unknown):
        shown = ", ".join(map(repr, unknown[:EXAMPLES].tolist()))
        raise GraphError(
            f"pairs.{name}: {len(unknown):,} ids are no vertices of the graph (for example {shown}). Give ids of the graph "
            "that the model predicts on."
        )
    return found


def scored(decoder: Decoder, rows: torch.Tensor, asked: Asked) -> pd.DataFrame:
    """Return the given pairs with their scores."""
    import pandas as pd

    src, dst = asked.ends
    scores = scores_of(decoder, rows, src, dst, asked.relation)
    return pd.DataFrame({**asked.columns, "score": scores.numpy()})


def ranked(decoder: Decoder, rows: torch.Tensor, asked: Asked, ids: Ids, k: int, left_out: Any) -> pd.DataFrame:
    """Return the best destinations of each query: the query's columns, `dst`, `score` and `rank`, best first."""
    import pandas as pd

    query, row, score = best_destinations(decoder, rows, (asked.ends[0], asked.relation), k, left_out)
    place = np.arange(len(query)) - np.searchsorted(query, query) + 1
    return pd.DataFrame(
        {
            **{name: column[query] for name, column in asked.columns.items()},
            "dst": ids[row],
            "score": score,
            "rank": place,
        }
    )


def rows_in_order(graph: Graph, frame: Any) -> torch.Tensor:
    """Return the output rows of a DataFrame of `id` and `values` in the order of the graph's arrays. [vertices, width]."""
    places = positions_of(graph.ids, frame["id"].to_numpy())
    rows = np.stack(frame["values"].to_numpy())
    found = np.empty_like(rows)
    found[places] = rows
    return torch.from_numpy(found)
