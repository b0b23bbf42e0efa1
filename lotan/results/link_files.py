"""Files of pairs that are scored, and of queries that are answered. They are read and written piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from lotan.arguments import require_count
from lotan.files import expanded, write_atomically
from lotan.graph.file_tables import open_table, unreadable
from lotan.graph.graph import Graph
from lotan.graph.places import Place, place_of
from lotan.links.examples import known_links
from lotan.links.ranks import scores_of
from lotan.planning.learned import Unseen
from lotan.results.links import ranked, read_pairs
from lotan.results.trained_model import TrainedModel
from lotan.settings.config import TrainerConfig

PIECE = 1 << 16
"""The rows of a file that are in memory at one time."""

Convert = Callable[[pa.Table], pa.Table]


def write_scores(
    model: TrainedModel,
    graph: Graph,
    pairs: str | Path,
    path: str | Path,
    config: TrainerConfig,
    unseen: Unseen = "error",
) -> None:
    """Score the pairs in a file, and write its rows with a further column `score` (float) as Parquet.

    Args:
        model: The model, which was trained on links.
        graph: The graph, as for `TrainedModel.predict_links`.
        pairs: A file or folder of Parquet, CSV, JSON or ORC with `src`, `dst` and, if links had relations, `relation`.
        path: The place of the scores.
        config: The settings, with those of the engine.
        unseen: The same as in `TrainedModel.predict`.

    Raises:
        ModelError: If the model was trained on labels.
        GraphError: If a file cannot be read, or a vertex or a relation is not known.
    """
    found = _Scoring(model, graph, config, unseen)

    def convert(table: pa.Table) -> pa.Table:
        asked = read_pairs(table, ("src", "dst"), found.ids, found.trained.relations)
        src, dst = asked.ends
        scores = scores_of(found.decoder, found.rows, src, dst, asked.relation)
        return table.append_column("score", pa.array(scores.numpy(), pa.float32()))

    _write(pairs, path, convert)


def write_ranks(
    model: TrainedModel,
    graph: Graph,
    queries: str | Path,
    path: str | Path,
    k: int,
    config: TrainerConfig,
    exclude_known: bool = False,
    unseen: Unseen = "error",
) -> None:
    """Find the best destinations for the queries in a file, and write them as Parquet.

    Args:
        model: The model, which was trained on links.
        graph: The graph, as for `TrainedModel.rank`.
        queries: A file or folder as in `write_scores`, with `src` and, if links had relations, `relation`.
        path: The place of the answers: `src`, perhaps `relation`, `dst`, `score` and `rank`, from 1.
        k: The number of destinations for each query, at most.
        config: The settings, with those of the engine.
        exclude_known: True to leave out destinations to which the graph has a link of that relation.
        unseen: The same as in `TrainedModel.predict`.

    Raises:
        ModelError: If the model was trained on labels.
        GraphError: If a file cannot be read, or a vertex or a relation is not known.
    """
    k = require_count("rank", "k", k)
    found = _Scoring(model, graph, config, unseen)
    known = known_links(graph, found.trained.relations).destinations if exclude_known else None

    def convert(table: pa.Table) -> pa.Table:
        asked = read_pairs(table, ("src",), found.ids, found.trained.relations)
        answers = ranked(found.decoder, found.rows, asked, found.ids, k, known)
        kinds = {name: table.schema.field(name).type for name in asked.columns} | {
            "dst": table.schema.field("src").type,
            "score": pa.float32(),
            "rank": pa.int64(),
        }
        return pa.table({name: pa.array(answers[name], kind, from_pandas=True) for name, kind in kinds.items()})

    _write(queries, path, convert)


class _Scoring:
    """A model's decoder and rows, for all pieces of a file."""

    def __init__(self, model: TrainedModel, graph: Graph, config: TrainerConfig, unseen: Unseen) -> None:
        self.ids, self.rows = model.link_rows(graph, config, unseen)
        assert model.decoder is not None  # it has made rows
        self.trained, self.decoder = model.decoder, model.decoder.decoder(model.weights)


def _write(given: str | Path, path: str | Path, convert: Convert) -> None:
    from pyarrow import parquet  # here, for only files need it

    place = place_of(given)
    table = open_table(place)
    pieces = _pieces(place, table)
    first = convert(next(pieces, table.schema.empty_table()))  # a wrong column is an error before a file is begun

    def write(stream: Any) -> None:
        with parquet.ParquetWriter(stream, first.schema) as writer:
            writer.write_table(first)
            for piece in pieces:
                writer.write_table(convert(piece))

    out = expanded(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, write)


def _pieces(place: Place, table: Any) -> Iterator[pa.Table]:
    try:
        for batch in table.to_batches(batch_size=PIECE):
            if batch.num_rows:
                yield pa.Table.from_batches([batch], table.schema)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(place, error) from error
