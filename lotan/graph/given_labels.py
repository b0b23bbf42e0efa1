"""The one rule by which labels become classes or targets, whatever they were read from.

A task that the user names decides. Without one, whole numbers, true and false, and texts are classes. Floats are targets,
unless all are whole and some are missing: pandas and OGB store classes so. An array of one number counts as that number. An
empty text stands for no label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lotan.errors import GraphError
from lotan.graph.faults import example_row, fault, wrong_label_type
from planner.loss import Task

Array = npt.NDArray[Any]

MOST_TEXTS = 10_000
"""More different texts than this are no classes."""


@dataclass(frozen=True)
class GivenLabels:
    """Labels as they were given, before a task is known."""

    values: Array  # int64 or object (strings) [vertices]; or float32 [vertices, targets], NaN for none
    missing: npt.NDArray[np.bool_]  # [vertices]; of floats, it is not read

    @classmethod
    def none(cls, count: int) -> GivenLabels:
        """Return the labels of vertices that have none."""
        return cls(np.full(count, -1, dtype=np.int64), np.ones(count, dtype=np.bool_))

    @classmethod
    def of_array(cls, array: Array) -> GivenLabels:
        """Return the labels that a user's array holds.

        Args:
            array: numbers [vertices] or [vertices, targets], or strings and None [vertices].
        """
        count = len(array)
        if array.dtype.kind in "UO":
            values = array.astype(object)
            missing = np.array([value is None for value in values], dtype=np.bool_)
            return cls(values, missing)
        flat = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        if flat.dtype.kind in "biu" and flat.ndim == 1:
            return cls(flat.astype(np.int64), np.zeros(count, dtype=np.bool_))
        with np.errstate(over="ignore"):  # an infinite number is reported later, with its row
            values = array.astype(np.float32).reshape(count, -1 if array.size else 1)
        return cls(values, np.zeros(count, dtype=np.bool_))


@dataclass(frozen=True)
class SettledLabels:
    """Labels for a task."""

    label: Array  # int64 [vertices], -1 = none; or float32 [vertices, targets], NaN = none
    classes: tuple[str, ...] = ()  # the texts that stand for classes 0, 1, ...


def settle(given: GivenLabels, task: Task | None, ids: Array) -> SettledLabels:
    """Return labels as classes or as targets, by the rule above.

    Args:
        given: the labels.
        task: the user's task, or None.
        ids: the vertices' ids, for the texts of errors.

    Raises:
        GraphError: the task needs numbers and labels are texts, or it needs classes and labels are not whole.
    """
    values, missing = given.values, given.missing
    if values.dtype == object:
        return _indexed(values, missing, task)
    if values.ndim == 1:
        if task in (None, "classification"):
            return SettledLabels(np.where(missing, -1, values))
        absent = missing | (values == -1) if task == "multilabel" else missing
        return SettledLabels(np.where(absent, np.nan, values).astype(np.float32)[:, np.newaxis])
    if values.shape[1] == 1 and (task == "classification" or (task is None and are_classes(values[:, 0]))):
        return SettledLabels(_whole(values[:, 0], ids))
    return SettledLabels(values)


def are_classes(values: Array) -> bool:
    """Return True if floats [vertices] are all whole and some are missing, as pandas and OGB store classes.

    >>> are_classes(np.array([1.0, np.nan])), are_classes(np.array([1.0, 2.0])), are_classes(np.array([0.5, np.nan]))
    (True, False, False)
    """
    known = values[~np.isnan(values)]
    return 0 < len(known) < len(values) and bool((known == np.floor(known)).all() and (np.abs(known) < np.inf).all())


def _whole(values: Array, ids: Array) -> Array:
    missing = np.isnan(values)
    with np.errstate(invalid="ignore"):
        wrong = ~missing & ((values != np.floor(values)) | np.isinf(values))
    if wrong.any():
        raise no_classes(int(wrong.sum()), example_row(ids[wrong][0], values[wrong][0]))
    return np.where(missing, -1, values).astype(np.int64)


def no_classes(count: int, example: str) -> GraphError:
    """Build the error for numbers that are not whole, for the task classification."""
    mend = "Classes are 0, 1, ...; round the numbers, or take the task regression."
    return fault("vertices", "label", "labels that are not whole numbers", mend, count, example)


def too_many_texts(column: str) -> GraphError:
    """Build the error for labels that are texts, and too many different ones for classes."""
    mend = "Number the classes from 0, or name another column."
    return fault("vertices", column, f"holds more than {MOST_TEXTS:,} different texts, which are no classes", mend)


def _indexed(texts: Array, missing: npt.NDArray[np.bool_], task: Task | None) -> SettledLabels:
    if task not in (None, "classification"):
        raise wrong_label_type("label", "string")
    names = sorted(set(texts[~missing].tolist()) - {""})
    if len(names) > MOST_TEXTS:
        raise too_many_texts("label")
    numbers = {name: number for number, name in enumerate(names)}
    label = np.fromiter((numbers.get(text, -1) for text in texts.tolist()), dtype=np.int64, count=len(texts))
    return SettledLabels(label, tuple(names))
