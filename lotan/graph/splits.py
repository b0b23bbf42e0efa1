"""The ways to write splits: names in the common spellings, numbers, or three masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from planner.spec import SPLITS

T = TypeVar("T")

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
"""The spellings of each split, in lower case. Upper case and spaces around a name do not matter."""
NOTHING = ("", "none", "null")
"""The texts that stand for no split."""

_CODES = {text: SPLITS.index(split) for split, texts in SPELLINGS.items() for text in texts}
UNKNOWN = -2
"""The code of a text or number that stands for no split."""


def code_of(text: str) -> int:
    """Return the number of a split: its position in `planner.spec.SPLITS`, -1 for none, or `UNKNOWN`.

    >>> code_of("Train"), code_of(" validation "), code_of(""), code_of("dev")
    (0, 1, -1, -2)
    """
    plain = text.strip().lower()
    return -1 if plain in NOTHING else _CODES.get(plain, UNKNOWN)


def by_split(given: Mapping[Any, T]) -> dict[int, T] | None:
    """Return values by the numbers of splits, which a mapping has by their names; None if its names are not one for a split.

    >>> by_split({"train": "a", "valid": "b"}), by_split({"trian": "a"}), by_split({"val": "a", "valid": "b"})
    ({0: 'a', 1: 'b'}, None, None)
    """
    found = {code_of(str(name)): value for name, value in given.items()}
    fits = set(found) <= set(range(len(SPLITS))) and len(found) == len(given) > 0
    return found if fits else None


def codes_of(given: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Return the numbers of splits that are given as texts or as numbers, int8 [vertices]."""
    return codes_of_texts(given.astype(object)) if given.dtype.kind in "UO" else codes_of_numbers(given)


def codes_of_texts(texts: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Return the numbers of splits, int8 [vertices]. None counts as no split."""
    known = {text: -1 if text is None else code_of(text) for text in set(texts.tolist())}
    return np.fromiter((known[text] for text in texts.tolist()), dtype=np.int8, count=len(texts))


def codes_of_numbers(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Return the numbers of splits, int8 [vertices]. NaN and -1 count as no split."""
    given = np.where(np.isnan(numbers), -1, numbers) if numbers.dtype.kind == "f" else numbers
    return np.where(np.isin(given, range(-1, len(SPLITS))), given, UNKNOWN).astype(np.int8)


def codes_of_masks(masks: list[npt.NDArray[np.bool_]]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Return the numbers of splits, int8 [vertices], and the vertices that several masks have."""
    codes = np.full(len(masks[0]), -1, dtype=np.int8)
    for code, mask in enumerate(masks):
        codes[mask] = code
    return codes, np.asarray(np.sum(masks, axis=0) > 1)
