"""Knowledge graphs as text: the files train.txt, valid.txt and test.txt, with a source, a relation and a destination a line.

This is the form in which FB15k-237 and WN18RR are published. The files lie in a folder, or in an archive in it whose name
is the folder's, such as `FB15k-237/FB15k-237.tar.gz`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lotan.errors import GraphError
from lotan.files import expanded
from lotan.graph.arrays import EdgeColumns, VertexColumns
from lotan.graph.faults import reason
from lotan.graph.given_labels import GivenLabels

FILES = {"train.txt": 0, "valid.txt": 1, "test.txt": 2}
"""The files, each with the number of its split."""


def triples_at(given: str | Path, folders: tuple[Path, ...]) -> Path | None:
    """Return the folder of a knowledge graph, or None if there is none of that path or name.

    Args:
        given: A path or a name.
        folders: The folders in which named graphs are looked for.
    """
    path = expanded(given)
    places = [path, *(folder / path for folder in folders if len(path.parts) == 1)]
    try:
        return next(filter(holds_triples, places), None)
    except (OSError, ValueError):  # the name is too long for a file, or has a zero byte
        return None


def holds_triples(folder: Path) -> bool:
    """Return True if a folder has a knowledge graph, in files or in an archive."""
    return (folder / "train.txt").is_file() or archive_in(folder).is_file()


def archive_in(folder: Path) -> Path:
    """Return the place of the archive of a folder."""
    return folder / f"{folder.name}.tar.gz"


def read_triples(folder: Path) -> tuple[VertexColumns, EdgeColumns]:
    """Read a knowledge graph. Vertices have no features; edges have their relation and their split.

    Raises:
        GraphError: A file is missing or cannot be read, or a line has not three texts.
    """
    ends: list[list[str]] = [[], [], []]
    split: list[int] = []
    for name, text in _texts(folder):
        lines = [line.split("\t") for line in text.replace("\r\n", "\n").split("\n") if line]
        wrong = next((number for number, line in enumerate(lines, 1) if len(line) != 3), None)
        if wrong is not None:
            raise GraphError(
                f"{folder / name}: line {wrong} has {len(lines[wrong - 1])} texts; expected three, with tabs between them: "
                "source, relation, destination."
            )
        for place, column in enumerate(ends):
            column.extend(line[place] for line in lines)
        split += [FILES[name]] * len(lines)
    src, relation, dst = (np.array(column, dtype=object) for column in ends)
    ids = np.array(sorted({*ends[0], *ends[2]}), dtype=object)
    features: npt.NDArray[np.float32] = np.zeros((len(ids), 0), dtype=np.float32)
    vertices = VertexColumns(ids, features, GivenLabels.none(len(ids)), np.full(len(ids), -1, dtype=np.int8))
    return vertices, EdgeColumns(src, dst, None, split=np.array(split, dtype=np.int8), relation=relation)


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    try:
        if (folder / "train.txt").is_file():
            for name in FILES:
                yield name, (folder / name).read_text(encoding="utf-8")
            return
        with tarfile.open(archive_in(folder)) as archive:
            held = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
            for name in FILES:
                if name not in held:
                    raise GraphError(f"{archive_in(folder)} has no {name}; it has {', '.join(sorted(held))}.")
                stream = archive.extractfile(held[name])
                assert stream is not None  # it is a file
                yield name, stream.read().decode("utf-8")
    except (OSError, tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise GraphError(f"{folder} cannot be read: {reason(error)}. Copy or download it again.") from error
