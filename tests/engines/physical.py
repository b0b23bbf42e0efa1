"""Looks at the physical plan of a Spark frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame


def operators(frame: DataFrame) -> list[str]:
    """Names of the operators that run for `frame`, top down; what is held already is one scan."""
    hidden = ("WholeStageCodegen", "InputAdapter")
    return [node.nodeName() for node in _nodes(frame) if not node.nodeName().startswith(hidden)]


def implied_shuffles(frame: DataFrame) -> list[str]:
    """Shuffles that nobody asked for: Spark adds them where it does not know that rows lie right."""
    shuffles = [node.simpleString(100) for node in _nodes(frame) if node.nodeName() == "Exchange"]
    return [shuffle for shuffle in shuffles if "REPARTITION_BY_NUM" not in shuffle]


def _nodes(frame: DataFrame) -> Iterator[Any]:
    def walk(node: Any) -> Iterator[Any]:
        yield node
        for place in range(node.children().length()):
            yield from walk(node.children().apply(place))

    yield from walk(frame._jdf.queryExecution().executedPlan())
