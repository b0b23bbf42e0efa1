"""Row keys: 64-bit hashes of ids, equal to Spark SQL's `xxhash64`, so that every engine draws the same random numbers.

A vertex's key is `xxhash64(id)` (an integer id as 8 bytes, a string as UTF-8; seed 42). An edge's key is
`xxhash64(source key, destination key, occurrence)`, where `occurrence` numbers parallel edges from 0, by weight.
Source: the XXH64 specification; Spark chains the columns of one call, each hash being the seed of the next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

SEED = 42  # Spark SQL's

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_LENGTH = np.uint64(8)  # bytes hashed


def vertex_keys(ids: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Hash ids as Spark SQL's `xxhash64(id)` does, integer ids being read as `bigint`.

    Args:
        ids: [vertices], of any integer type, or strings (object or unicode).

    Returns:
        int64 [vertices].

    >>> vertex_keys(np.array([0, 1])).tolist()
    [-5252525462095825812, -7001672635703045582]
    """
    if np.issubdtype(ids.dtype, np.integer):
        return _hash_longs(ids.astype(np.int64), np.uint64(SEED))
    digests = (xxhash.xxh64_intdigest(text.encode(), seed=SEED) for text in ids.tolist())
    return np.fromiter(digests, dtype=np.uint64, count=len(ids)).view(np.int64)


def edge_keys(
    source_keys: npt.NDArray[np.int64], destination_keys: npt.NDArray[np.int64], occurrence: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Hash edges as Spark SQL's `xxhash64(source key, destination key, occurrence)` does; all are `bigint` [edges]."""
    first = _hash_longs(source_keys, np.uint64(SEED))
    second = _hash_longs(destination_keys, first.view(np.uint64))
    return _hash_longs(occurrence, second.view(np.uint64))


def occurrences(sources: npt.NDArray[np.generic], destinations: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Number each edge among its parallel edges, from 0.

    Args:
        sources: [edges], sorted so that parallel edges are neighbours; ids or positions.
        destinations: [edges].

    Returns:
        int64 [edges].

    >>> occurrences(np.array([1, 1, 1, 2]), np.array([5, 5, 6, 6])).tolist()
    [0, 1, 0, 0]
    """
    count = len(sources)
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    differs = (sources[1:] != sources[:-1]) | (destinations[1:] != destinations[:-1])
    starts = np.concatenate([[0], np.flatnonzero(differs) + 1])
    lengths = np.diff(np.append(starts, count))
    result: npt.NDArray[np.int64] = np.arange(count, dtype=np.int64) - np.repeat(starts, lengths)
    return result


def _hash_longs(values: npt.NDArray[np.int64], seed: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.int64]:
    """XXH64 of each 8-byte value; `seed` is one or one per value. Products wrap around, as they must."""
    with np.errstate(over="ignore"):
        mixed = _rotate_left(np.ascontiguousarray(values).view(np.uint64) * _PRIME_2, 31) * _PRIME_1
        hashed = (seed + _PRIME_5 + _LENGTH) ^ mixed
        hashed = _rotate_left(hashed, 27) * _PRIME_1 + _PRIME_4
        hashed = (hashed ^ (hashed >> np.uint64(33))) * _PRIME_2
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _PRIME_3
        return np.asarray(hashed ^ (hashed >> np.uint64(32))).view(np.int64)


def _rotate_left(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
