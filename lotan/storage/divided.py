"""The division that a folder of storage has. It is never changed, because somebody may have written it for a purpose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotan.errors import StorageError
from lotan.storage.folder import FORMAT, MANIFEST, read_manifest
from lotan.storage.placement import ExamplesFirst, Placement

DIVISION = ("partitions", "seed", "examples_first")
"""The entries of a manifest that say how vertices are divided."""


def division_entries(partitions: int, seed: int, examples_first: bool) -> dict[str, Any]:
    """Return these entries. The last one is left out where all vertices are drawn alike."""
    return {"partitions": partitions, "seed": seed} | ({"examples_first": True} if examples_first else {})


def division_of(placement: Placement) -> dict[str, Any]:
    """Return these entries for partitions of vertices."""
    return division_entries(placement.partitions, placement.seed, isinstance(placement, ExamplesFirst))


def division_there(folder: Path | None) -> dict[str, Any] | None:
    """Return these entries of the storage in a folder; None: it has none that could be used."""
    known = None if folder is None else read_manifest(folder / MANIFEST)
    if known is None or known.get("format") != FORMAT:
        return None
    return {name: known[name] for name in DIVISION if name in known}


def partitions_there(folder: Path | None, seed: int, examples_first: bool = False) -> int | None:
    """Return the number of partitions of the storage in a folder, if a run could use them; None: it could not.

    Args:
        folder: The folder; None: a temporary one.
        seed: The seed of the partition of each vertex.
        examples_first: True if the run needs the training vertices in the first partitions.
    """
    there = division_there(folder)
    same = there is not None and there == division_entries(there["partitions"], seed, examples_first)
    return there["partitions"] if there is not None and same else None


def other_division(folder: Path | None, wanted: Mapping[str, Any]) -> str | None:
    """Return the reason why a run cannot use the storage in a folder, if it is divided in another way; None: it can."""
    there = division_there(folder)
    if there is None or there == wanted:
        return None
    return f"{folder} holds {_words(there)}, and this needs {_words(wanted)}"


def check_division(folder: Path, wanted: Mapping[str, Any]) -> None:
    """Check that the storage in a folder is divided as it should be, if there is some.

    Raises:
        StorageError: If it is divided in another way.
    """
    reason = other_division(folder, wanted)
    if reason is not None:
        raise StorageError(
            f"{reason}; ask for what is there (by the order with its sizes, the sampling seed, and a memory limit in which it "
            "fits), name another folder, or remove this one"
        )


def _words(division: Mapping[str, Any]) -> str:
    first = ", with the training vertices in the first of them" if division.get("examples_first") else ""
    return f"{division['partitions']} partitions drawn with seed {division['seed']}{first}"
